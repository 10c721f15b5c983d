"""Labelling can be killed at any moment; labels take the place of rewards, and what has none is left out, not zero."""

import random
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from factories import fill
from robo_datasets.cache import CachedEpisodes
from robo_datasets.dataset import Dataset
from robo_datasets.labelling import label, shuffle
from robo_datasets.labels import LabelSet
from robo_datasets.preferences import PreferenceSet
from robo_rl.errors import DatasetBusy, DatasetError, InvalidSetting, UnknownName
from robo_rl.extras import ReturnsToGo
from robo_rl.protocols.rewards import RewardModel
from robo_rl.replay.recorded import RecordedReplay
from robo_rl.rewards.synthetic import Constant, NoisyOracle, Oracle
from robo_rl.types import RewardLabels

SCRIPT = Path(__file__).with_name("label_and_die.py")
LENGTHS = (5, 1, 9, 3)


@pytest.fixture
def filled(dataset, make_episode) -> Dataset:
    return fill(dataset, (make_episode(seed, steps, terminated=seed == 1) for seed, steps in enumerate(LENGTHS)))


@pytest.fixture(autouse=True)
def own_cache_home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))


def labelled(dataset: Dataset, name: str) -> CachedEpisodes:
    return CachedEpisodes(dataset, dataset.entries(), labels=LabelSet.existing(dataset, name))


def values(dataset: Dataset, name: str) -> np.ndarray:
    return np.concatenate([LabelSet(dataset, name).read(entry.identity).values for entry in dataset.entries()])


# ---------------------------------------------------------------------------------------------- labelling
@dataclass(frozen=True)
class Many(Oracle):
    """A model that is faster with many episodes; `kinds` notes how it was asked."""

    kinds: list[str] = field(default_factory=list)

    def label(self, episode):
        self.kinds.append("one")
        return super().label(episode)

    def label_all(self, episodes):
        self.kinds.append("many")
        return map(super().label, episodes)


def test_a_model_that_takes_many_episodes_is_asked_for_many(filled):
    model = Many()
    assert label(filled, model, "many") == label(filled, Oracle(), "one") == len(LENGTHS)
    assert model.kinds == ["many"]
    np.testing.assert_array_equal(values(filled, "many"), values(filled, "one"))


@pytest.mark.parametrize(
    ("moments", "place"),
    [(3, ["cache"]), pytest.param(10, ["cache"], marks=pytest.mark.slow), pytest.param(30, [], marks=pytest.mark.slow)],
)
def test_killed_labelling_loses_and_repeats_no_answer(dataset, make_episode, tmp_path, moments, place):
    with dataset.writer() as writer:
        for seed in range(40):
            writer.add(make_episode(seed, 20))
    asked, chance = tmp_path / "asked", random.Random(0)
    command = [sys.executable, str(SCRIPT), str(dataset.path), "killed", str(asked), *place]
    kills, labels = 0, LabelSet(dataset, "killed")
    for _ in range(moments):
        process = subprocess.Popen(command)
        wanted = len(labels.labelled) + chance.randrange(1, 6)
        while process.poll() is None and len(labels.labelled) < wanted:
            time.sleep(0.002)
        kills += process.poll() is None
        process.kill()
        process.wait()
    assert kills >= 2
    subprocess.run(command, check=True)
    counts = Counter(asked.read_text().split())
    assert len(counts) == 40
    # the one that was being asked at a kill had no answer yet, so that it is asked again
    assert sum(counts.values()) <= 40 + kills
    label(dataset, NoisyOracle(), "whole")
    np.testing.assert_array_equal(values(dataset, "killed"), values(dataset, "whole"))
    if place:  # and once more, of which nothing is asked at all
        subprocess.run([*command[:3], "again", *command[4:]], check=True)
        assert Counter(asked.read_text().split()) == counts
        np.testing.assert_array_equal(values(dataset, "again"), values(dataset, "whole"))


def test_a_file_that_a_kill_left_empty_is_an_empty_set(filled):
    for folder in ("labels", "preferences"):
        (filled.path / folder / "mine.sqlite").touch()
    assert not LabelSet(filled, "mine").labelled and LabelSet(filled, "mine").read(filled.entries()[0].identity) is None
    assert not [*PreferenceSet(filled, "mine")]
    assert label(filled, Oracle(), "mine") == len(LENGTHS)


def test_a_second_process_waits_its_turn(filled):
    class Intruding(Oracle):
        def label(self, episode):
            with pytest.raises(DatasetBusy, match="Another process is labelling"):
                label(filled, Oracle(), "mine")
            label(filled, Constant(), "another")
            return super().label(episode)

    assert label(filled, Intruding(), "mine") == len(LENGTHS)


def test_labels_of_two_models_are_never_mixed(filled):
    label(filled, NoisyOracle(0.5), "mine")
    assert label(filled, NoisyOracle(0.5), "mine") == 0
    for other in (NoisyOracle(0.6), NoisyOracle(0.5, seed=1), Oracle()):
        with pytest.raises(InvalidSetting, match="The label set 'mine' is of another model"):
            label(filled, other, "mine")


def test_episodes_that_come_later_are_labelled_then(filled, make_episode):
    assert label(filled, Oracle(), "mine") == 4
    with filled.writer() as writer:
        writer.add(make_episode(9, 2))
    assert label(filled, Oracle(), "mine") == 1


def test_nothing_is_written_through_a_link(filled, tmp_path):
    (filled.path / "labels" / "mine.lock").symlink_to(tmp_path / "elsewhere")
    (filled.path / "labels" / "mine.sqlite").symlink_to(tmp_path / "further")
    with pytest.raises(DatasetError, match="is a link"):
        label(filled, Oracle(), "mine")
    assert not (tmp_path / "elsewhere").exists() and not (tmp_path / "further").exists()


