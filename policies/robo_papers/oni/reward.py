"""ONI: intrinsic rewards from a language model's opinion of the agent's own steps, requested while it learns.

Zheng, Henaff, Zhang, Grover & Amos 2024, "Online Intrinsic Rewards for Decision Making Agents from Large Language Model
Feedback", arXiv:2410.23022. Written from the paper's equations; page.md lists what differs.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_papers.oni.annotator import Annotator, BackgroundAnnotator, Label
from robo_papers.oni.arrivals import AnnotatedCaptions, RecordedAnnotator, record_of
from robo_papers.oni.caption_rewards import CaptionRewards, Classification, Ranking, Retrieval
from robo_papers.oni.network import Fit
from robo_papers.oni.questions import AnnotationRule, LabelQuestions, PairQuestions, Questions, RuleModel
from robo_rl.entry_points import load
from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.rewards.chat.client import ModelClient
from robo_rl.rewards.chat.log import CallLog
from robo_rl.rewards.chat.opening import language_model, require_task
from robo_rl.rewards.identity import hash_of
from robo_rl.rewards.step_rewards.captions import LOOK, Captioner, Described, described
from robo_rl.rewards.step_rewards.place import Place
from robo_rl.rewards.step_rewards.reward import StepReward
from robo_rl.rewards.step_rewards.steps import Steps, StepScores
from robo_rl.settings import plain
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Array, Episode, Labels, Metrics, RewardLabels

RULE = "rule"
PASSING = ("batch", "capacity", "every", "log", "replay", "tries")
"""Names of settings that change when labels arrive, and not the labels."""


@dataclass(frozen=True, kw_only=True)
class ONI(StepReward):
    """Base class of the three rewards of ONI: intrinsic reward by a language model's labels of the agent's steps."""

    llm: str = RULE
    """Language model that labels: a judge such as `endpoint`, a YAML file that names one, `pack:NAME`, or "rule", which is no
    model."""
    llm_settings: dict[str, Any] = field(default_factory=dict)
    """Settings of the judge that `llm` names."""
    rule: AnnotationRule = field(default_factory=AnnotationRule)
    """Settings of the rule if `llm` is "rule"."""
    log: str = ""
    """File of all calls of the model, which answers repeated requests; empty for none. Each run needs its own."""
    goal: str = ""
    """The task, as words after "The agent is to"; empty for the instruction of each episode."""
    captioner: str = "minigrid"
    """Name of the captioner: entry points `robo_rl.captioners`."""
    environment_weight: float = 1.0
    """c_e, weight of the environment's own reward. The paper has 10 for sparse tasks and 0.1 for a score; ours pay at most
    1."""
    intrinsic_weight: float = 0.04
    """c_l, weight of the intrinsic reward: relative to c_e as in the paper's example of 0.4 and 10."""
    count_exponent: float = 3.0
    """beta, exponent by which the reward of a caption falls if it repeats within an episode. As in the paper."""
    limit: float = 10.0
    """Largest absolute reward; larger ones are clipped. As in the paper."""
    every: int = 10_000
    """Steps after which an off-policy learner gets their rewards; on-policy ones get them when a rollout is full."""
    batch: int = 16
    """Captions in one call of the model, the newest. The paper has 100, for a server with several accelerators."""
    capacity: int = 1000
    """Largest number of waiting captions; beyond it the oldest are dropped."""
    tries: int = 3
    """Number of attempts for a caption without a usable answer."""
    replay: str = ""
    """Folder of an earlier run, whose labels take effect at the same steps again, without any query; empty for none."""

    def __post_init__(self) -> None:
        finite = {name: getattr(self, name) for name in ("environment_weight", "intrinsic_weight")}
        allowed = {name: (bool(np.isfinite(value)), "a finite number") for name, value in finite.items()}
        allowed |= {"count_exponent": (0 <= self.count_exponent < np.inf, "0 or more"), "limit": (self.limit > 0, "above 0")}
        allowed |= {name: (getattr(self, name) >= 1, "1 or more") for name in ("every", "batch", "capacity", "tries")}
        require_allowed(self, allowed)

    def __deepcopy__(self, memo: object) -> Self:
        return replace(self)  # an open model, with its locks and its log, is not copied

    @abstractmethod
    def kind(self) -> CaptionRewards:
        """Make the mapping from captions to rewards, without any labels yet."""

    def questions(self) -> Questions:
        """Make the questions that the model is asked: whether a step helps."""
        return LabelQuestions(self.model, self.goal)

    @property
    def identity(self) -> tuple[str, str]:
        """Name, and hash of the settings that rewards follow from."""
        settings = {name: value for name, value in plain(self).items() if name not in PASSING}
        return self.name, hash_of(json.dumps(settings, sort_keys=True).encode())

    @property
    def repeats_itself(self) -> bool:
        """True if the labels are those of an earlier run, because the times of a model's answers vary."""
        return bool(self.replay)

    def require(self, place: Place) -> None:
        """Raise InvalidSetting if steps cannot be described, or a run has no record."""
        self.require_recorded(place.spec)
        if self.replay:
            record_of(Path(self.replay))

    def require_recorded(self, spec: EnvironmentSpec) -> None:
        """Raise InvalidSetting if steps cannot be described, and for a pack that answers for another environment."""
        self.captions_of.require(spec)
        if not self.replay:
            require_task(self.llm, spec.name)

    def require_demonstrations(self) -> None:
        """Raise InvalidSetting: the reward of a step follows from when its caption was annotated."""
        raise InvalidSetting(
            f"{self.name} cannot reward demonstrations: its labels come while a policy learns.",
            got="demonstrations with this reward",
            allowed="no demonstrations",
            fix="leave out `demonstrations`, or label the dataset first (robo-rl label) and train from its labels",
        )

    def facts(self, place: Place) -> Mapping[str, str | float]:
        """Return the facts that a run records: the identity of the language model."""
        if self.replay:
            return {"llm": f"the labels of {self.replay}"}
        llm, settings = self.model.identity
        return {"llm": llm, "llm_settings": settings}

    def entries(self, place: Place) -> Sequence[str]:
        """Return the names of all observation entries, because the captioner chooses among them."""
        return [*place.spec.observation]

    def keep(self, observations: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return the part of the observations that the captioner needs, a fraction of them."""
        return {LOOK: self.captions_of.look(observations)}

    def start(self, place: Place) -> None:
        """Create the annotator, so that a resumed run sends queries that were in flight again."""
        self._annotated(place)

    def score_steps(self, steps: Steps, place: Place) -> StepScores:
        """Return r = c_e * r_env + c_l * r_llm(o') / N(o')^beta, with r_llm 0 for a caption without a label.

        Nothing here waits for the annotator: labels count from the first call after they arrived.
        """
        words = described(self.captions_of, steps, place.memory.setdefault("counts", {}), says_task=not self.goal)
        intrinsic = self._bonus(self._annotated(place).looked_up(words, len(steps)), words)
        own = self.environment_weight * steps.rewards if self.environment_weight else np.zeros(len(steps))
        total = np.clip(own + intrinsic, -self.limit, self.limit)
        return StepScores(Labels.finite(total, dtype=np.float64), {"model_return": place.weight * intrinsic})

    def metrics(self, place: Place) -> Metrics:
        """Return the share of steps without a label, and the annotator's metrics."""
        return self._annotated(place).metrics

    def label(self, episode: Episode) -> RewardLabels:
        """Return r_llm / N^beta of each step; queries all captions of the episode at once and waits for the answers."""
        if not len(episode):
            return Labels.missing(0).by(self.identity)
        words = described(self.captions_of, Steps.of(episode), {}, says_task=not self.goal)
        kind = self.kind()
        queries = kind.wanted(dict.fromkeys(words.captions, 1))
        answers = zip(queries, self.questions().answers(queries), strict=True)
        if labels := [Label(query, value) for query, (value, _) in answers if value is not None]:
            kind.learn(labels)
        found = kind.values(words.captions)
        bonus = self._bonus(np.where(found.valid, found.values, 0.0)[words.numbers], words)
        return Labels.finite(bonus, found.valid[words.numbers]).by(self.identity)

    def _bonus(self, llm: Array, words: Described) -> npt.NDArray[np.float64]:
        bonus: npt.NDArray[np.float64] = (
            self.intrinsic_weight * llm / words.occurrences.astype(np.float64) ** self.count_exponent
        )
        return bonus

    def _annotated(self, place: Place) -> AnnotatedCaptions:
        return place.memory.part("annotated", lambda: AnnotatedCaptions(self.kind(), self.annotator()))

    def annotator(self) -> Annotator:
        """Make the annotator of a training: one in a thread, or the record of an earlier run."""
        if self.replay:
            return RecordedAnnotator(record_of(Path(self.replay)))
        return BackgroundAnnotator(self.questions(), capacity=self.capacity, batch=self.batch, tries=self.tries)

    @cached_property
    def captions_of(self) -> Captioner:
        """The captioner that describes steps, which may cache descriptions."""
        found: Captioner = load("captioners", self.captioner)()
        return found

    @cached_property
    def model(self) -> ModelClient:
        """Client of the language model; making it opens the log."""
        log = Path(self.log) if self.log else None
        if self.llm == RULE:
            return ModelClient(RuleModel(self.rule), log=CallLog(log))
        return language_model(self.llm, self.llm_settings, log=log)


@dataclass(frozen=True, kw_only=True)
class ONIRetrieval(ONI):
    """Reward of ONI by a table of captions: the label of the caption, 0 without one."""

    name = "oni-retrieval"

    @override
    def kind(self) -> CaptionRewards:
        return Retrieval()


@dataclass(frozen=True, kw_only=True)
class ONIClassification(ONI):
    """Reward of ONI by a network of labelled captions: 1 if it is sure enough that a caption helps."""

    name = "oni-classification"
    threshold: float = 0.5
    """eta: probability above which a caption is rewarded. As in the paper."""
    most_labels: int = 25_000
    """Number of labels from which on no query is sent and the network stays as it is. As in the paper."""
    fit: Fit = field(default_factory=Fit)
    """Settings of the network's fit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_allowed(
            self, {"threshold": (0 <= self.threshold < 1, "0 to 1"), "most_labels": (self.most_labels >= 1, "1 or more")}
        )

    @override
    def kind(self) -> CaptionRewards:
        return Classification(self.fit, threshold=self.threshold, most_labels=self.most_labels)


@dataclass(frozen=True, kw_only=True)
class ONIRanking(ONI):
    """Reward of ONI by a network of compared captions: the advantage of a caption over the average one."""

    name = "oni-ranking"
    threshold: float = -0.5
    """epsilon [deviations]: value relative to the mean from which on a caption is rewarded; below it the reward is 0. As in the
    paper."""
    pairs: int = 16
    """Number of comparisons per request; the paper has 10."""
    most_labels: int = 10_000
    """Number of comparisons from which on no query is sent and the network stays as it is."""
    fit: Fit = field(default_factory=Fit)
    """Settings of the network's fit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = {name: (getattr(self, name) >= 1, "1 or more") for name in ("pairs", "most_labels")}
        require_allowed(self, allowed | {"threshold": (bool(np.isfinite(self.threshold)), "a finite number")})

    @override
    def kind(self) -> CaptionRewards:
        return Ranking(self.fit, threshold=self.threshold, pairs=self.pairs, most_labels=self.most_labels)

    def questions(self) -> Questions:
        """Make the questions that the model is asked: which of two steps is better."""
        return PairQuestions(self.model, self.goal)
