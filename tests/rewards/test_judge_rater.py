"""A judge compares in two stages and in both orders; what it cannot tell is no answer, and its bias is reported."""

import json
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from factories import axes, make_dataset, make_episode, make_spec, picture_spec
from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset
from robo_datasets.preference_collection import agreement
from robo_datasets.preferences import PreferenceSet
from robo_rl.errors import InvalidSetting, JudgeUnavailable, RoboRLError
from robo_rl.rewards.chat import models as judging
from robo_rl.rewards.chat.models import Terms
from robo_rl.rewards.chat.question import Answer, Question
from robo_rl.rewards.judges.rater import JudgeRater
from robo_rl.rewards.preferences.raters import Segment
from robo_rl.types import Episode, Preference

CAMERA = picture_spec()
SPEC = make_spec("test/Cell-v0", CAMERA, action=axes("x"))
SEEN: list[Question] = []


@dataclass(frozen=True)
class Scripted:
    """Prefers the brighter picture; or what it is told to."""

    says: str = ""
    mute: bool = False
    """No answer to the first stage where the first picture is the brighter one."""
    down: bool = False
    """Nothing answers at the second stage."""
    terms: Terms = field(default_factory=Terms)

    @property
    def identity(self):
        return "scripted", self.says + str(self.mute)

    def ask(self, questions):
        for number, question in enumerate(questions):
            SEEN.append(question)
            pictures = [int(part[0, 0, 0]) for part in question.parts if not isinstance(part, str)]
            if pictures:
                is_mute = self.mute and pictures[0] > pictures[1]
                yield number, Answer("refused" if is_mute else "ok", text=f"brightness {pictures[0]} and {pictures[1]}")
                continue
            one, other = (int(word) for word in question.parts[0].split("brightness ")[1].split("\n")[0].split(" and "))
            if self.down:
                yield number, Answer("unreachable")
                continue
            choice = self.says or ("image 1" if one > other else "image 2")
            yield number, Answer("ok", text=json.dumps({"better": choice}))


@pytest.fixture(autouse=True)
def scripted(monkeypatch):
    SEEN.clear()
    monkeypatch.setattr(judging, "load", lambda group, name: Scripted)


def episode(seed: int = 0, instruction: str | None = "pick", steps: int = 20) -> Episode:
    random = np.random.default_rng(seed)
    pictures = random.integers(0, 256, (steps + 1, 4, 4, 3), np.uint8)
    pictures[:, 0, 0, 0] = random.permutation(256)[: steps + 1]
    rewards, facts = pictures[1:, 0, 0, 0].astype(np.float32), {"spec_fingerprint": SPEC.fingerprint, "seed": seed}
    return make_episode({"camera_front": pictures}, rewards=rewards, instruction=instruction, **facts)


def pairs(count: int = 10):
    one = episode()
    return [(Segment(one, step, step + 1), Segment(one, step + 5, step + 6)) for step in range(count)]


def rater(both_orders=True, says="", mute=False) -> JudgeRater:
    return JudgeRater(judge_settings={"says": says, "mute": mute}, both_orders=both_orders)


TRUTH = [float(first.episode.rewards[second.start] > first.episode.rewards[first.start]) for first, second in pairs()]


@pytest.mark.parametrize("both_orders", [True, False])
def test_the_better_picture_wins_in_whatever_order_it_is_shown(both_orders):
    asking = rater(both_orders)
    assert asking.compare_all(pairs()) == TRUTH == [rater(both_orders).compare(*pair) for pair in pairs()]
    looks = [question for question in SEEN if len(question.parts) > 1]
    assert len(looks) == len(SEEN) / 2 == (20 if both_orders else 10), "two stages; the second one sees words alone"
    orders = [int(question.parts[2][0, 0, 0]) < int(question.parts[4][0, 0, 0]) for question in looks]
    assert {*orders} == {True, False}
    assert "image 1 was better in" in asking.report()
    assert ("100.0% of 10 pairs had one answer" in asking.report()) == both_orders