# ---------------------------------------------------------------------------------------------- the control
def test_shuffled_labels_are_the_same_numbers_in_other_places(filled):
    label(filled, NoisyOracle(0.5, missing=0.3), "mine")
    assert shuffle(filled, "mine", "control", seed=1) == len(LENGTHS)
    ours, control = values(filled, "mine"), values(filled, "control")
    assert sorted(ours) == sorted(control) and not np.array_equal(ours, control)
    for entry in filled.entries():
        one, other = (LabelSet(filled, name).read(entry.identity) for name in ("mine", "control"))
        np.testing.assert_array_equal(one.valid, other.valid)
    assert shuffle(filled, "mine", "control", seed=1) == len(LENGTHS), "as after a kill half way"
    np.testing.assert_array_equal(values(filled, "control"), control)
    with pytest.raises(InvalidSetting, match="is of another model"):
        shuffle(filled, "mine", "control", seed=2)
    with pytest.raises(UnknownName, match="mien"):
        shuffle(filled, "mien", "other")


# ---------------------------------------------------------------------------------------------- learning from them
def test_batches_are_those_of_episodes_with_these_rewards(filled, spec):
    label(filled, NoisyOracle(0.5), "mine")
    changed = [
        replace(episode, rewards=LabelSet(filled, "mine").read(entry.identity).values)
        for episode, entry in zip(filled, filled.entries(), strict=True)
    ]
    ours = labelled(filled, "mine").replay(seed=3, extras=[ReturnsToGo(0.9)])
    expected = RecordedReplay.of(spec, changed, seed=3, extras=[ReturnsToGo(0.9)])
    for n_step in (1, 3):
        one, other = ours.sample(64, n_step, 0.9), expected.sample(64, n_step, 0.9)
        for name in ("rewards", "masks", "discounts", "actions"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
        np.testing.assert_array_equal(one.extras["returns_to_go"], other.extras["returns_to_go"])
    for episode, wanted in zip(labelled(filled, "mine"), changed, strict=True):
        np.testing.assert_array_equal(episode.rewards, wanted.rewards)


@pytest.mark.parametrize("n_step", [1, 4])
def test_a_missing_label_enters_no_batch(filled, spec, n_step):
    """Rewards count up from 1 over all steps, so that any sum tells which steps are in it."""
    model, number = NoisyOracle(missing=0.4, seed=2), 1
    labels = LabelSet(filled, "mine")
    known: dict[float, float] = {}  # first number of a sum -> the sum
    for entry, episode in zip(filled.entries(), filled, strict=True):
        found = model.label(episode)
        numbers = np.arange(number, number + len(episode), dtype=np.float32)
        number += len(episode)
        labels.add(entry.identity, replace(found, values=np.where(found.valid, numbers, 1e6)))
        for step in np.flatnonzero(found.valid):
            ahead = found.valid[step : step + n_step]
            length = int(np.argmin(ahead)) if not ahead.all() else len(ahead)
            known[float(numbers[step])] = float(numbers[step : step + length].sum())
    replay = labelled(filled, "mine").replay(seed=0)
    assert 0 < len(replay) == len(known) < sum(LENGTHS)
    batch = replay.sample(500, n_step, 1.0)
    assert {*batch.rewards.tolist()} == {*known.values()}
    windows = replay.sample_windows(200, 3)
    assert windows.rewards[windows.valid].max() < 1e6


def test_episode_learners_refuse_missing_steps(filled):
    label(filled, NoisyOracle(missing=0.4, seed=2), "mine")
    with pytest.raises(InvalidSetting, match="steps without a label of the set 'mine'"):
        list(labelled(filled, "mine"))


def test_a_run_does_not_go_on_with_other_labels(filled):
    label(filled, NoisyOracle(0.1), "mine")
    label(filled, NoisyOracle(0.2), "other")
    state = labelled(filled, "mine").replay(seed=0).state_dict()
    labelled(filled, "mine").replay(seed=1).load_state_dict(state)
    for wrong in (labelled(filled, "other"), CachedEpisodes(filled, filled.entries())):
        with pytest.raises(InvalidSetting, match="learnt from other labels of its episodes than there are now"):
            wrong.replay(seed=0).load_state_dict(state)


def test_the_recorded_rewards_stay_as_they_are(filled):
    before = {path: path.read_bytes() for path in (filled.path / "episodes").iterdir()}
    label(filled, Constant(3.0), "mine")
    labelled(filled, "mine").replay(seed=0).sample(8)
    assert before == {path: path.read_bytes() for path in (filled.path / "episodes").iterdir()}


@dataclass(frozen=True)
class Server(RewardModel):
    """Answers nothing while it is down."""

    down: list[int] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    identity = ("server", "0")

    def label(self, episode):
        self.asked.append(len(episode))
        valid = np.full(len(episode), len(episode) not in self.down)
        return RewardLabels(np.where(valid, 1, 0).astype(np.float32), valid, *self.identity, "none")


def test_gaps_are_filled_by_the_same_command(filled):
    model = Server(down=[5, 9])
    assert label(filled, model, "mine") == 4
    assert LabelSet(filled, "mine").count(filled.entries()) == 4
    model.down.clear()
    assert label(filled, model, "mine") == 2 and sorted(model.asked[4:]) == [5, 9]
    assert LabelSet(filled, "mine").count(filled.entries()) == sum(LENGTHS)
    assert label(filled, model, "mine") == 0
