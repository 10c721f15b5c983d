"""Comparisons: drawn the same every time, asked once, durable, of several raters; and a reward that is fitted to them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from factories import fill
from robo_cli.rewards.fit_preference import FitPreference, fit_preference
from robo_datasets.curation import make_dataset
from robo_datasets.dataset import Dataset
from robo_datasets.preference_collection import collect_preferences, draw_questions
from robo_datasets.preferences import PreferenceSet, preference_sets
from robo_datasets.repair import repair
from robo_rl.errors import CheckpointCorrupt, DatasetError, EpisodeCorrupt, InvalidSetting, SpecMismatch, UnknownName
from robo_rl.rewards.preferences.preference_reward import (
    BradleyTerryConfig,
    PreferenceReward,
    RewardEnsemble,
    inputs_of,
    require_vectors,
    save,
)
from robo_rl.rewards.preferences.raters import OracleRater, Segment
from robo_rl.types import Preference

LENGTHS = (5, 1, 9, 0, 3)


@pytest.fixture
def filled(dataset, make_episode) -> Dataset:
    return fill(dataset, map(make_episode, range(len(LENGTHS)), LENGTHS))


class Counting(OracleRater):
    """Counts what it is asked, and may break down."""

    asked = 0
    breaks_after = 10**9

    def compare(self, first, second):
        if Counting.asked >= Counting.breaks_after:
            raise KeyboardInterrupt
        Counting.asked += 1
        return super().compare(first, second)


@pytest.fixture(autouse=True)
def fresh_count():
    Counting.asked, Counting.breaks_after = 0, 10**9


# ---------------------------------------------------------------------------------------------- questions
def test_questions_extend_a_prefix_and_stay_within_episodes(filled):
    entries = filled.entries()
    few, many = draw_questions(entries, 20, 2, seed=3), draw_questions(entries, 50, 2, seed=3)
    assert many[:20] == few and draw_questions(entries, 20, 2, seed=4) != few
    for question in many:
        for entry, start in question:
            assert 0 <= start <= entry.steps - 2
        assert question.first != question.second
    places = {(entry.identity, start) for question in draw_questions(entries, 500, 2, seed=0) for entry, start in question}
    assert len(places) == sum(max(0, steps - 1) for steps in LENGTHS), "every segment is drawn some time"


def test_segments_that_nothing_holds_are_refused(filled):
    with pytest.raises(InvalidSetting, match="not two segments to compare"):
        draw_questions(filled.entries(), 1, 9, seed=0)


# ---------------------------------------------------------------------------------------------- answers
@pytest.mark.slow
def test_after_a_break_down_only_what_has_no_answer_is_asked(filled):
    asked = draw_questions(filled.entries(), 30, 1, seed=0)
    Counting.breaks_after = 7
    with pytest.raises(KeyboardInterrupt):
        collect_preferences(filled, Counting(), asked, 1, "mine")
    assert len([*PreferenceSet(filled, "mine")]) == 7
    Counting.breaks_after = 10**9
    different = len(dict.fromkeys(asked))
    assert collect_preferences(filled, Counting(), asked, 1, "mine") == different - 7
    assert Counting.asked == different
    collect_preferences(filled, OracleRater(), asked, 1, "whole")
    assert [*PreferenceSet(filled, "mine")] == [*PreferenceSet(filled, "whole")]


class WhileItLooks(OracleRater):
    """Something becomes of the second clip before it answers."""

    deed = staticmethod(lambda segment: None)

    def compare(self, first, second):
        WhileItLooks.deed(second)
        return super().compare(first, second)


@pytest.mark.parametrize("how", ["deleted", "changed"])
def test_answer_to_changed_or_missing_clip_is_refused(filled, how, monkeypatch):
    files = {entry.seed: filled.path / "episodes" / entry.file for entry in filled.entries()}
    answered = []

    def deed(segment):
        answered.append(segment)
        if len(answered) == 3:
            file = files[segment.episode.seed]
            file.unlink() if how == "deleted" else file.write_bytes(file.read_bytes()[:-1] + b"x")

    monkeypatch.setattr(WhileItLooks, "deed", staticmethod(deed))
    with pytest.raises(EpisodeCorrupt, match=r"gone, or has changed, since it was shown; it is not kept(.|\n)*data repair"):
        collect_preferences(filled, WhileItLooks(), draw_questions(filled.entries(), 20, 1, seed=0), 1, "mine")
    assert len(answered) == 3 and len([*PreferenceSet(filled, "mine")]) == 2


@pytest.mark.slow
def test_fit_refuses_comparison_of_missing_episode(filled, tmp_path):
    collect_preferences(filled, OracleRater(), draw_questions(filled.entries(), 40, 1, seed=0), 1, "mine")
    (filled.path / "episodes" / filled.entries()[0].file).unlink()
    with filled.writer() as writer:
        repair(writer)
    with pytest.raises(InvalidSetting, match="of an episode that the dataset does not have"):
        fit_preference(FitPreference(filled.path, "mine", tmp_path / "reward"))


def test_a_file_that_was_only_touched_is_the_clip_that_was_shown(filled, monkeypatch):
    file = filled.path / "episodes" / filled.entries()[0].file
    monkeypatch.setattr(WhileItLooks, "deed", staticmethod(lambda segment: file.touch()))
    assert collect_preferences(filled, WhileItLooks(), draw_questions(filled.entries(), 5, 1, seed=0), 1, "mine") == 5


def test_raters_share_a_set_and_each_is_asked_itself(filled):
    asked = draw_questions(filled.entries(), 10, 1, seed=0)
    for rater in (OracleRater(), OracleRater(mistakes=1.0)):
        collect_preferences(filled, rater, asked, 1, "mine")
    found = [*PreferenceSet(filled, "mine")]
    right, wrong = found[: len(found) // 2], found[len(found) // 2 :]
    assert len({each.rater for each in found}) == 2
    for one, other in zip(right, wrong, strict=True):
        assert (one.first, one.second) == (other.first, other.second) and one.label == 1 - other.label


def test_oracle_rater_errs_at_the_configured_rate(make_episode):
    rewards = np.array([0, 1, 1, 5], np.float32)
    episode = make_episode(0, 4, rewards=rewards, reward_terms={})
    at = [Segment(episode, step, step + 1) for step in range(4)]
    assert [OracleRater().compare(at[0], at[1]), OracleRater().compare(at[3], at[1])] == [1, 0]
    assert OracleRater().compare(at[1], at[2]) == 0.5 and OracleRater(margin=4.0).compare(at[3], at[1]) == 0.5
    assert OracleRater().compare(Segment(episode, 0, 2), Segment(episode, 2, 4)) == 1
    gap = make_episode(0, 4, rewards=np.array([0, np.nan, 1, 5], np.float32), reward_terms={})
    assert OracleRater().compare(Segment(gap, 0, 2), at[3]) == "skip"
    many = make_episode(1, 400, rewards=np.arange(400, dtype=np.float32), reward_terms={})
    answers = [OracleRater(0.2).compare(Segment(many, 0, 1), Segment(many, step, step + 1)) for step in range(1, 400)]
    assert 0.12 < 1 - np.mean(answers) < 0.28
    assert answers == [OracleRater(0.2).compare(Segment(many, 0, 1), Segment(many, step, step + 1)) for step in range(1, 400)]


def test_every_answer_comes_back_and_impossible_ones_are_refused(filled):
    answers = [
        Preference(("a", 0, 1), ("b", step, step + 1), label, "me", "human") for step, label in enumerate((0, 0.5, 1, "skip"))
    ]
    stored = PreferenceSet(filled, "mine")
    stored.add(answers)
    stored.add([replace(answers[0], label=1)])  # the first answer stays
    assert [*PreferenceSet.existing(filled, "mine")] == answers
    assert preference_sets(filled) == ["mine"]
    for label in (2, -1, "maybe"):
        with pytest.raises(InvalidSetting, match="impossible answer"):
            stored.add([replace(answers[0], label=label)])
    with pytest.raises(UnknownName, match="mien"):
        PreferenceSet.existing(filled, "mien")
    with pytest.raises(InvalidSetting, match="impossible name"):
        PreferenceSet(filled, "../mine")


def test_copied_episodes_keep_their_comparisons(filled, tmp_path):
    collect_preferences(filled, OracleRater(), draw_questions(filled.entries(), 40, 1, seed=0), 1, "mine")
    kept = filled.entries()[:3]
    make_dataset(tmp_path / "some", {}, {filled.path: kept})
    identities = {entry.identity for entry in kept}
    wanted = [each for each in PreferenceSet(filled, "mine") if {each.first[0], each.second[0]} <= identities]
    assert wanted and [*PreferenceSet(Dataset(tmp_path / "some"), "mine")] == wanted


def test_nothing_is_written_through_a_link(filled, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (filled.path / "preferences").rmdir()
    (filled.path / "preferences").symlink_to(elsewhere)
    with pytest.raises(DatasetError, match="is a link"):
        collect_preferences(filled, OracleRater(), draw_questions(filled.entries(), 3, 1, seed=0), 1, "mine")
    assert not [*elsewhere.iterdir()]


# ---------------------------------------------------------------------------------------------- the fitted reward
def test_a_saved_reward_labels_as_the_fitted_one_does(tmp_path, spec, make_episode):
    config = BradleyTerryConfig(hidden=(8,), members=2)
    ensemble = RewardEnsemble(5, config)
    episode = make_episode(0, 6)
    ensemble.calibrate(inputs_of(spec, episode))
    save(tmp_path / "reward", ensemble, config, spec, {"of": "test"})
    labels = PreferenceReward(str(tmp_path / "reward")).label(episode)
    expected, doubt = ensemble.rewards(inputs_of(spec, episode))
    np.testing.assert_array_equal(labels.values, expected)
    np.testing.assert_allclose(labels.confidence, 1 / (1 + doubt), rtol=1e-6)
    with pytest.raises(InvalidSetting, match="is not empty"):
        save(tmp_path / "reward", ensemble, config, spec, {})
    with pytest.raises(SpecMismatch, match="Reward and episode"):
        PreferenceReward(str(tmp_path / "reward")).label(replace(episode, spec_fingerprint="other"))


def test_a_step_is_its_observation_and_its_action(spec, make_episode):
    episode = make_episode(0, 2)
    inputs = inputs_of(spec, episode)
    np.testing.assert_array_equal(inputs[1], [*episode.observations["joint_position"][1], *episode.actions[1]])
    with pytest.raises(InvalidSetting, match="lacks one of them"):
        require_vectors(replace(spec, observation=replace(spec.observation, arrays=spec.observation.arrays[1:])))


def test_step_value_is_unknown_without_observation(tmp_path, spec, make_episode):
    config = BradleyTerryConfig(hidden=(8,), members=2)
    save(tmp_path / "reward", RewardEnsemble(5, config), config, spec, {})
    episode = make_episode(0, 4)
    positions = episode.observations["joint_position"].copy()
    positions[2, 0] = np.nan
    broken = replace(episode, observations={**episode.observations, "joint_position": positions})
    labels = PreferenceReward(str(tmp_path / "reward")).label(broken)
    assert labels.valid.tolist() == [True, True, False, True] and np.isfinite(labels.values).all()


def test_a_reward_without_its_folder_says_so(tmp_path):
    with pytest.raises(InvalidSetting, match="Which fitted reward"):
        PreferenceReward()
    with pytest.raises(CheckpointCorrupt, match="There is no fitted reward"):
        _ = PreferenceReward(str(Path(tmp_path) / "nothing")).identity


class Unreachable:
    """A model behind a server that is down every other time."""

    kind, identity, together = "model", ("far", "0"), 2

    def compare_all(self, pairs):
        return [0.0, None][: len(pairs)]


def test_unanswered_stays_open_and_lengths_are_not_mixed(filled):
    asked = draw_questions(filled.entries(), 6, 1, 0)
    wanted = [*dict.fromkeys(asked)]
    done = collect_preferences(filled, Unreachable(), asked, 1, "mine")
    assert 0 < done == len([*PreferenceSet(filled, "mine")]) < len(wanted)
    assert collect_preferences(filled, Unreachable(), asked, 1, "mine") > 0
    with pytest.raises(InvalidSetting, match=r"(?s)'mine' compares segments of another length.*2 steps.*1 steps"):
        collect_preferences(filled, OracleRater(), draw_questions(filled.entries(), 2, 2, 0), 2, "mine")
