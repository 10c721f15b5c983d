"""Data that nobody of this project made, through foreign formats: human demonstrations, experts, pictures of a real car."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path

import cv2
import h5py
import numpy as np
import pytest

from robo_datasets.conversion import export, import_dataset
from robo_datasets.dataset import Dataset
from robo_datasets.formats.adjustments import Adjustments, turned
from robo_datasets.remarks import glance
from robo_rl.entry_points import load
from robo_rl.environments.make import make_environment
from robo_rl.errors import DatasetError
from robo_rl.spec.environment import ActionSpec, ArraySpec, EnvironmentSpec, ObservationSpec, specification
from robo_rl.types import ActionSource, Episode

D4RL, MINARI, ROBOMIMIC, LEROBOT = (load("formats", name) for name in ("d4rl", "minari", "robomimic", "lerobot"))
CHEETAH = "gymnasium/HalfCheetah-v5"


@pytest.fixture(scope="module")
def reference() -> Path:
    folder = os.environ.get("ROBO_RL_REFERENCE_DATA")
    if not folder:
        pytest.skip("ROBO_RL_REFERENCE_DATA names no folder with the reference data")
    return Path(folder)


def episodes_of(path: Path) -> list[Mapping[str, np.ndarray]]:
    """Returns the episodes of an .npz whose names are NUMBER/ARRAY."""
    with np.load(path) as file:
        numbers = sorted({name.split("/")[0] for name in file})
        return [{name.split("/", 1)[1]: file[name] for name in file if name.startswith(f"{number}/")} for number in numbers]


def flat_file(path: Path, episodes: list[Mapping[str, np.ndarray]], following: str | None = None) -> Path:
    """Writes a D4RL file in which every episode ends by a time-out."""
    observed, acted, rewarded = ("observations", "actions", "rewards") if "actions" in episodes[0] else EXPERT
    with h5py.File(path, "w") as file:
        for name, key in {
            "observations": observed,
            "actions": acted,
            "rewards": rewarded,
            "next_observations": following,
        }.items():
            if key is not None:
                file[name] = np.concatenate([episode[key] for episode in episodes]).astype(np.float32)
        ends = np.concatenate([np.arange(len(episode[acted])) == len(episode[acted]) - 1 for episode in episodes])
        file["timeouts"], file["terminals"] = ends, np.zeros_like(ends)
    return path


EXPERT = ("observation", "action", "reward")
STEPS = 60
"""Of the drive."""


@pytest.fixture
def door(reference, tmp_path):
    """A file of 25 demonstrations of a person, without the observations after the last actions; and its arrays."""
    episodes = episodes_of(reference / "human" / "adroit_door_25.npz")
    return flat_file(tmp_path / "door.hdf5", episodes), episodes


@pytest.mark.slow
def test_a_last_reward_of_a_person_is_told_and_can_be_kept(door, tmp_path):
    """The return fell by 10 to 20 in each episode, and the remark named the action only."""
    path, episodes = door
    returns = [float(episode["rewards"].astype(np.float32).sum(dtype=np.float64)) for episode in episodes]
    last = np.mean([episode["rewards"][-1] for episode in episodes])
    notes = "\n".join(import_dataset(D4RL, path, tmp_path / "cut"))
    assert f"reward of the last action is left out with it: {last:.4g}" in notes.replace(f"{last:.6g}", f"{last:.4g}")
    assert f"of {np.mean(returns):.6g} in the mean of 25 episodes" in notes
    import_dataset(D4RL, path, tmp_path / "whole", adjustments=Adjustments(keep_last=True))
    assert [episode.undiscounted_return for episode in Dataset(tmp_path / "whole")] == pytest.approx(returns)


@pytest.mark.slow
def test_actions_of_a_person_beyond_their_range(door, tmp_path):
    """They are beyond [-1, 1] in 82 % of the steps; the remark on 28 numbers had 16 digits each."""
    path, episodes = door
    beyond = np.concatenate([(np.abs(episode["actions"].astype(np.float32)) > 1).any(axis=1) for episode in episodes])
    notes = import_dataset(D4RL, path, tmp_path / "wide")
    (told,) = [line for line in notes if "beyond their limits" in line]
    assert told.startswith("16 of 28 actions reach beyond their limits, action_4 ") and len(told) < 240
    adjustments = Adjustments(clip=True, keep_last=True)
    notes = import_dataset(D4RL, path, tmp_path / "clipped", adjustments=adjustments)
    assert f"clipped in {beyond.mean():.0%} of the steps" in "\n".join(notes) and round(beyond.mean(), 2) == 0.82
    for episode, found in zip(episodes, Dataset(tmp_path / "clipped"), strict=True):
        assert np.array_equal(found.policy_actions, episode["actions"].astype(np.float32)), "the raw ones are kept"
        assert np.array_equal(found.actions, np.clip(episode["actions"].astype(np.float32), -1, 1))


@pytest.fixture
def experts(reference):
    return episodes_of(reference / "experts" / "cs285_halfcheetah_v4_expert.npz")


@pytest.mark.filterwarnings("ignore::UserWarning")  # Minari asks for an author and a link to the code
@pytest.mark.parametrize("form", [D4RL, MINARI, ROBOMIMIC], ids=lambda form: form.name)
def test_actions_of_an_expert_that_its_environment_clipped(form, experts, tmp_path):
    """Refused with the advice to leave the environment out, as long as nothing could clip them."""
    spec = specification(make_environment(CHEETAH))
    path = _written(form, experts, tmp_path)
    with pytest.raises(DatasetError, match=r"nothing is clipped(.|\n)*--clip"):
        import_dataset(form, path, tmp_path / "refused", spec=spec)
    import_dataset(form, path, tmp_path / "back", spec=spec, adjustments=Adjustments(clip=True))
    back = [*Dataset(tmp_path / "back")]
    assert [round(episode.undiscounted_return) for episode in back] == [4068, 4002]
    assert max(np.abs(episode.policy_actions).max() for episode in back) == pytest.approx(2.03, abs=0.005)
    assert max(np.abs(episode.actions).max() for episode in back) == 1
    for expert, found in zip(experts, back, strict=True):
        assert np.array_equal(found.policy_actions, expert["action"])


def _written(form, experts, folder: Path) -> Path:
    """Writes the experts in a format: Minari's by its own package."""
    if form is D4RL:
        return flat_file(folder / "experts.hdf5", experts, "next_observation")
    if form is ROBOMIMIC:
        with h5py.File(folder / "experts.hdf5", "w") as file:
            file.create_group("data").attrs["env_args"] = json.dumps(
                {"env_name": "HalfCheetah-v4", "type": 2, "env_kwargs": {}}
            )
            for number, expert in enumerate(experts):
                demo = file.create_group(f"data/demo_{number}")
                demo["obs/flat"], demo["next_obs/flat"] = expert["observation"], expert["next_observation"]
                demo["actions"], demo["rewards"], demo["dones"] = expert["action"], expert["reward"], expert["terminal"]
        return folder / "experts.hdf5"
    import gymnasium
    import minari
    from minari.data_collector.episode_buffer import EpisodeBuffer

    os.environ["MINARI_DATASETS_PATH"] = str(folder / "minari")
    try:
        buffers = [
            EpisodeBuffer(
                id=number,
                observations=np.concatenate([expert["observation"], expert["next_observation"][-1:]]),
                actions=expert["action"],
                rewards=expert["reward"].tolist(),
                terminations=[False] * len(expert["action"]),
                truncations=[False] * (len(expert["action"]) - 1) + [True],
            )
            for number, expert in enumerate(experts)
        ]
        spaces = (gymnasium.spaces.Box(-np.inf, np.inf, (17,), np.float64), gymnasium.spaces.Box(-1, 1, (6,), np.float32))
        minari.create_dataset_from_buffers(
            "cheetah/expert-v0", buffers, observation_space=spaces[0], action_space=spaces[1], eval_env="HalfCheetah-v5"
        )
    finally:
        del os.environ["MINARI_DATASETS_PATH"]
    return folder / "minari" / "cheetah" / "expert-v0"


