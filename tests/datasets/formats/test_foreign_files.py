"""Files that were not made here: what is missing, out of range or inferred is said; nothing is clipped or made up."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from robo_datasets.conversion import export, import_dataset
from robo_datasets.dataset import Dataset
from robo_datasets.formats.recording import flat_name
from robo_rl.entry_points import load
from robo_rl.environments.make import make_environment
from robo_rl.errors import DatasetError, SpecMismatch
from robo_rl.spec.environment import ArraySpec, specification

D4RL, ROBOMIMIC, MINARI, LEROBOT = (load("formats", name) for name in ("d4rl", "robomimic", "minari", "lerobot"))


def flat_file(path: Path, steps: int = 6, **changes: object) -> Path:
    """Writes a D4RL file with a termination after step 2 and a time-out after step 4."""
    arrays = {
        "observations": np.arange(steps * 4, dtype=np.float32).reshape(steps, 4),
        "actions": np.linspace(-1, 1, steps, dtype=np.float32)[:, None],
        "rewards": np.arange(steps, dtype=np.float32),
        "terminals": np.arange(steps) == 1,
        "timeouts": np.arange(steps) == 3,
    }
    with h5py.File(path, "w") as file:
        for name, values in (arrays | changes).items():
            if values is not None:
                file[name] = values
    return path


def demonstrations(
    path: Path, steps: tuple[int, ...] = (3, 5), kwargs: dict[str, object] | None = None, following: bool = True
):
    with h5py.File(path, "w") as file:
        file.create_group("data").attrs["env_args"] = json.dumps({"env_name": "Lift", "type": 1, "env_kwargs": kwargs or {}})
        file["mask/train"] = np.array([b"demo_0"])
        for index, count in enumerate(steps):
            demo = file.create_group(f"data/demo_{index + 9}")
            demo.attrs["num_samples"] = count
            demo["obs/robot0_eef_pos"] = np.arange(count * 3.0).reshape(count, 3)
            demo["obs/agentview_image"] = np.full((count, 8, 8, 3), index, np.uint8)
            if following:
                demo["next_obs/robot0_eef_pos"] = np.arange(count * 3.0).reshape(count, 3) + 3
                demo["next_obs/agentview_image"] = np.full((count, 8, 8, 3), index, np.uint8)
            demo["states"] = np.zeros((count, 7))
            demo["actions"] = np.full((count, 2), 0.5)
            demo["rewards"] = np.zeros(count)
            demo["dones"] = np.arange(count) == count - 1
    return path


def read(form, path: Path, **settings: object) -> tuple[Dataset, list[str]]:
    out = path.with_name(f"{path.stem}-read")
    notes = import_dataset(form, path, out, **settings)
    return Dataset(out), notes


def test_the_last_step_before_a_time_out_has_no_next_observation(tmp_path):
    dataset, notes = read(D4RL, flat_file(tmp_path / "a.hdf5"))
    terminated, timed_out, rest = dataset
    assert (len(terminated), terminated.terminated, terminated.truncated) == (2, True, False)
    assert terminated.rewards.tolist() == [0, 1], "the reward of the last step counts, nothing is bootstrapped from it"
    assert terminated.observations["observation"][:, 0].tolist() == [0, 4, 4]
    assert (len(timed_out), timed_out.terminated, timed_out.truncated) == (1, False, True)
    assert timed_out.observations["observation"][:, 0].tolist() == [8, 12], (
        "the next episode's first observation is not this one's"
    )
    assert rest.truncated and rest.metadata["imported"]["end"] == "inferred"
    assert any("the last action is left out: 2 of 3 episodes" in note for note in notes)
    assert any("the one before stands in for it: 1 of 3 episodes" in note for note in notes)
    assert any("not marked whether the task ended or was cut: taken as truncated: 1 of 3 episodes" in note for note in notes)


def test_steps_that_do_not_join_are_not_joined(tmp_path):
    following = np.arange(24, dtype=np.float32).reshape(6, 4) + 4
    following[[1, 3, 4]] = -1
    dataset, _ = read(D4RL, flat_file(tmp_path / "a.hdf5", next_observations=following, timeouts=None))
    assert [(len(episode), episode.terminated) for episode in dataset] == [(2, True), (2, False), (1, False), (1, False)]
    assert [float(episode.observations["observation"][-1, 0]) for episode in dataset] == [-1, -1, -1, 24]


def test_actions_beyond_their_convention_widen_the_limits(tmp_path):
    actions = np.array([[-3.0], [0], [0.5], [1], [1], [5]], np.float32)
    dataset, notes = read(D4RL, flat_file(tmp_path / "a.hdf5", actions=actions))
    assert (dataset.spec.action.low, dataset.spec.action.high, dataset.spec.action.mode) == ((-3.0,), (5.0,), "unknown")
    assert any("limits are widened" in note for note in notes)
    first = next(iter(dataset))
    assert [float(dataset.spec.action.to_physical(action)[0]) for action in first.actions] == [-3.0, 0.0]


def test_an_environment_gives_names_units_and_limits(tmp_path):
    spec = specification(make_environment("gymnasium/InvertedPendulum-v5"))
    path = flat_file(tmp_path / "a.hdf5")
    dataset, _ = read(D4RL, path, spec=spec)
    assert dataset.spec == spec
    joined = np.concatenate([next(iter(dataset)).observations[name].reshape(3, -1) for name in spec.observation], axis=1)
    assert joined[0].tolist() == [0, 1, 2, 3]
    assert next(iter(dataset)).actions[:, 0] == pytest.approx([-1, -0.6])


def test_actions_outside_the_space_are_refused(tmp_path):
    spec = specification(make_environment("gymnasium/InvertedPendulum-v5"))
    path = flat_file(tmp_path / "a.hdf5", actions=np.full((6, 1), 1.5, np.float32))
    with pytest.raises(DatasetError, match=r"nothing is clipped(.|\n)*1.5 in \[-1, 1\] units(.|\n)*--environment"):
        import_dataset(D4RL, path, tmp_path / "out", spec=spec)
    assert not (tmp_path / "out").exists()


def test_data_of_another_environment(tmp_path):
    spec = specification(make_environment("gymnasium/Hopper-v5"))
    with pytest.raises(SpecMismatch, match=r"The data is not of gymnasium/Hopper-v5(.|\n)*missing in the data"):
        import_dataset(D4RL, flat_file(tmp_path / "a.hdf5"), tmp_path / "out", spec=spec)
    spec = specification(make_environment("gymnasium/InvertedPendulum-v5"))
    path = flat_file(tmp_path / "b.hdf5", actions=np.zeros((6, 2), np.float32))
    with pytest.raises(SpecMismatch, match="action: 1 numbers there, 2 numbers in the data"):
        import_dataset(D4RL, path, tmp_path / "out", spec=spec)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rewards": None}, "no rewards"),
        ({"rewards": np.zeros(5)}, "differ in length"),
        ({"actions": np.full((6, 1), np.nan)}, "An action holds NaN"),
        ({"observations": np.full((6, 4), np.inf)}, "holds NaN or infinity"),
    ],
)
def test_a_damaged_flat_file(tmp_path, changes, message):
    with pytest.raises(DatasetError, match=message):
        import_dataset(D4RL, flat_file(tmp_path / "a.hdf5", **changes), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_dones_do_not_tell_how_an_episode_ended(tmp_path):
    dataset, notes = read(ROBOMIMIC, demonstrations(tmp_path / "a.hdf5"))
    assert [(len(e), e.terminated, e.truncated) for e in dataset] == [(3, False, True), (5, False, True)]
    assert "`dones` does not distinguish termination and truncation: every episode counts as truncated" in notes
    assert "not read: states" in notes and "filter keys are not kept: train" in notes
    first = next(iter(dataset))
    assert first.observations["robot0_eef_pos"].dtype == np.float32
    assert first.observations["robot0_eef_pos"][:, 0].tolist() == [0, 3, 6, 9]
    assert dataset.spec.observation["agentview_image"].role == "image"
    assert dataset.spec.name == "imported/Lift"


@pytest.mark.slow
def test_a_horizon_tells_termination_from_truncation(tmp_path):
    path = demonstrations(tmp_path / "a.hdf5", kwargs={"horizon": 5, "control_freq": 20})
    dataset, _ = read(ROBOMIMIC, path)
    assert [(e.terminated, e.truncated) for e in dataset] == [(True, False), (False, True)]
    assert (dataset.spec.max_steps, dataset.spec.action.control_period) == (5, 0.05)
    assert next(iter(dataset)).timestamps == pytest.approx([0, 0.05, 0.1, 0.15])
    endless = demonstrations(tmp_path / "b.hdf5", kwargs={"horizon": 5, "ignore_done": True})
    assert [e.terminated for e in read(ROBOMIMIC, endless)[0]] == [False, False]


def test_demonstrations_without_next_observations_or_rewards(tmp_path):
    path = demonstrations(tmp_path / "a.hdf5", following=False)
    with h5py.File(path, "a") as file:
        del file["data/demo_9/rewards"]
    dataset, notes = read(ROBOMIMIC, path)
    assert [len(episode) for episode in dataset] == [2, 4]
    assert any("no rewards: 0 is stored" in note and "1 of 2" in note for note in notes)
    assert next(iter(dataset)).metadata["imported"]["rewards"] == "missing"


def test_demonstrations_without_observations(tmp_path):
    path = demonstrations(tmp_path / "a.hdf5")
    with h5py.File(path, "a") as file:
        del file["data/demo_9/obs"]
    with pytest.raises(DatasetError, match=r"states, but no observations(.|\n)*dataset_states_to_obs"):
        import_dataset(ROBOMIMIC, path, tmp_path / "out")


@pytest.mark.parametrize("form", [D4RL, ROBOMIMIC, MINARI, LEROBOT], ids=lambda form: form.name)
@pytest.mark.parametrize("content", [b"", b"no HDF5 at all", b"\x89HDF\r\n\x1a\n" + bytes(200)])
def test_what_is_no_such_file(tmp_path, form, content):
    """One clear error, whatever lies under the names that a format looks for."""
    path = tmp_path / "file.hdf5"
    path.write_bytes(content)
    if not form.suffix:
        path = tmp_path / "folder"
        for name in ("meta/info.json", "data/metadata.json", "data/main_data.hdf5"):
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(content)
    with pytest.raises(DatasetError, match=f"cannot be read as {form.name}"):
        import_dataset(form, path, tmp_path / "out")


def test_lerobot_recording_of_a_served_robot(tmp_path, cells):
    """Its columns are taken apart by their labels, and its actions are in [-1, 1]; those of any other robot are not."""
    arrays = (ArraySpec("joint_position", (3,), unit="rad"), ArraySpec("goal", (2,), role="goal"), cells["CAMERAS"][0])
    spec = cells["spec"](arrays)
    dataset = cells["dataset"](tmp_path / "data", spec, [cells["episode"](spec, 0, steps=5, truncated=True)])
    export(LEROBOT, dataset, tmp_path / "out", keep_losses=False)
    (tmp_path / "out" / "meta" / "robo_rl.json").unlink()
    info = tmp_path / "out" / "meta" / "info.json"
    for robot_type in ("so101_follower", "robo_rl"):
        info.write_text(json.dumps(json.loads(info.read_text()) | {"robot_type": robot_type}))
        if robot_type != "robo_rl":
            with pytest.raises(SpecMismatch, match=r"joint_position(.|\n)*missing in the data"):
                import_dataset(LEROBOT, tmp_path / "out", tmp_path / "theirs", spec=spec)
    import_dataset(LEROBOT, tmp_path / "out", tmp_path / "ours", spec=spec)
    (before,), (after,) = dataset, Dataset(tmp_path / "ours")
    assert np.array_equal(after.actions, before.actions[:4])  # nothing was observed after the last one
    assert all(np.array_equal(after.observations[name], values[:5]) for name, values in before.observations.items())


@pytest.mark.parametrize(
    ("name", "flat"),
    [("observation.images.Top", "observation_images_top"), ("robot0_eef_pos", "robot0_eef_pos"), ("JointPos", "joint_pos"),
     ("3d", "x_3d"), ("../../etc", "etc"), ("§", "x")],
)  # fmt: skip
def test_names_become_flat(name, flat):
    assert flat_name(name) == flat
