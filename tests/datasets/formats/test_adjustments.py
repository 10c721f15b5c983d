"""Foreign actions of another scale, turned grippers, other units, turned pictures: told, and put right by an option."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

from factories import make_spec, picture_spec
from robo_datasets.conversion import export, import_dataset
from robo_datasets.dataset import Dataset
from robo_datasets.formats.adjustments import Adjustments, turned
from robo_rl.entry_points import load
from robo_rl.errors import DatasetError, InvalidSetting, UnknownName
from robo_rl.spec.environment import ActionSpec, ArraySpec

FORMATS = [load("formats", name) for name in ("d4rl", "robomimic", "minari", "lerobot")]
D4RL, ROBOMIMIC, MINARI, LEROBOT = FORMATS
ACTION = ActionSpec(("reach", "gripper"), (-0.1, 0), (0.1, 0.07), ("m", "m"), mode="end_effector_delta", control_period=0.05)
RAMP = np.linspace(-1, 1, 6, dtype=np.float32)


@pytest.fixture(params=FORMATS, ids=lambda form: form.name)
def form(request):
    return request.param


@pytest.fixture
def spec():
    return make_spec("test/Cell-v0", ArraySpec("joint_position", (3,), unit="rad"), action=ACTION)


@pytest.fixture
def foreign(form, spec, cells, tmp_path):
    """Returns a function that writes a file of one terminated episode with other actions."""

    def write(actions):
        episode = cells["episode"](spec, 0, 6, terminated=True, truncated=False, actions=np.stack([RAMP, RAMP], axis=1))
        out = tmp_path / f"out{form.suffix}"
        export(form, cells["dataset"](tmp_path / "made", spec, [episode]), out, keep_losses=False)
        _replace(form, out, np.asarray(actions, np.float32))
        return out

    return write


def _replace(form, out, actions) -> None:
    """Writes other actions in the place of those of a file."""
    if form is LEROBOT:
        import pyarrow
        import pyarrow.parquet

        path = out / "data" / "chunk-000" / "file-000.parquet"
        table = pyarrow.parquet.read_table(path)
        column = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(actions.reshape(-1)), actions.shape[1])
        pyarrow.parquet.write_table(table.set_column(table.column_names.index("action"), "action", column), path)
        return
    path, name = (out, "actions") if form is D4RL else (out, "data/demo_0/actions")
    if form is MINARI:
        path, name = out / "data" / "main_data.hdf5", "episode_0/actions"
    with h5py.File(path, "r+") as file:
        file[name][...] = actions


def read(form, out, **settings):
    back = out.with_name("back")
    notes = import_dataset(form, out, back, **settings)
    (episode,) = Dataset(back)
    return episode, Dataset(back), "\n".join(notes)


def gripper(values) -> np.ndarray:
    return np.stack([RAMP, values], axis=1)


@pytest.mark.parametrize("ends", [(0, 1), (1, 0), (0, 100), (100, 0), (-180, 180)], ids=str)
def test_a_range_maps_and_turns_an_action(form, foreign, ends):
    """No option existed: 0..1 and turned signs were taken as they are, 0..100 was refused."""
    low, high = ends
    out = foreign(gripper(low + (RAMP + 1) / 2 * (high - low)))
    episode, dataset, notes = read(form, out, adjustments=Adjustments(action_ranges={"gripper": ends}))
    np.testing.assert_allclose(episode.actions, np.stack([RAMP, RAMP], axis=1), atol=1e-6)
    assert np.array_equal(episode.policy_actions, episode.actions)
    line = f"action gripper: {low} becomes -1, {high} becomes 1"
    assert line in dataset.card["remarks"] and "half of their range" not in notes


def test_half_of_a_range_is_told(form, foreign):
    _, dataset, notes = read(form, foreign(gripper((RAMP + 1) / 2)))
    told = "1 of 2 actions use half of their range [-1, 1]: gripper 0 to 1; of another scale? --action-ranges"
    assert told in notes and told in "\n".join(dataset.card["remarks"])


def test_a_whole_range_is_not_told(form, foreign):
    assert "half of their range" not in read(form, foreign(gripper(RAMP)))[2]


def test_actions_beyond_their_range_are_refused_or_clipped(form, foreign):
    out = foreign(gripper(RAMP * 2))
    with pytest.raises(DatasetError, match=r"nothing is clipped(.|\n)*2 in \[-1, 1\] units, of gripper(.|\n)*--clip"):
        read(form, out)
    episode, _, notes = read(form, out, adjustments=Adjustments(clip=True))
    np.testing.assert_allclose(episode.policy_actions[:, 1], RAMP * 2, atol=1e-6)
    np.testing.assert_allclose(episode.actions[:, 1], np.clip(RAMP * 2, -1, 1), atol=1e-6)
    assert "actions beyond [-1, 1] are clipped in 67% of the steps, and kept as proposed (policy_actions)" in notes


def test_an_observation_gets_another_unit(form, foreign):
    out = foreign(gripper(RAMP))
    before = read(form, out)[0].observations["joint_position"]
    (out.with_name("back")).rename(out.with_name("before"))
    adjustments = Adjustments(observation_scales={"joint_position": np.pi / 180})
    after = read(form, out, adjustments=adjustments)[0].observations["joint_position"]
    np.testing.assert_allclose(after, before * np.pi / 180, rtol=1e-6)


def test_far_larger_observations_than_shown_are_told(form, foreign, spec):
    """`joint_position` in degrees was taken as rad, and neither import nor `verify` said a word."""
    out = foreign(gripper(RAMP))
    most = float(np.abs(read(form, out)[0].observations["joint_position"]).max())
    (out.with_name("back")).rename(out.with_name("first"))
    notes = read(form, out, shown={"joint_position": most / 57})[2]
    assert f"observation joint_position reaches {most:.4g}" in notes and "--observation-scales joint_position FACTOR" in notes
    (out.with_name("back")).rename(out.with_name("second"))
    assert "--observation-scales" not in read(form, out, shown={"joint_position": most / 2})[2]


@pytest.mark.parametrize(
    ("adjustments", "error"),
    [
        (Adjustments(action_ranges={"griper": (0, 1)}), UnknownName),
        (Adjustments(action_ranges={"gripper": (1, 1)}), InvalidSetting),
        (Adjustments(observation_scales={"joint_positions": 2}), UnknownName),
        (Adjustments(observation_scales={"joint_position": 0}), InvalidSetting),
        (Adjustments(turns={"top": "90"}), UnknownName),
    ],
    ids=str,
)
def test_impossible_adjustments_are_refused(form, foreign, adjustments, error):
    out = foreign(gripper(RAMP))
    with pytest.raises(error):
        read(form, out, adjustments=adjustments)
    assert not out.with_name("back").exists()


def test_a_turned_gripper_of_an_unknown_robot(spec, cells, tmp_path):
    """Without a spec, what is not given has the limits of the data; the given element is turned, whatever its data reach."""
    out = tmp_path / "out"
    episode = cells["episode"](spec, 0, 6, terminated=True, truncated=False, actions=np.stack([RAMP, RAMP], axis=1))
    export(LEROBOT, cells["dataset"](tmp_path / "made", spec, [episode]), out, keep_losses=False)
    (out / "meta" / "robo_rl.json").unlink()
    _replace(LEROBOT, out, gripper(20 + 10 * RAMP) * np.float32([5, 1]))
    episode, dataset, notes = read(LEROBOT, out, adjustments=Adjustments(action_ranges={"gripper": (100, 0)}))
    np.testing.assert_allclose(episode.actions, np.stack([RAMP, (30 - 10 * RAMP) / 50], axis=1), atol=1e-6)
    assert (dataset.spec.action.low, dataset.spec.action.high) == ((-5, 0), (5, 100))
    assert "the least and the most that occur become -1 and 1" in notes
    (out.with_name("back")).rename(out.with_name("narrow"))
    episode, dataset, notes = read(LEROBOT, out, adjustments=Adjustments(action_ranges={"gripper": (25, 0)}, clip=True))
    assert episode.actions[-1, 1] == -1 and episode.policy_actions[-1, 1] == pytest.approx(-1.4)
    assert (dataset.spec.action.low, dataset.spec.action.high) == ((-5, 0), (5, 25))


# ------------------------------------------------------------------------------------------------ pictures


CORNERS = np.array([[1, 2, 3], [4, 5, 6]], np.uint8)


@pytest.mark.parametrize(
    ("turn", "expected"),
    [
        ("90", [[4, 1], [5, 2], [6, 3]]),
        ("180", [[6, 5, 4], [3, 2, 1]]),
        ("270", [[3, 6], [2, 5], [1, 4]]),
        ("upside-down", [[4, 5, 6], [1, 2, 3]]),
        ("mirrored", [[3, 2, 1], [6, 5, 4]]),
    ],
)
def test_a_picture_is_turned_clockwise(turn, expected):
    assert turned(CORNERS[None, :, :, None], turn)[0, :, :, 0].tolist() == expected


@pytest.mark.parametrize("form", [ROBOMIMIC, MINARI, LEROBOT], ids=lambda form: form.name)
@pytest.mark.parametrize("turn", ["90", "180"])
def test_pictures_are_turned_at_import(form, cells, tmp_path, turn):
    spec = make_spec("test/Cell-v0", ArraySpec("place", (2,)), picture_spec("top", (8, 6, 3)), action=ACTION)
    dataset = cells["dataset"](tmp_path / "made", spec, [cells["episode"](spec, 0, 4, terminated=True, truncated=False)])
    out = tmp_path / f"out{form.suffix}"
    export(form, dataset, out)
    adjustments = Adjustments(turns={"all": turn})
    back, dataset_back, _ = read(form, out, adjustments=adjustments)
    (episode,) = dataset
    assert np.array_equal(back.observations["top"][:4], turned(episode.observations["top"], turn)[:4])
    assert dataset_back.spec.observation["top"].shape == ((6, 8, 3) if turn == "90" else (8, 6, 3))
    assert f"pictures of all are turned by {turn} degrees" in dataset_back.card["remarks"]


# ------------------------------------------------------------------------------------------------ last step


@pytest.mark.parametrize("form", [D4RL, LEROBOT, ROBOMIMIC], ids=lambda form: form.name)
def test_the_reward_of_a_last_action_is_told_or_kept(form, spec, cells, tmp_path):
    """A reward of 10 in the last step before a time-out went, and the remark named the action only."""
    rewards = np.array([0, 0, 0, 0, 0, 10], np.float32)
    episodes = [
        cells["episode"](spec, number, 6, terminated=False, truncated=True, stop_reason="time_limit", rewards=rewards)
        for number in range(2)
    ]
    out = tmp_path / f"out{form.suffix}"
    export(form, cells["dataset"](tmp_path / "made", spec, episodes), out, keep_losses=False)
    if form is not LEROBOT:
        with h5py.File(out, "r+") as file:
            for group in [file] if form is D4RL else file["data"].values():
                del group["next_observations" if form is D4RL else "next_obs"]
    lost = import_dataset(form, out, tmp_path / "lost")
    told = (
        "reward of the last action is left out with it: 10 of 10 in the mean of 2 episodes (--keep-last keeps both at import)"
    )
    assert told in lost and told in Dataset(tmp_path / "lost").card["remarks"]
    kept = import_dataset(form, out, tmp_path / "kept", adjustments=Adjustments(keep_last=True))
    assert "reward of the last action" not in "\n".join(kept) and "the one before stands in for it: 2 of 2" in "\n".join(kept)
    for episode in Dataset(tmp_path / "kept"):
        assert (len(episode), episode.undiscounted_return, episode.truncated) == (6, 10, True)
        (values,) = (values for values in episode.observations.values())
        assert np.array_equal(values[-1], values[-2])
