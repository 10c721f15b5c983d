"""Samplers of training tasks: they choose the next level, variant or hint from the successes so far.

There are n tasks, numbered from 0; for an ordered sampler from the easiest, 0, to the task itself, n - 1. Entry points of
`robo_rl.task_samplers` name the samplers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from typing_extensions import override

from robo_rl.entry_points import load
from robo_rl.errors import require_allowed
from robo_rl.protocols.components import Stateful
from robo_rl.types import Metrics, StateDict


@dataclass(frozen=True)
class SamplerRule:
    """Settings that all samplers of training tasks share: which sampler, and how it estimates success."""

    sampler: str = ""
    """Name of the sampler: uniform; for tasks ordered by difficulty also frontier."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Further settings of the sampler, by name."""
    uniform_share: float = 0.2
    """Share of episodes whose task is drawn uniformly, so that estimates for all tasks stay fresh; 0 to 1."""
    rate: float = 0.3
    """Weight of the newest episode in the running success rate of a task, 0 to 1."""
    easy: float = 0.6
    """Only for frontier: success rate from which the next harder task is trained, 0 to 1."""
    hard: float = 0.1
    """Only for frontier: success rate below which the next easier task is trained, 0 to 1."""
    least_episodes: int = 8
    """Only for frontier: episodes of a task before the next decision; 1 or more."""

    def __post_init__(self) -> None:
        shares = ("uniform_share", "rate", "easy", "hard")
        allowed = {name: (0.0 <= getattr(self, name) <= 1.0, "0 to 1") for name in shares}
        require_allowed(self, allowed | {"least_episodes": (self.least_episodes >= 1, "1 or more")})


class TaskSampler(Stateful, ABC):
    """Base class of samplers: draw the task of each training episode from `count` tasks, and keep their success rates."""

    is_ordered = False
    """True if the tasks must be ordered by difficulty."""

    def __init__(self, count: int, rule: SamplerRule) -> None:
        self.count, self.rule = count, rule
        self.success = np.full(count, 0.5)
        """Running success rate of each task, 0.5 before its first episode."""
        self.seen = np.zeros(count, np.int64)
        """Episodes of each task."""
        self.last = np.zeros(count, np.int64)
        """Number of the newest episode of each task."""
        self.surprise = np.zeros(count)
        """Running mean distance of the score from its mean."""
        self._mean = np.zeros(count)

    def sample(self, generator: np.random.Generator) -> int:
        """Return the number of the next task: with probability `uniform_share` a uniform one, else that of `choose`."""
        if generator.random() < self.rule.uniform_share:
            return int(generator.integers(self.count))
        return self.choose(generator)

    @abstractmethod
    def choose(self, generator: np.random.Generator) -> int:
        """Return the number of a task by the rule of this sampler."""

    def report(self, task: int, *, success: bool, score: float) -> None:
        """Update the estimates of a task with an episode that ended.

        success: whether it succeeded. score: a number for samplers that need more, such as the return.
        """
        rate = self.rule.rate
        if not self.seen[task]:
            self._mean[task] = score
        self.surprise[task] += rate * (abs(score - self._mean[task]) - self.surprise[task])
        self._mean[task] += rate * (score - self._mean[task])
        self.success[task] += rate * (float(success) - self.success[task])
        self.seen[task] += 1
        self.last[task] = self.seen.sum()

    @property
    def metrics(self) -> Metrics:
        """Shares of tasks seen so far, and among these of hard (success below 20 %), useful and easy (above 80 %) tasks."""
        known = self.success[self.seen > 0]
        hard, easy = (float(part.mean()) if known.size else 0.0 for part in (known < 0.2, known > 0.8))
        return {
            "curriculum/seen": float((self.seen > 0).mean()),
            "curriculum/hard": hard,
            "curriculum/useful": max(0.0, 1.0 - hard - easy) if known.size else 0.0,
            "curriculum/easy": easy,
        }

    @override
    def state_dict(self) -> StateDict:
        arrays = {"success": self.success, "seen": self.seen, "last": self.last, "surprise": self.surprise}
        return {name: value.copy() for name, value in (arrays | {"mean": self._mean}).items()}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self.success, self.seen, self.last, self.surprise, self._mean = (
            np.array(state[name]) for name in ("success", "seen", "last", "surprise", "mean")
        )


class UniformSampler(TaskSampler):
    """Sampler that draws all tasks with equal probability."""

    @override
    def choose(self, generator: np.random.Generator) -> int:
        return int(generator.integers(self.count))


class FrontierSampler(TaskSampler):
    """Sampler that trains one task at a time, of tasks ordered by difficulty.

    At a high success rate it moves to the next harder task, at a low one back to the next easier.
    """

    is_ordered = True

    def __init__(self, count: int, rule: SamplerRule) -> None:
        super().__init__(count, rule)
        self.position, self._here = 0, 0

    @override
    def choose(self, generator: np.random.Generator) -> int:
        return self.position

    @override
    def report(self, task: int, *, success: bool, score: float) -> None:
        super().report(task, success=success, score=score)
        if task != self.position:
            return
        self._here += 1
        if self._here < self.rule.least_episodes:
            return
        rate = self.success[task]
        moved = min(task + 1, self.count - 1) if rate >= self.rule.easy else max(task - 1, 0) if rate < self.rule.hard else task
        if moved != task:
            self.position, self._here = moved, 0

    @property
    @override
    def metrics(self) -> Metrics:
        return super().metrics | {"curriculum/frontier": self.position / max(self.count - 1, 1)}

    @override
    def state_dict(self) -> StateDict:
        return super().state_dict() | {"position": self.position, "here": self._here}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        self.position, self._here = int(state["position"]), int(state["here"])


def sampler_of(count: int, rule: SamplerRule) -> TaskSampler:
    """Return the sampler that a rule names, for `count` tasks; raises UnknownName, InvalidSetting."""
    sampler: TaskSampler = load("task_samplers", rule.sampler)(count, rule)
    return sampler
