"""Every reward model keeps every rule, and each rule can fail."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import numpy as np
import pytest
import torch

from factories import axes, make_episode, make_spec, picture_spec
from robo_papers.exprd.reward import DesignedReward
from robo_papers.gr_rl.critic import ProgressConfig, Track
from robo_papers.gr_rl.critic import fit as fit_progress
from robo_papers.gr_rl.reward import ProgressReward
from robo_papers.gr_rl.reward import save as save_progress
from robo_papers.lare.reward import (
    EpisodicReward,
    LatentReward,
    RandomizedReturnDecomposition,
    ReturnDecomposition,
)
from robo_papers.mpo.rubrics import RubricReward
from robo_papers.oni.annotator import Label
from robo_papers.oni.arrivals import Arrival, RecordedAnnotator
from robo_papers.oni.questions import AnnotationRule
from robo_papers.oni.reward import ONIClassification, ONIRanking, ONIRetrieval
from robo_papers.spo.reward import SelfPlayReward
from robo_papers.subpo.reward import CoverageReward
from robo_papers.vlm_rl.reward import ContrastingLanguageGoals, DrivingGoals
from robo_papers.vpl.model import UsersConfig, fit_users
from robo_papers.vpl.reward import UserReward
from robo_papers.vpl.reward import save as save_users
from robo_papers.words_as_beacons.reward import BONUS, SubgoalReward
from robo_rl.code_names import name_of_object
from robo_rl.entry_points import known
from robo_rl.errors import ConformanceFailure, InvalidSetting
from robo_rl.evaluation.statistics import Interval
from robo_rl.rewards.conformance.online import ONLINE_CHECKS, check_online_reward, environments_are_apart
from robo_rl.rewards.conformance.rewards import REWARD_CHECKS, check_reward
from robo_rl.rewards.embedded.model import EmbeddedModel, Origin
from robo_rl.rewards.embedded.rewards import EmbeddedCompletion, EmbeddedProgress, EmbeddedShuffled
from robo_rl.rewards.images.picture_reward import PictureReward
from robo_rl.rewards.images.picture_scoring import Completion, PictureScoring
from robo_rl.rewards.images.vlm_rm import VLMRM
from robo_rl.rewards.judges.rewards import JudgeCompletion, JudgeContrast, JudgeOrder, JudgeOrdinal, JudgeProgress, JudgeTri
from robo_rl.rewards.preferences.preference_reward import BradleyTerryConfig, Pairs, PreferenceReward, RewardEnsemble, save
from robo_rl.rewards.programs.function import FunctionReward
from robo_rl.rewards.programs.output_checks import Limits
from robo_rl.rewards.programs.reward import ProgramReward
from robo_rl.rewards.shaping.pipeline import RewardPipeline
from robo_rl.rewards.step_rewards.reward import StepReward
from robo_rl.rewards.step_rewards.steps import StepScores
from robo_rl.rewards.success.classifier import ClassifierConfig, SuccessNetwork
from robo_rl.rewards.success.classifier_reward import ClassifierReward
from robo_rl.rewards.success.classifier_reward import save as save_classifier
from robo_rl.rewards.success.examples import Measured
from robo_rl.rewards.synthetic import Constant, NoisyOracle, Oracle
from robo_rl.spec.environment import ArraySpec
from robo_rl.types import Episode, Labels

SPEC = make_spec("arm", ArraySpec("position", (3,)), action=axes("a", "b"))


def fitted(folder) -> PreferenceReward:
    config = BradleyTerryConfig(hidden=(8,))
    save(folder / "fitted", RewardEnsemble(5, config), config, SPEC, {})
    return PreferenceReward(str(folder / "fitted"))


def progress(folder) -> ProgressReward:
    """By a critic that has learned nothing; some steps are kept."""
    config = ProgressConfig(hidden=(8,), updates=1)
    critic = fit_progress([[Track(np.zeros((3, 3), np.float32), True)]] * 3, config)
    save_progress(folder / "progress", critic, config, SPEC, {})
    return ProgressReward(str(folder / "progress"), window=2, lost=1.2)


def of_a_user(folder) -> UserReward:
    """Of users whose answers are made up."""
    config, random = UsersConfig(hidden=(8,), updates=1, compared=4), np.random.default_rng(0)
    first, second = random.normal(size=(2, 6, 2, 5)).astype(np.float32)
    answers = {"anna": Pairs(first, second, np.arange(6, dtype=np.float32) % 2)}
    found = fit_users(answers, random.normal(size=(20, 5)).astype(np.float32), config)
    save_users(folder / "users", found, answers, config, SPEC, {})
    return UserReward(str(folder / "users"), "anna")


def judged(kind, **settings):
    """A reward of a judge that guesses and often refuses."""
    return lambda folder: kind(
        judge="chance", judge_settings={"missing": 0.3, "terms": {"cache": str(folder / "answers")}}, **settings
    )


def classifier(folder, config=ClassifierConfig(hidden=8, guard="position[1]=0:"), spec=SPEC) -> ClassifierReward:  # noqa: B008
    """Of numbers, with a guard that holds now and then."""
    torch.manual_seed(0)
    shape = spec.observation[config.camera].shape if config.camera else (3,)
    network, rate = SuccessNetwork(shape, config.hidden, config.image_size), Interval(0, 0, 1)
    measured = Measured(0.5, rate, rate, rate, 1, 1, [], 0.0, rate)
    save_classifier(folder / "classifier", network, config, spec, measured, {})
    return ClassifierReward(folder=str(folder / "classifier"))


def seeing_classifier(folder) -> ClassifierReward:
    """Of pictures, without a guard: what can be asked about single pictures."""
    return classifier(folder, ClassifierConfig(hidden=8, image_size=16, camera="camera_front"), ACTED)


def embedded(kind):
    def saved(folder):
        words, told = ("go", "there"), ("go there",)
        EmbeddedModel(Origin("arm", "front", 16, ("gripper", "there"), words, told)).save(folder / "embedded")
        return kind(folder=str(folder / "embedded"), mode="potential")

    return saved


PROGRAM = """def reward(batch):
    height = np.sqrt(batch["position"][:, 0])
    return height - batch["previous_position"][:, 1], {"height": height}
