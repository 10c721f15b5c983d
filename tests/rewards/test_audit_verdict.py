"""The verdict on rewards whose quality is known: on states, on labels, and on pictures whose brightness is the progress."""

import json
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from factories import make_episode
from robo_rl.errors import SpecMismatch, UnknownName
from robo_rl.rewards.audit.evidence import (
    controls_of,
    gain,
    gather,
    level,
    progress_of,
    reads_pictures,
    scored_by,
    stored_scores,
    wrong_instruction,
)
from robo_rl.rewards.audit.page import write_audit
from robo_rl.rewards.audit.result import concluded
from robo_rl.rewards.identity import settings_hash
from robo_rl.rewards.images.picture_reward import PictureReward
from robo_rl.rewards.synthetic import Constant, NoisyOracle, Oracle
from robo_rl.types import Episode, Labels, RewardLabels

STEPS = 20


def episode(seed: int) -> Episode:
    """Even seeds succeed: a red light gets brighter until it is full. The green light wanders in all episodes."""
    random = np.random.default_rng(seed)
    success = seed % 2 == 0
    steps = STEPS - seed % 7 if success else STEPS
    goal = 1.0 if success else 0.4
    red = np.clip(np.linspace(0.1, goal, steps + 1) + random.normal(0, 0.04, steps + 1), 0, goal)
    green = np.clip(0.4 + 0.3 * np.sin(np.arange(steps + 1) + random.uniform(0, 6)), 0, 1)
    pictures = np.zeros((steps + 1, 4, 4, 3), np.uint8)
    pictures[..., 0], pictures[..., 1] = (np.rint(200 * each)[:, None, None] for each in (red, green))
    return make_episode(
        {"camera_front": pictures, "brightness": red[:, None].astype(np.float32)},
        actions=random.uniform(-1, 1, (steps, 1)).astype(np.float32),
        rewards=(np.diff(red) + (np.arange(1, steps + 1) == steps) * success).astype(np.float32),
        terminated=success,
        success=success,
        seed=seed,
        instruction="make the red light bright",
    )


EPISODES = [episode(seed) for seed in range(24)]


@dataclass(frozen=True, kw_only=True)
class Light(PictureReward):
    """Brightness of the light that the words name."""

    tokens: ClassVar[int] = 500

    @property
    def identity(self):
        return type(self).__name__, settings_hash(self)

    def score(self, pictures, firsts, instruction):
        return self.sure(pictures[..., int("green" in (instruction or ""))].mean((1, 2)) / 200)

    def sure(self, values):
        return Labels(np.asarray(values, np.float32), np.ones(len(values), np.bool_))


class Deaf(Light):
    def score(self, pictures, firsts, instruction):
        return super().score(pictures, firsts, "red")


class TurnedRound(Light):
    def score(self, pictures, firsts, instruction):
        return self.sure(1 - super().score(pictures, firsts, instruction).values)


class Blind(Light):
    def score(self, pictures, firsts, instruction):
        return self.sure(np.full(len(pictures), 0.5))


class Clock(Light):
    """Follows the place of a picture in the clip, and a little of what it shows."""

    def score(self, pictures, firsts, instruction):
        return self.sure(np.arange(len(pictures)) + 0.1 * super().score(pictures, firsts, instruction).values)


class Tired(Light):
    """Answers a third of the time."""

    def score(self, pictures, firsts, instruction):
        return replace(super().score(pictures, firsts, instruction), valid=pictures[:, 0, 0, 1] > 110)


class Hopeful(Light):
    """Thinks that things get better where nothing moves."""

    def score(self, pictures, firsts, instruction):
        still = np.concatenate(([False], (pictures[1:] == pictures[:-1]).all((1, 2, 3))))
        return self.sure(super().score(pictures, firsts, instruction).values + 0.1 * np.cumsum(still))


class Moody(Light):
    """Never says the same twice."""

    asked: ClassVar[list[int]] = []

    def score(self, pictures, firsts, instruction):
        self.asked.append(0)
        noise = np.random.default_rng(len(self.asked)).normal(0, 0.1, len(pictures))
        return self.sure(super().score(pictures, firsts, instruction).values + noise)


def test_what_a_reward_was_fitted_to_is_no_test_of_it():
    evidence = gather(EPISODES, scored_by(Light(), level), progress_of("time-to-success"))
    plain = concluded(evidence, reads_pictures=False, reads_words=False, was_asked=True).verdict
    evidence.fitted_to = 24
    known = concluded(evidence, reads_pictures=False, reads_words=False, was_asked=True).verdict
    assert known.headline == plain.headline and not any("fitted" in reason for reason in plain.reasons)
    assert known.reasons[-1].startswith("It was fitted to 24 of these 24 episodes")