@pytest.fixture(scope="module")
def drive(reference, tmp_path_factory) -> Dataset:
    """A recording of a small car with a person's steering: pictures and steering, with the times of its own clock."""
    pictures, rows = {}, []
    with tarfile.open(reference / "driving" / "donkeycar_tub.tar.gz") as archive:
        for member in archive:
            if member.name.endswith("_cam_image_array_.jpg") and "/._" not in member.name:
                pictures[Path(member.name).name] = archive.extractfile(member).read()
            elif Path(member.name).name == "catalog_0.catalog":
                rows = [json.loads(line) for line in io.TextIOWrapper(archive.extractfile(member), "utf-8")]
    rows = rows[100 : 101 + STEPS]
    seen = [cv2.imdecode(np.frombuffer(pictures[row["cam/image_array"]], np.uint8), cv2.IMREAD_COLOR_RGB) for row in rows]
    actions = np.array([[row["user/angle"], row["user/throttle"]] for row in rows[:-1]], np.float32)
    camera = ArraySpec("front", seen[0].shape, "uint8", 0, 255, role="image")
    action = ActionSpec(("angle", "throttle"), (-1, -1), (1, 1), ("unknown",) * 2, "unknown", control_period=0.05)
    spec = EnvironmentSpec("car/Track-v0", ObservationSpec((camera,)), action)
    dataset = Dataset.create(tmp_path_factory.mktemp("car") / "data", spec)
    times = np.array([row["_timestamp_ms"] for row in rows]) / 1000
    sources = np.full(STEPS, ActionSource.HUMAN, np.int8)
    arrays = ({"front": np.stack(seen)}, actions, actions, np.zeros(STEPS, np.float32), sources, times)
    with dataset.writer() as writer:
        writer.add(Episode(*arrays, False, True, "time_limit", None, None, spec.fingerprint))
    return dataset