def test_order_biased_judge_gives_ties_and_is_detected():
    biased = rater(says="image 1")
    assert biased.compare_all(pairs()) == [0.5] * 10
    assert "image 1 was better in 100.0% of 20 answers (without bias 50%); 0.0% of 10 pairs had one answer" in biased.report()
    once = rater(both_orders=False, says="image 1").compare_all(pairs())
    assert {*once} == {0.0, 1.0}, "which is first follows from the pictures"


def test_what_is_not_decided_is_no_answer():
    assert rater(says="neither").compare_all(pairs()) == ["skip"] * 10
    with pytest.raises(JudgeUnavailable, match="20 answers in a row were of no use: 20 garbage"):
        rater(says="both").compare_all(pairs())
    assert rater(says="both").compare_all(pairs()) == ["skip"] * 10, "kept, and not asked again"
    assert rater(mute=True).compare_all(pairs()) == ["skip"] * 10, "half an answer is none"
    one = episode()
    SEEN.clear()
    same = Segment(one, 3, 4)
    assert rater().compare(same, same) == "skip" and not SEEN


def test_different_tasks_are_not_compared():
    first, second = (Segment(episode(seed, task), 0, 1) for seed, task in enumerate(("pick", "place")))
    with pytest.raises(InvalidSetting, match="Two episodes with different tasks"):
        rater().compare(first, second)
    unsaid = Segment(episode(2, None), 0, 1)
    with pytest.raises(InvalidSetting, match="does not say it"):
        rater().compare(unsaid, replace(unsaid, start=1, stop=2))
    named = JudgeRater(instruction="go", judge_settings={})
    assert named.compare(first, second) in (0.0, 1.0) and "<task>go</task>" in SEEN[-1].parts[0]


def test_other_words_orders_or_judges_are_another_rater():
    found = [rater(), rater(both_orders=False), rater(says="neither"), JudgeRater(instruction="x"), JudgeRater(camera="wrist")]
    assert len({each.identity for each in found}) == 5 and rater().identity == replace(rater(), together=3).identity


# ---------------------------------------------------------------------------------------------- a dataset
@pytest.fixture
def dataset(tmp_path) -> Dataset:
    return make_dataset(tmp_path / "data", SPEC, map(episode, range(3)))


def test_dataset_pairs_are_checked_against_recorded_rewards(dataset, capsys):
    command = ["prefer", str(dataset.path), "--name", "mine", "--rater", "judge", "--pairs", "40"]
    assert dispatch(command) == 0
    told = capsys.readouterr().out
    assert "100.0% of 40 decided pairs agree with the recorded rewards" in told and "40 pairs compared now" in told
    assert {each.kind for each in PreferenceSet(dataset, "mine")} == {"model"}
    asked = len(SEEN)
    assert dispatch(command) == 0 and len(SEEN) == asked


@pytest.mark.parametrize(("says", "message"), [("both", "in a row were of no use"), ("neither", "0 of 40 pairs are decided")])
def test_a_judge_that_decides_nothing_ends_with_an_error(dataset, capsys, says, message):
    command = ["prefer", str(dataset.path), "--name", "mine", "--rater", "judge", "--pairs", "40"]
    with pytest.raises(RoboRLError, match=message):
        dispatch([*command, "--rater.settings.judge_settings", json.dumps({"says": says})])


def test_agreement_counts_what_the_recorded_rewards_tell_apart(dataset):
    entry = dataset.entries()[0]
    rewards = dataset.read(entry).rewards
    order = np.argsort(rewards)
    low, high = ((entry.identity, int(step), int(step) + 1) for step in (order[0], order[-1]))
    answers = [(low, high, 1), (low, high, 0), (high, low, 0), (low, high, 0.5), (low, high, "skip"), (low, low, 1)]
    answers += [(low, ("gone", 0, 1), 1)]
    assert agreement(dataset, [Preference(*each, "me", "human") for each in answers]) == (2, 3)


def test_a_judge_that_is_not_reached_leaves_the_question_open():
    away = JudgeRater(judge_settings={"down": True, "terms": {"unanswered": 100}})
    assert away.compare_all(pairs(3)) == [None] * 3
    assert away.compare(*pairs(1)[0]) == "skip"