def audited(model, *, wrong="make the green light bright", shape=level, progress="time-to-success", episodes=EPISODES):
    subject, sees = scored_by(model, shape), reads_pictures(model, episodes[0])
    controls = [*controls_of(subject, sees=sees), *([wrong_instruction(model, wrong, shape)] if wrong and sees else [])]
    evidence = gather(episodes, subject, progress_of(progress), controls)
    words = sees and model.reads_words
    return concluded(evidence, reads_pictures=sees, reads_words=words, was_asked=True, tokens=getattr(model, "tokens", None))


def told(audit) -> str:
    return " ".join(audit.verdict.reasons)


# ---------------------------------------------------------------------------------------------- doubles
def test_the_oracle_is_trusted_though_it_is_said_that_it_peeks():
    for shape in (level, gain):
        audit = audited(Oracle(), shape=shape)
        assert (audit.verdict.color, audit.verdict.headline) == ("good", "It can be trusted on data like these.")
        assert "It reads the recorded rewards: " in told(audit)
        assert (
            audit.agreement["reward, pairs"].interval.estimate
            == audit.agreement["success by last score"].interval.estimate
            == 1
        )
        assert [each.name for each in audit.controls] == ["as recorded", "recorded rewards hidden"]
    assert audit.agreement["order in time"].interval.estimate > 0.9  # as the sum so far


def test_a_constant_is_refused():
    audit = audited(Constant(1.0))
    assert audit.verdict.headline == "Do not train on it." and "It says the same of everything." in told(audit)
    assert audit.agreement["reward, pairs"].interval.estimate == 0.5
    # a reward of 1 at every step is paid to whoever takes long, and says nothing otherwise
    returns = audit.agreement["return, episodes"]
    assert returns.interval == audit.agreement["length and return, episodes"].interval and returns.high < 0


def test_a_noisy_oracle_is_used_with_care_or_not_at_all():
    little, much = (audited(NoisyOracle(deviation)).verdict for deviation in (0.05, 30.0))
    assert little.color == "middling" and much.color == "bad"


def labels(values) -> RewardLabels:
    return RewardLabels(values.astype(np.float32), np.ones(len(values), np.bool_), "m", "w", "p")


@pytest.mark.parametrize("seed", range(3))
def test_labels_dealt_out_by_chance_are_refused(seed):
    dealt = np.random.default_rng(seed).permutation(np.concatenate([each.rewards for each in EPISODES]))
    parts = np.split(dealt, np.cumsum([len(each) for each in EPISODES])[:-1])
    audit = audited_labels([labels(part) for part in parts])
    assert audit.verdict.color == "bad" and "Coins do as well." in told(audit)
    assert audit.seconds_per_1000 is None and [each.name for each in audit.controls] == ["as recorded"]


def audited_labels(sets):
    evidence = gather([], stored_scores(None), progress_of("time-to-success"))
    for each, found in zip(EPISODES, sets, strict=True):
        evidence.episodes += gather([each], stored_scores(found), progress_of("time-to-success")).episodes
    return concluded(evidence, reads_pictures=False, reads_words=False, was_asked=False)


def test_inverted_labels_are_refused_and_missing_counted():
    turned = audited_labels([labels(-each.rewards) for each in EPISODES])
    assert turned.verdict.color == "bad" and "It is turned round." in told(turned)
    half = audited_labels([labels(each.rewards) if each.success else None for each in EPISODES])
    assert "Not by chance: 0% in successes, 100% in failures." in told(half) and half.verdict.color != "good"
    nothing = audited_labels([None for _ in EPISODES])
    assert nothing.verdict.color == "bad" and "It answered nothing." in told(nothing)


def test_few_episodes_are_too_few():
    verdict = audited(Oracle(), episodes=EPISODES[:9]).verdict
    assert (verdict.headline, verdict.color) == ("Cannot tell: too few episodes.", "")
    assert verdict.reasons == ["There are 9 episodes only."]


def test_success_detection_is_unknown_without_failures():
    audit = audited(Light(), episodes=[episode(2 * seed) for seed in range(12)])
    assert not audit.agreement["success by last score"].is_measured and audit.roc == []


# ---------------------------------------------------------------------------------------------- pictures
def test_a_reward_that_sees_and_reads_is_trusted():
    audit = audited(Light())
    assert audit.verdict.color == "good", told(audit)
    figures = {each.name: each for each in audit.controls}
    assert figures["as recorded"].order.low > 0.8 and figures["reversed clips"].order.high < -0.8
    assert not figures["blank pictures"].order.is_measured and abs(figures["time-shuffled clips"].order.interval.estimate) < 0.3
    assert audit.comparisons["gain under the wrong text"].high < 0.3
    assert audit.comparisons["gain while held still"].interval.estimate == 0
    assert audit.calibration_error is not None and sum(each.n for each in audit.calibration) == 24
    assert "It reads the recorded rewards" not in told(audit)
    asked_steps = sum(map(len, EPISODES[1:])) + 6 * sum(len(each) for each in EPISODES[:20:2])
    assert audit.tokens_per_1000 == pytest.approx(500_000 / asked_steps) and audit.seconds_per_1000 > 0


