"""ONI: intrinsic rewards from a language model's opinion of the agent's own steps, asked for while it learns.

Zheng, Henaff, Zhang, Grover & Amos 2024, "Online Intrinsic Rewards for Decision Making Agents from Large Language Model
Feedback", arXiv:2410.23022. Written from the paper's equations; docs/oni.md lists what differs.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.reward_protocols import DelayedRewards
from robo_rl.rewards.annotation.annotator import Annotator, BackgroundAnnotator, Label
from robo_rl.rewards.annotation.captioning import Captioner, WaitingCaptions, captioner
from robo_rl.rewards.annotation.classification import Classification
from robo_rl.rewards.annotation.kinds import CaptionRewards
from robo_rl.rewards.annotation.network import Fit
from robo_rl.rewards.annotation.questions import LabelQuestions, PairQuestions, Questions
from robo_rl.rewards.annotation.ranking import Ranking
from robo_rl.rewards.annotation.recorded import RecordedAnnotator, record_of
from robo_rl.rewards.annotation.retrieval import Retrieval
from robo_rl.rewards.annotation.rule import Rule, RuleSource
from robo_rl.rewards.annotation.running import AnnotatedRewards, Factors
from robo_rl.rewards.identity import hash_of
from robo_rl.rewards.language.call_log import CallLog
from robo_rl.rewards.language.model import LanguageModel
from robo_rl.rewards.language.opening import language_model, require_task
from robo_rl.settings import plain
from robo_rl.spec import EnvironmentSpec
from robo_rl.types import Episode, RewardLabels

RULE = "rule"
PASSING = ("batch", "capacity", "every", "log", "replay", "tries")
"""Settings that change when labels come, not which."""


@dataclass(frozen=True, kw_only=True)
class ONI(ABC):
    """What the three rewards have in common."""

    llm: str = RULE
    """Who is asked: a judge such as `endpoint`, a YAML file that names one, `pack:NAME`, or "rule", which is no model."""
    llm_settings: dict[str, Any] = field(default_factory=dict)
    """Of a judge."""
    rule: Rule = field(default_factory=Rule)
    """Of `llm: rule`."""
    log: str = ""
    """File of every call of the model, which answers what was asked before; empty for none. Each run needs its own."""
    goal: str = ""
    """What the agent is to do, in words that go on after "The agent is to"; empty for the instruction of each episode."""
    captioner: str = "minigrid"
    """What describes steps: entry points `robo_rl.captioners`."""
    environment_weight: float = 1.0
    """c_e, of the environment's own reward. The paper has 10 for sparse tasks and 0.1 for a score; ours pay at most 1."""
    intrinsic_weight: float = 0.04
    """c_l, of the model's: beside c_e as in the paper's example of 0.4 and 10."""
    count_exponent: float = 3.0
    """beta: how fast repeating a caption within an episode stops paying. As in the paper."""
    limit: float = 10.0
    """Rewards are kept within this distance of 0. As in the paper."""
    every: int = 10_000
    """Steps after which an off-policy learner gets their rewards; on-policy ones get them when a rollout is full."""
    batch: int = 16
    """Captions in one call of the model, the newest. The paper has 100, for a server with several accelerators."""
    capacity: int = 1000
    """Captions that wait at most; beyond that the oldest go."""
    tries: int = 3
    """How often a caption is asked about whose answers cannot be read."""
    replay: str = ""
    """Folder of a run: its labels take effect at the same steps again, and nothing is asked."""

    def __post_init__(self) -> None:
        finite = {name: getattr(self, name) for name in ("environment_weight", "intrinsic_weight")}
        allowed = {name: (bool(np.isfinite(value)), "a finite number") for name, value in finite.items()}
        allowed |= {"count_exponent": (0 <= self.count_exponent < np.inf, "0 or more"), "limit": (self.limit > 0, "above 0")}
        allowed |= {name: (getattr(self, name) >= 1, "1 or more") for name in ("every", "batch", "capacity", "tries")}
        require_allowed(self, allowed)

    def __deepcopy__(self, memo: object) -> Self:
        return replace(self)  # an open model, with its locks and its log, is not copied

    @property
    @abstractmethod
    def name(self) -> str:
        """That of the entry point."""

    @abstractmethod
    def kind(self) -> CaptionRewards:
        """Returns what makes rewards of labels, without any yet."""

    @abstractmethod
    def questions(self) -> Questions:
        """Returns what asks for labels."""

    @property
    def identity(self) -> tuple[str, str]:
        """Name, and hash of the settings that rewards follow from."""
        settings = {name: value for name, value in plain(self).items() if name not in PASSING}
        return self.name, hash_of(json.dumps(settings, sort_keys=True).encode())

    def require(self, spec: EnvironmentSpec) -> None:
        """Raises InvalidSetting where steps of an environment cannot be described, or a pack answers for another one."""
        self.describer().require(spec)
        if not self.replay:
            require_task(self.llm, spec.name)

    def online(self, spec: EnvironmentSpec, *, weight: float, discount: float | None) -> AnnotationRewards:
        """Returns what gives these rewards in an environment; raises InvalidSetting where it cannot."""
        del discount  # each step is paid by itself
        self.require(spec)
        if self.replay:
            record_of(Path(self.replay))
        return AnnotationRewards(self, weight)

    def label(self, episode: Episode) -> RewardLabels:
        """Returns r_llm / N^beta of each step, with every caption of the episode asked about at once and waited for."""
        waiting = self.waiting(1)
        waiting.begin(0, _at(episode, 0), episode.instruction)
        for step in range(len(episode)):
            waiting.add(0, _at(episode, step + 1), action=episode.actions[step], reward=0.0, ended=False)
        steps = waiting.take()
        kind = self.kind()
        queries = kind.wanted(dict.fromkeys(steps.captions, 1))
        answers = zip(queries, self.questions().answers(queries), strict=True)
        if labels := [Label(query, value) for query, (value, _) in answers if value is not None]:
            kind.learn(labels)
        values, known = kind.values(steps.captions)
        llm, valid = np.where(known, values, 0.0)[steps.numbers], known[steps.numbers]
        bonus = self.factors(1.0).rewards(np.zeros(len(llm)), llm, steps.occurrences)[1]
        name, weights = self.identity
        return RewardLabels(bonus.astype(np.float32), valid, name, weights, prompt_hash="none")

    def annotator(self) -> Annotator:
        """Returns what gives labels while a policy learns."""
        if self.replay:
            return RecordedAnnotator(record_of(Path(self.replay)))
        return BackgroundAnnotator(self.questions(), capacity=self.capacity, batch=self.batch, tries=self.tries)

    def waiting(self, environments: int) -> WaitingCaptions:
        """Returns what describes steps."""
        return WaitingCaptions(self.describer(), environments, says_task=not self.goal)

    def factors(self, weight: float) -> Factors:
        """Returns the factors of the parts."""
        return Factors(self.environment_weight, self.intrinsic_weight, self.count_exponent, self.limit, weight)

    def describer(self) -> Captioner:
        """Returns a fresh captioner."""
        return captioner(self.captioner)

    @cached_property
    def model(self) -> LanguageModel:
        """Who is asked; opens the log."""
        log = Path(self.log) if self.log else None
        if self.llm == RULE:
            return LanguageModel(RuleSource(self.rule), CallLog(log))
        return language_model(self.llm, self.llm_settings, log=log)


