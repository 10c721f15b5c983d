"""Remarks on whole episodes: times that contradict the rate, repeated pictures, NaN rewards, episodes that are there twice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from factories import make_spec, picture_spec, rich_episode
from robo_cli.main import dispatch
from robo_datasets.conversion import export, import_dataset
from robo_datasets.dataset import Dataset
from robo_datasets.formats.lerobot import LeRobot
from robo_datasets.formats.minari import Minari
from robo_rl.spec.environment import ActionSpec, ArraySpec

ACTION = ActionSpec(("reach",), (-0.1,), (0.1,), ("m",), mode="end_effector_delta", control_period=0.05)
STEPS = 10


@pytest.fixture
def spec():
    return make_spec("test/Cell-v0", ArraySpec("place", (2,)), picture_spec("front", (8, 6, 3)), action=ACTION)


@pytest.fixture
def recorded(spec, tmp_path):
    """Returns a function that stores episodes with changes, as recorded on a robot or in a simulation."""

    def store(*changes, environment="robot:http://127.0.0.1:5000"):
        dataset = Dataset.create(tmp_path / "data", spec, {"environment": environment})
        with dataset.writer() as writer:
            for number, change in enumerate(changes):
                sound = {"timestamps": np.arange(STEPS + 1) * 0.05, "terminated": True, "truncated": False}
                writer.add(replace(rich_episode(spec, STEPS, number), **sound | change))
        return dataset

    return store


def said(capsys, *arguments) -> str:
    capsys.readouterr()
    dispatch(["data", *map(str, arguments)])
    return capsys.readouterr().out


def frozen(episode_pictures, *rows):
    pictures = episode_pictures.copy()
    for row in rows:
        pictures[row] = pictures[row - 1]
    return pictures


def assert_told_everywhere(capsys, dataset, line, tmp_path) -> None:
    """info, verify and stats tell a remark; so does convert, out and in, and the card of the import has it."""
    for command in ("info", "verify", "stats"):
        assert line in said(capsys, command, dataset.path), command
    assert line in said(capsys, "convert", dataset.path, "--to", "minari", "--out", tmp_path / "m", "--bare")
    assert line in said(capsys, "convert", dataset.path, "--to", "lerobot", "--out", tmp_path / "l", "--bare")
    if "apart" not in line and "late" not in line:  # Minari has no times
        assert line in said(capsys, "convert", tmp_path / "m", "--out", tmp_path / "back")
        assert line in said(capsys, "info", tmp_path / "back")
        assert any(line in kept for kept in Dataset(tmp_path / "back").card["remarks"])


@pytest.mark.slow
def test_times_that_contradict_the_rate(recorded, capsys, tmp_path):
    """An episode with steps 0.298 s apart was exported as 20 frames a second, and no command said so."""
    dataset = recorded({"timestamps": np.arange(STEPS + 1) * 0.298}, {})
    line = "steps 0.298 s apart, control period 0.05 s: 1 of 2 episodes"
    assert_told_everywhere(capsys, dataset, line, tmp_path)
    assert line in said(capsys, "convert", tmp_path / "l", "--out", tmp_path / "back")
    assert line in said(capsys, "info", tmp_path / "back")


def test_rows_that_are_missing(recorded, capsys, tmp_path):
    times = np.arange(STEPS + 1) * 0.05
    times[6:] += 0.4
    dataset = recorded({"timestamps": times})
    line = "1 steps are late, or rows are missing: the longest 0.45 s, control period 0.05 s: 1 of 1 episodes"
    assert_told_everywhere(capsys, dataset, line, tmp_path)


def test_the_clock_of_a_simulation_is_not_compared(recorded, capsys):
    dataset = recorded({"timestamps": np.arange(STEPS + 1) * 0.0003}, environment="robo/ArmPick-v0")
    assert "apart" not in said(capsys, "verify", dataset.path)


def test_times_of_a_sound_recording_are_not_told(recorded, capsys):
    jitter = np.random.default_rng(0).normal(0, 0.004, STEPS + 1)
    dataset = recorded({"timestamps": np.arange(STEPS + 1) * 0.05 + jitter})
    assert "remark" not in said(capsys, "verify", dataset.path)


def test_repeated_pictures_are_counted(recorded, spec, capsys, tmp_path):
    """They were counted nowhere."""
    sound = rich_episode(spec, STEPS, 0)
    stuck = {**sound.observations, "front": frozen(sound.observations["front"], 3, 4, 7)}
    dataset = recorded({"observations": stuck}, {})
    assert_told_everywhere(capsys, dataset, f"front: 3 of {2 * STEPS} pictures equal the one before", tmp_path)


def test_rewards_that_are_no_numbers(recorded, capsys, tmp_path):
    """They passed through every command."""
    rewards = np.ones(STEPS, np.float32)
    rewards[[2, 5]] = np.nan, np.inf
    dataset = recorded({"rewards": rewards}, {})
    assert_told_everywhere(capsys, dataset, "rewards are not finite in 2 steps: 1 of 2 episodes", tmp_path)


def test_an_episode_that_is_there_twice(recorded, spec, capsys, tmp_path):
    one = rich_episode(spec, STEPS, 5)
    same = {name: getattr(one, name) for name in ("observations", "actions", "rewards")}
    dataset = recorded(same, {}, same)
    assert_told_everywhere(capsys, dataset, "equal to an earlier episode in all but pictures: 1 of 3 episodes", tmp_path)


def test_the_stand_in_for_a_last_picture_is_not_counted(recorded, tmp_path):
    """LeRobot has no picture after the last action, so the one before is repeated: by us, not by the camera."""
    export(LeRobot(), recorded({}), tmp_path / "l", keep_losses=False)
    assert "equal the one before" not in "\n".join(import_dataset(LeRobot(), tmp_path / "l", tmp_path / "back"))


def test_a_restored_card_is_as_it_was(recorded, tmp_path):
    dataset = recorded({"rewards": np.full(STEPS, np.nan, np.float32)})
    export(Minari(), dataset, tmp_path / "m")
    import_dataset(Minari(), tmp_path / "m", tmp_path / "back")
    assert Dataset(tmp_path / "back").card == dataset.card


def test_info_says_of_how_many_episodes_it_speaks(recorded, capsys):
    """It reads a few of them alone, so that it stays fast."""
    dataset = recorded(*[{"timestamps": np.arange(STEPS + 1) * 0.3}] * 7)
    assert "steps 0.3 s apart, control period 0.05 s: 3 of 3 episodes (of 7, 3 were read)" in said(capsys, "info", dataset.path)