@pytest.mark.parametrize(
    ("model", "color", "reason"),
    [
        (Deaf(), "bad", "wrong-text clips are rewarded about as much as right ones"),
        (TurnedRound(), "bad", "It is turned round."),
        (Blind(), "bad", "It says the same of black pictures: it does not look at them."),
        (Clock(), "bad", "Clips that run backwards have a value-order correlation of 1.00"),
        (Clock(), "bad", "it rewards that time passes"),
        (Tired(), "bad", "labels are missing"),
        (Hopeful(), "bad", "While nothing moves the score rises by"),
        (Moody(), "middling", "Asked again, labels differ by"),
        (Light(instruction="make the green light bright"), "bad", "Coins do as well."),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Light) else "",
)
def test_a_reward_with_a_fault_is_caught_by_its_control(model, color, reason):
    audit = audited(model)
    assert audit.verdict.color == color and reason in told(audit), told(audit)


class Choosy(Light):
    """Refuses what it does not know."""

    def score(self, pictures, firsts, instruction):
        if not pictures.any():
            raise SpecMismatch("Pictures and model", ["scene"])
        if "blue" in instruction:
            raise UnknownName("word", "blue", ["red", "green"])
        return super().score(pictures, firsts, instruction)


def test_reward_may_refuse_black_pictures_and_reports_words():
    audit = audited(Choosy())
    assert audit.verdict.color == "good" and "It has no labels for black pictures (10 clips)." in told(audit)
    with pytest.raises(UnknownName, match="'blue'"):
        audited(Choosy(), wrong="make the blue light bright")


@pytest.mark.slow
def test_words_that_were_not_tried_and_instructions_of_its_own():
    audit = audited(Light(), wrong="")
    assert audit.verdict.color == "middling" and "name another instruction with --wrong-text" in told(audit)
    assert audited(Light(instruction="make the red light bright")).verdict.color == "good"


class Drifting(Light):
    """Rises by a hair where it sees nothing, as a network may."""

    def score(self, pictures, firsts, instruction):
        seen = super().score(pictures, firsts, instruction).values
        return self.sure(seen + 1e-6 * np.arange(len(pictures)) * (seen == 0))


@pytest.mark.slow
def test_a_rise_by_next_to_nothing_is_none():
    audit = audited(Drifting())
    assert "but rise by next to nothing" in " ".join(each.text for each in audit.verdict.findings)
    assert audit.verdict.color == audited(Light()).verdict.color == "good"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["delta", "potential"])
def test_level_behind_differences_is_compared_with_progress(mode):
    audit = audited(Light(mode=mode), progress="near:brightness")
    whole = audited(Light())
    assert audit.agreement["order in time"] == whole.agreement["order in time"]
    assert audit.comparisons["paid for waiting"].high <= 0 < audit.comparisons["paid for going on"].low
    assert "Loitering pays" not in told(audit) and "Loitering pays" in told(whole)
    assert audit.agreement["progress, pairs"].high < 0.1  # near is small, and bright is large


def test_the_recorded_episodes_stay_as_they_are():
    before = [{name: array.copy() for name, array in each.observations.items()} for each in EPISODES]
    audited(Light())
    for kept, each in zip(before, EPISODES, strict=True):
        assert all(np.array_equal(kept[name], array) for name, array in each.observations.items())


# ---------------------------------------------------------------------------------------------- page
def test_the_page_and_the_figures_say_the_same(tmp_path):
    facts = {"reward": "light <script>", "dataset": "data", "content": "0" * 64, "episodes": 24, "steps": 400, "success": 0.5}
    facts |= {"progress": "time to success", "shape": "level", "settings": [], "wrong text": "", "seed": 0}
    audit = audited(Clock())
    page = write_audit(audit, facts, tmp_path / "audit.html").read_text()
    assert "light &lt;script&gt;" in page and "<script>" not in page and "http" not in page.replace("http://www.w3.org", "")
    assert "Do not train on it." in page and page.count("<svg") == 4 and "nan" not in page
    assert all(each.rule in page.replace("&#39;", "'") for each in audit.verdict.findings)
    figures = json.loads(json.dumps(audit.to_json(), allow_nan=False))
    assert figures["schema"] == "robo_rl.audit/1" and figures["verdict"]["headline"] == audit.verdict.headline
    assert figures["controls"]["reversed clips"]["order"]["estimate"] == pytest.approx(1)
    nothing = audited_labels([None for _ in EPISODES])
    assert "not measured" in write_audit(nothing, facts, tmp_path / "none.html").read_text()
    json.dumps(nothing.to_json(), allow_nan=False)