@dataclass(frozen=True, kw_only=True)
class ONIRetrieval(ONI):
    """A table of captions: r_llm is the label of the caption, and nothing for one without."""

    name = "oni-retrieval"

    def kind(self) -> CaptionRewards:
        """Returns an empty table."""
        return Retrieval()

    def questions(self) -> Questions:
        """Returns what asks whether a step helps."""
        return LabelQuestions(self.model, self.goal)


@dataclass(frozen=True, kw_only=True)
class ONIClassification(ONI):
    """A network of labelled captions: r_llm is 1 where it is sure enough that a caption helps."""

    name = "oni-classification"
    threshold: float = 0.5
    """eta: probability above which a caption pays. As in the paper."""
    most_labels: int = 25_000
    """Beyond that nothing is asked and the network stays as it is. As in the paper."""
    fit: Fit = field(default_factory=Fit)
    """Of the network."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_allowed(
            self, {"threshold": (0 <= self.threshold < 1, "0 to 1"), "most_labels": (self.most_labels >= 1, "1 or more")}
        )

    def kind(self) -> CaptionRewards:
        """Returns an unfitted network."""
        return Classification(self.fit, threshold=self.threshold, most_labels=self.most_labels)

    def questions(self) -> Questions:
        """Returns what asks whether a step helps."""
        return LabelQuestions(self.model, self.goal)


@dataclass(frozen=True, kw_only=True)
class ONIRanking(ONI):
    """A network of compared captions: r_llm is by how much a caption is better than what usually happens."""

    name = "oni-ranking"
    threshold: float = -0.5
    """epsilon: deviations above the mean from which a caption pays; below, it neither pays nor costs. As in the paper."""
    pairs: int = 16
    """Comparisons that are wanted at a time; the paper has 10."""
    most_labels: int = 10_000
    """Comparisons beyond which nothing is asked and the network stays as it is."""
    fit: Fit = field(default_factory=Fit)
    """Of the network."""

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = {name: (getattr(self, name) >= 1, "1 or more") for name in ("pairs", "most_labels")}
        require_allowed(self, allowed | {"threshold": (bool(np.isfinite(self.threshold)), "a finite number")})

    def kind(self) -> CaptionRewards:
        """Returns an unfitted network."""
        return Ranking(self.fit, threshold=self.threshold, pairs=self.pairs, most_labels=self.most_labels)

    def questions(self) -> Questions:
        """Returns what asks which of two steps is better."""
        return PairQuestions(self.model, self.goal)


@dataclass(frozen=True)
class AnnotationRewards:
    """What a policy learns from; implements `robo_rl.reward_protocols.OnlineRewards`."""

    reward: ONI
    weight: float

    @property
    def identity(self) -> Mapping[str, str | float]:
        """What the rewards follow from."""
        name, weights = self.reward.identity
        if self.reward.replay:
            return {"model": name, "weights": weights, "llm": f"the labels of {self.reward.replay}", "weight": self.weight}
        llm, settings = self.reward.model.identity
        return {"model": name, "weights": weights, "llm": llm, "llm_settings": settings, "weight": self.weight}

    def visible(self, spec: EnvironmentSpec) -> EnvironmentSpec:
        """Returns the spec: nothing is drawn for these rewards."""
        return spec

    def running(self, environments: int) -> DelayedRewards:
        """Returns what rewards so many environments under way."""
        reward = self.reward
        waiting, annotator = reward.waiting(environments), reward.annotator()
        factors = reward.factors(self.weight)
        return AnnotatedRewards(waiting, reward.kind(), annotator, factors, environments=environments, every=reward.every)

    def labelled(self, episode: Episode, spec: EnvironmentSpec) -> Iterator[Episode]:
        """Raises InvalidSetting: what a step is worth is only known when its caption has been annotated."""
        raise InvalidSetting(
            f"{self.reward.name} cannot reward demonstrations: its labels come while a policy learns.",
            got="demonstrations beside this reward",
            allowed="no demonstrations",
            fix="leave out `demonstrations`, or label the dataset first (robo-rl label) and train from its labels",
        )


def _at(episode: Episode, step: int) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]]:
    return {name: values[step] for name, values in episode.observations.items()}