"""


def program(folder) -> ProgramReward:
    """Has no number for every other step."""
    (folder / "program.py").write_text(PROGRAM)
    return ProgramReward(str(folder / "program.py"), limits=Limits(invalid_share=1.0))


def from_height(batch):
    """Has no number for every other step, as the program."""
    with np.errstate(invalid="ignore"):
        height = np.sqrt(batch["position"][:, 0])
    return height - batch["previous_position"][:, 1], {"height": height}


def function(folder) -> FunctionReward:
    return FunctionReward(name_of_object(from_height), limits=Limits(invalid_share=1.0))


def pipeline(folder) -> RewardPipeline:
    model = program(folder)
    source = {"reward": "program", "settings": {"path": model.path, "limits": asdict(model.limits)}}
    own = {"environment": True, "stages": [{"stage": "clip", "settings": {"at": 0.1}}]}
    return RewardPipeline(sources=(source, own), stages=({"stage": "delta"},))


class Sides:
    """A captioner that says on which side of zero a position is."""

    def look(self, observations):
        return np.array(observations["position"])

    def captions(self, before, actions, after):
        return ["left" if x < 0 else "right" for x in after[:, 0]]


def annotated(kind):
    """Labelled by a rule that often gives no label."""

    class Sided(kind):
        captions_of = Sides()

    return lambda _: Sided(rule=AnnotationRule(progress=("left",), garbage=0.3))


class Designed(DesignedReward):
    """Finds its states and choices in the observations and actions of these episodes."""

    def pairs(self, steps):
        return np.asarray(steps.before["position"]).argmax(-1), (np.asarray(steps.actions)[:, 0] > 0).astype(np.int64)


REWARDS = {
    "oracle": lambda _: Oracle(),
    "noisy-oracle": lambda _: NoisyOracle(0.5, missing=0.2, seed=3),
    "constant": lambda _: Constant(2.0),
    "preference": fitted,
    "progress": progress,
    "vpl": of_a_user,
    "spo": lambda _: SelfPlayReward(rater_settings={"measures": ["-last position"]}),
    "judge-progress": judged(JudgeProgress, every=2, mode="potential"),
    "judge-completion": judged(JudgeCompletion, every=1),
    "judge-contrast": judged(JudgeContrast, every=2),
    "judge-tri": judged(JudgeTri, every=3, mode="delta"),
    "judge-ordinal": judged(JudgeOrdinal),
    "mpo": judged(RubricReward),
    "judge-order": judged(JudgeOrder, frames=4),
    "clg": lambda _: ContrastingLanguageGoals(model="colours", undesired="red", desired="grey", low=-0.1, high=0.1),
    "driving-clg": lambda _: DrivingGoals(model="colours", undesired="red", desired="grey", low=-0.1, high=0.1),
    "vlm-rm": lambda _: VLMRM(model="colours", goal=("red",), baseline=("grey",), mode="potential"),
    "classifier": classifier,
    "embedded-progress": embedded(EmbeddedProgress),
    "embedded-completion": embedded(EmbeddedCompletion),
    "embedded-shuffled": embedded(EmbeddedShuffled),
    "episodic": lambda _: EpisodicReward(),
    "return-decomposition": lambda _: ReturnDecomposition(),
    "coverage": lambda _: CoverageReward(entry="position", cell=0.5, radius=0.4),
    "exprd": lambda _: Designed(states=0, environment="tabular/FourRooms-v0"),
    "subgoals": lambda _: SubgoalReward(),
    "lare": lambda folder: LatentReward(program(folder).path, limits=Limits(invalid_share=1.0)),
    "rrd": lambda _: RandomizedReturnDecomposition(steps=4),
    "program": program,
    "function": function,
    "pipeline": pipeline,
    "oni-retrieval": annotated(ONIRetrieval),
    "oni-classification": annotated(ONIClassification),
    "oni-ranking": annotated(ONIRanking),
}


def episode(seed: int, steps: int = 6) -> Episode:
    random = np.random.default_rng(seed)
    rewards = random.normal(size=steps).astype(np.float32)
    rewards[1] = np.nan  # a recording may have anything
    return make_episode(
        {
            "position": random.normal(size=(steps + 1, 3)).astype(np.float32),
            BONUS: random.uniform(size=(steps + 1, 1)).astype(np.float32),
            "camera_front": random.integers(0, 255, (steps + 1, 16, 16, 3), np.uint8),
            "velocity": np.ones((steps + 1, 2), np.float32),  # of a car, and where its lane goes
            "route": np.array([[0, 0.5], [2, 0.6]], np.float32) * np.ones((steps + 1, 1, 1), np.float32),
        },
        actions=random.uniform(-1, 1, (steps, 2)).astype(np.float32),
        policy_actions=random.uniform(-1, 1, (steps, 2)).astype(np.float32),
        rewards=rewards,
        seed=seed,
        spec_fingerprint=SPEC.fingerprint,
        instruction="go there",
    )


EPISODES = [episode(0), episode(1, 4)]


def test_no_reward_is_left_out():
    assert {*known("rewards")} == {*REWARDS}


@pytest.mark.parametrize("check", REWARD_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", REWARDS)
def test_reward_keeps_the_rule(name, check, tmp_path):
    check(REWARDS[name](tmp_path), EPISODES)


# online

ACTED = make_spec(
    "arm",
    ArraySpec("position", (3,)),
    ArraySpec(BONUS, (1,)),
    picture_spec("camera_front", (16, 16, 3)),
    ArraySpec("velocity", (2,)),
    ArraySpec("route", (2, 2)),
    action=SPEC.action,
    instruction="go there",
)
_LABELLED = "it labels recorded episodes: online it would repeat the environment's own reward, or ignore the steps"
_SURROUNDINGS = "a picture is judged beside others of its episode, which come later than its step is paid"
NOT_ONLINE = {
    "oracle": _LABELLED,
    "noisy-oracle": _LABELLED,
    "constant": _LABELLED,
    "preference": "it is fitted to one dataset, and labels episodes of that dataset's environment alone",
    "progress": "whether a step lost time is known some steps later",
    "judge-contrast": _SURROUNDINGS,
    "judge-tri": _SURROUNDINGS,
    "judge-ordinal": _SURROUNDINGS,
    "mpo": _SURROUNDINGS,
    "judge-order": _SURROUNDINGS,
}
"""The only rewards that no policy can learn from while it acts, and why; each refuses (below). All others have rows."""


def can_be_learned_from(model):
    """A reward as a recipe makes it: pictures with a completion, which ends the task now and then."""
    if not isinstance(model, PictureReward):
        return model
    completion = Completion(VLMRM(model="colours", goal=("red",), alpha=0.0, camera=model.eye), threshold=0.55, bonus=2.0)
    return PictureScoring(model, every=4, completion=completion)


def annotated_before(model):
    """With labels of a record, so that it repeats itself."""
    arrivals = [Arrival(0, Label(("left",), 1.0)), Arrival(0, Label(("left", "right"), 0.0))]
    fitting = arrivals[1:] if model.name == "oni-ranking" else arrivals[:1]

    class Recorded(type(model)):
        repeats_itself = True

        def annotator(self):
            return RecordedAnnotator(fitting)

        def require(self, place):
            pass

    return Recorded(rule=model.rule)


def online(name, folder):
    model = seeing_classifier(folder) if name == "classifier" else REWARDS[name](folder)
    return annotated_before(model) if name.startswith("oni") else can_be_learned_from(model)


COMPARED = [(name, environments_are_apart) for name in ("oni-ranking", "spo")]
"""Rewards that compare with steps, or episodes, of all environments."""
ROWS = [
    (name, check) for name in REWARDS for check in ONLINE_CHECKS if name not in NOT_ONLINE and (name, check) not in COMPARED
]


@pytest.mark.parametrize(("name", "check"), ROWS, ids=[f"{name}-{check.__name__}" for name, check in ROWS])
def test_online_reward_keeps_the_rule(name, check, tmp_path):
    whole = [replace(each, rewards=np.nan_to_num(each.rewards)) for each in (episode(1, 4), episode(2))]
    check(online(name, tmp_path).online(ACTED, weight=0.5, discount=0.99), [episode(0), *whole])


def test_every_reward_has_rows_online_or_a_reason():
    assert {*known("rewards")} == {name for name, _ in ROWS} | {*NOT_ONLINE}
    assert not {name for name, _ in ROWS} & {*NOT_ONLINE}


@pytest.mark.parametrize("name", NOT_ONLINE)
def test_reward_without_rows_is_refused_online(name, tmp_path):
    model = REWARDS[name](tmp_path)
    with pytest.raises(InvalidSetting, match="cannot be given while a policy acts"):
        model.online(ACTED, weight=1.0, discount=None)
    if isinstance(model, PictureReward):
        with pytest.raises(InvalidSetting, match="judges whole episodes, not single pictures"):
            can_be_learned_from(model).online(ACTED, weight=1.0, discount=None)


@dataclass(frozen=True)
class Height(StepReward):
    """As an author writes it."""

    name = "height"

    def score_steps(self, steps, place):
        return StepScores(Labels.finite(steps.after["position"][:, 0]))


def test_one_method_makes_an_online_reward():
    check_reward(Height(), EPISODES)
    check_online_reward(Height(), SPEC, EPISODES)
    learned = Height().online(SPEC, weight=2.0, discount=None).running(1)
    assert learned.relabelling is None and learned.repeats_itself and learned.metrics == {"reward/missing": 0.0}


class Leaky(Height):
    """Remembers across environments."""

    def score_steps(self, steps, place):
        place.memory["sum"] = place.memory.get("sum", 0.0) + float(steps.after["position"].sum())
        return StepScores(Labels.finite(np.full(len(steps), place.memory["sum"])))


class Forgetful(Height):
    """Has a memory of its own, which no checkpoint holds."""

    def score_steps(self, steps, place):
        seen = vars(self).setdefault("seen", [])
        seen.append(0)
        return StepScores(Labels.finite(steps.after["position"][:, 0] + len(seen)))


class PaysTheDead(Height):
    """Pays for what is not a number."""

    def score_steps(self, steps, place):
        return StepScores(Labels.finite(np.nan_to_num(steps.rewards, nan=7.0)))


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (Leaky, "environments are apart"),
        (Forgetful, "environments are apart|restored rewards go on"),
        (PaysTheDead, "what is not finite is missing"),
    ],
)
def test_a_broken_online_reward_is_found(broken, rule):
    with pytest.raises(ConformanceFailure, match=rule):
        check_online_reward(broken(), SPEC, [episode(0), episode(1, 4)])


# offline


class TooLong(Oracle):
    def label(self, episode):
        labels = super().label(episode)
        return replace(labels, values=np.append(labels.values, np.float32(0)), valid=np.append(labels.valid, True))


class Doubtful(Oracle):
    def label(self, episode):
        return replace(super().label(episode), values=np.zeros(len(episode)))


class SomebodyElse(Oracle):
    identity = ("somebody", "else")

    def label(self, episode):
        return replace(Oracle().label(episode), weights_hash="x")


class Moody(Oracle):
    def label(self, episode):
        Moody.asked = getattr(Moody, "asked", 0) + 1
        return replace(super().label(episode), values=np.full(len(episode), Moody.asked, np.float32))


class Writes(Oracle):
    def label(self, episode):
        episode.rewards[:] = 0
        return super().label(episode)


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (TooLong, "labels fit the episode"),
        (Doubtful, "labels fit the episode"),
        (SomebodyElse, "labels say whose they are"),
        (Moody, "labels repeat"),
        (Writes, "episodes stay as they are"),
    ],
)
def test_a_broken_reward_is_found(broken, rule):
    with pytest.raises(ConformanceFailure, match=rule):
        check_reward(broken(), [episode(0), episode(1, 4)])
