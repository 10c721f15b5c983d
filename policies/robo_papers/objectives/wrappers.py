"""Wrappers for objectives of one number that is carried from step to step.

They are the largest reward, the smallest reward, and the mean of the worst returns. A reward is then the growth of the number's
worth in a step. A discount of 1 is exact.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import gymnasium
import numpy as np
from typing_extensions import override

from robo_rl.environments.wrapping import EnvironmentWrapper
from robo_rl.errors import require_allowed
from robo_rl.evaluation.measures import Measure, measures_of
from robo_rl.protocols.contract import Feature
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec, Observation, ObservationSpec, specification
from robo_rl.types import MEASURES


class RememberedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that carries a number from step to step, observes it, and pays the growth of its worth."""

    def __init__(self, environment: gymnasium.Env[Any, Any], objective: Remembered) -> None:
        super().__init__(environment)
        spec = specification(environment)
        entry = ArraySpec(objective.entry, (1,), meaning=objective.meaning)
        observation = ObservationSpec((*spec.observation.arrays, entry))
        self.environment_spec: EnvironmentSpec = replace(spec, observation=observation)
        self.observation_space = observation.space
        task = Measure("task_return", meaning="sum of the environment's own rewards")
        self.measures = (*measures_of(environment), task)
        self._objective, self._remembered, self._task = objective, objective.first, 0.0

    @override
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._remembered, self._task = self._objective.first, 0.0
        return self._seen(observation), info

    @override
    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        before, self._task = self._remembered, self._task + float(reward)
        self._remembered = self._objective.following(before, float(reward))
        paid = self._objective.worth(self._remembered) - self._objective.worth(before)
        info = {**info, "reward_terms": {"objective": paid}}
        info[MEASURES] = {**info.get(MEASURES, {}), "task_return": self._task}
        return self._seen(observation), paid, terminated, truncated, info

    def _seen(self, observation: Observation) -> Observation:
        return {**observation, self._objective.entry: np.array([self._remembered], np.float32)}


class Remembered(EnvironmentWrapper):
    """Base class of settings for objectives of one number that is carried from step to step."""

    changes = ("observation",)

    entry: ClassVar[str]
    """Name of the observation entry with the number."""
    meaning: ClassVar[str]

    @property
    @override
    def asks(self) -> frozenset[Feature]:
        return frozenset({Feature.OBJECTIVE})

    @property
    def first(self) -> float:
        """Value of the number at the beginning of an episode."""
        return 0.0

    @abstractmethod
    def following(self, number: float, reward: float) -> float:
        """Return the remembered number of an episode after a step, given the number before it and the step's reward."""

    @abstractmethod
    def worth(self, number: float) -> float:
        """Return the value that an episode has if it ends with this number."""

    @override
    def wrap(self, environment: gymnasium.Env[Any, Any]) -> RememberedEnv:
        return RememberedEnv(environment, self)


@dataclass(frozen=True)
class Maximum(Remembered):
    """Settings of the wrapper for the largest reward of an episode instead of the sum.

    Veviurko, Böhmer and de Weerdt 2024, arXiv:2402.01361.
    """

    start: float = 0.0
    """Reward that every episode counts as having, below all rewards that matter; an episode is worth its largest reward less
    this."""

    entry, meaning = "best_reward", "largest reward of the environment so far"

    def __post_init__(self) -> None:
        require_allowed(self, {"start": (bool(np.isfinite(self.start)), "a finite number")})

    @property
    @override
    def first(self) -> float:
        return self.start

    @override
    def following(self, number: float, reward: float) -> float:
        return max(number, reward)

    @override
    def worth(self, number: float) -> float:
        return number


@dataclass(frozen=True)
class Minimum(Maximum):
    """Settings of the wrapper for the smallest reward of an episode: only the worst moment counts.

    `start` is above all rewards that should count.
    """

    entry, meaning = "worst_reward", "smallest reward of the environment so far"

    @override
    def following(self, number: float, reward: float) -> float:
        return min(number, reward)


@dataclass(frozen=True)
class CVaR(Remembered):
    """Settings of the wrapper for the mean return of the worst episodes (Rockafellar and Uryasev 2000; Bäuerle and Ott 2011).

    An episode of return R is worth X - (X - R)+ / share. The mean of that is never above the conditional value at risk, and
    equal to it if X is the share's quantile of the returns.
    """

    share: float = 0.1
    """Share of the episodes that counts, the worst ones; 1 for all of them, the plain mean if X is high."""
    threshold: float = 0.0
    """X [reward]: return above which an episode counts no more."""

    entry, meaning = "return_so_far", "sum of the environment's rewards so far"

    def __post_init__(self) -> None:
        allowed = {"share": (0.0 < self.share <= 1.0, "above 0, at most 1")}
        require_allowed(self, allowed | {"threshold": (bool(np.isfinite(self.threshold)), "a finite number")})

    @override
    def following(self, number: float, reward: float) -> float:
        return number + reward

    @override
    def worth(self, number: float) -> float:
        return -max(0.0, self.threshold - number) / self.share