def test_times_of_a_real_camera_are_compared_with_its_rate(drive):
    """The clock of this recording says something else than 20 pictures a second."""
    (episode,) = drive
    apart = np.median(np.diff(episode.timestamps))
    assert abs(apart / 0.05 - 1) > 0.1
    assert any(f"steps {apart:.3g} s apart, control period 0.05 s: 1 of 1 episodes" in line for line in glance(drive))


@pytest.mark.slow
@pytest.mark.parametrize("turn", ["90", "mirrored"])
def test_real_pictures_are_turned_at_import(drive, tmp_path, turn):
    (episode,) = drive
    for form in (ROBOMIMIC, LEROBOT):
        out = tmp_path / f"out{form.suffix or '-folder'}"
        export(form, drive, out, keep_losses=False)
        import_dataset(form, out, tmp_path / f"back-{form.name}", adjustments=Adjustments(turns={"front": turn}))
        (back,) = Dataset(tmp_path / f"back-{form.name}")
        expected = turned(episode.observations["front"], turn)[: len(back)]
        error = back.observations["front"][: len(back)].astype(float) - expected
        assert np.abs(error).max() == 0 if form is ROBOMIMIC else 10 * np.log10(255**2 / (error**2).mean()) > 30


@pytest.mark.slow
def test_real_pictures_of_a_film_belong_to_their_rows(drive, tmp_path):
    """Rows are taken out as a filter of idle frames does; each picture left is nearer to its own row than to any beside it."""
    import pyarrow
    import pyarrow.parquet

    export(LEROBOT, drive, tmp_path / "out", keep_losses=False)
    path = tmp_path / "out" / "data" / "chunk-000" / "file-000.parquet"
    kept = np.delete(np.arange(STEPS), np.r_[10:25, 40:45])
    pyarrow.parquet.write_table(pyarrow.parquet.read_table(path).take(kept), path)
    import_dataset(LEROBOT, tmp_path / "out", tmp_path / "back")
    (back,), (episode,) = Dataset(tmp_path / "back"), drive
    pictures = episode.observations["front"].astype(float)
    for place, row in enumerate(kept[: len(back)]):
        near = range(max(0, row - 2), row + 3)
        errors = [((back.observations["front"][place] - pictures[other]) ** 2).mean() for other in near]
        assert errors[near.index(row)] == min(errors), "some pictures of the camera equal the one before"
