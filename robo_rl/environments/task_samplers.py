"""Samplers of training tasks: which level, variant or hint comes next, given the successes so far.

Prioritised level replay: Jiang, Grefenstette and Rocktaeschel 2021, arXiv:2010.03934. Learnability: Rutherford et al. 2024,
"No Regrets", arXiv:2408.15099. Gain: Matiisen et al. 2017, "Teacher-Student Curriculum Learning", arXiv:1707.00183. Hints of
adaptive length: SEELE, GHPO. n tasks, numbered from 0; those of an ordered sampler from the easiest, 0, to the task itself,
n - 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.errors import UnknownName, require_allowed
from robo_rl.protocols.components import Stateful
from robo_rl.types import Metrics, StateDict

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SamplerRule:
    """Settings of the samplers."""

    sampler: str = ""
    """uniform, learnability, gain or replay; for tasks in the order of their difficulty also frontier, logistic or ladder."""
    uniform_share: float = 0.2
    """Share of the episodes that begin with any of the tasks, for estimates that stay fresh."""
    rate: float = 0.3
    """Weight of the newest episode in the running success rate of a task."""
    slow_rate: float = 0.05
    """gain: weight of the newest episode in the slower success rate, which the first is compared with."""
    easy: float = 0.6
    """frontier: success rate from which the next harder task is trained."""
    hard: float = 0.1
    """frontier: success rate below which it is the easier one again."""
    least_episodes: int = 8
    """frontier: episodes of a task before the next decision. ladder: episodes of a rung."""
    memory: int = 48
    """logistic: newest episodes that are fitted; 0 for all, the control."""
    rank_power: float = 0.1
    """replay: temperature of the weights by rank."""
    staleness: float = 0.1
    """replay: share of the weights for tasks that were not seen for long."""

    def __post_init__(self) -> None:
        shares = ("uniform_share", "rate", "slow_rate", "easy", "hard", "staleness")
        allowed = {name: (0.0 <= getattr(self, name) <= 1.0, "0 to 1") for name in shares}
        allowed |= {name: (getattr(self, name) >= 1, "1 or more") for name in ("least_episodes",)}
        allowed |= {"memory": (self.memory >= 0, "0 or more"), "rank_power": (self.rank_power > 0, "above 0")}
        require_allowed(self, allowed)


class TaskSampler(Stateful, ABC):
    """Draws tasks, and counts their outcomes."""

    is_ordered = False
    """True if the tasks must come in the order of their difficulty."""

    def __init__(self, count: int, rule: SamplerRule) -> None:
        self.count, self.rule = count, rule
        self.success = np.full(count, 0.5)
        """Running success rate of each task, 0.5 before its first episode."""
        self.seen = np.zeros(count, np.int64)
        """Episodes of each task."""
        self.last = np.zeros(count, np.int64)
        """Number of its newest episode."""
        self.surprise = np.zeros(count)
        """Running mean distance of the score from its mean."""
        self._mean = np.zeros(count)

    def sample(self, generator: np.random.Generator) -> int:
        """Return the number of the next task."""
        if generator.random() < self.rule.uniform_share:
            return int(generator.integers(self.count))
        return self.choose(generator)

    @abstractmethod
    def choose(self, generator: np.random.Generator) -> int:
        """Return the number of a task by the sampler's own rule."""

    def report(self, task: int, *, success: bool, score: float) -> None:
        """Count an episode; score: such as its return."""
        rate = self.rule.rate
        if not self.seen[task]:
            self._mean[task] = score
        self.surprise[task] += rate * (abs(score - self._mean[task]) - self.surprise[task])
        self._mean[task] += rate * (score - self._mean[task])
        self.success[task] += rate * (float(success) - self.success[task])
        self.seen[task] += 1
        self.last[task] = self.seen.sum()

    def forget(self, task: int) -> None:
        """Take the task for a new one."""
        self.success[task], self.seen[task], self.surprise[task], self._mean[task] = 0.5, 0, 0.0, 0.0

    @property
    def metrics(self) -> Metrics:
        """Share of the tasks that were seen, that are hard, of use and easy, by their running success rates."""
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
    """All tasks alike."""

    @override
    def choose(self, generator: np.random.Generator) -> int:
        return int(generator.integers(self.count))


class LearnabilitySampler(TaskSampler):
    """Tasks by p (1 - p), p the running success rate."""

    @override
    def choose(self, generator: np.random.Generator) -> int:
        weights = self.success * (1.0 - self.success) + 1e-6
        return int(generator.choice(self.count, p=weights / weights.sum()))


class GainSampler(TaskSampler):
    """Tasks by the student's newest gain or loss: the distance of the running success rate from a slower one.

    Both begin at 0, so that a task that never succeeded has none.
    """

    def __init__(self, count: int, rule: SamplerRule) -> None:
        super().__init__(count, rule)
        self.fast, self.slow = np.zeros(count), np.zeros(count)

    @override
    def choose(self, generator: np.random.Generator) -> int:
        weights = self.paid() + 1e-3
        return int(generator.choice(self.count, p=weights / weights.sum()))

    @override
    def forget(self, task: int) -> None:
        super().forget(task)
        self.fast[task] = self.slow[task] = 0.0

    def paid(self) -> Floats:
        """Return the teacher's pay for each task (n,)."""
        return np.asarray(np.abs(self.fast - self.slow))

    @override
    def report(self, task: int, *, success: bool, score: float) -> None:
        super().report(task, success=success, score=score)
        self.fast[task] += self.rule.rate * (float(success) - self.fast[task])
        self.slow[task] += self.rule.slow_rate * (float(success) - self.slow[task])

    @override
    def state_dict(self) -> StateDict:
        return super().state_dict() | {"fast": self.fast.copy(), "slow": self.slow.copy()}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        self.fast, self.slow = np.array(state["fast"]), np.array(state["slow"])


class ReplaySampler(TaskSampler):
    """Prioritised level replay: tasks by the rank of their surprise, and by the time since they were seen.

    New tasks come with the share of those that were not seen. Differs from the paper: the score is the distance of the return
    from its running mean, in place of the critic's error, so that the sampler needs no critic.
    """

    @override
    def choose(self, generator: np.random.Generator) -> int:
        seen = np.flatnonzero(self.seen)
        if generator.random() >= len(seen) / self.count:
            return int(generator.choice(np.flatnonzero(self.seen == 0)))
        weights = self.weights(seen)
        return int(generator.choice(seen, p=weights))

    def weights(self, seen: npt.NDArray[np.int64]) -> Floats:
        """Return the probability of each of the tasks `seen` (K,)."""
        ranks = np.empty(len(seen))
        ranks[np.argsort(-self.surprise[seen], kind="stable")] = np.arange(1, len(seen) + 1)
        by_rank = ranks ** (-1.0 / self.rule.rank_power)
        ages = (self.last.max() - self.last[seen]).astype(np.float64)
        by_age = ages / ages.sum() if ages.any() else np.full(len(seen), 1.0 / len(seen))
        share = self.rule.staleness
        return np.asarray((1.0 - share) * by_rank / by_rank.sum() + share * by_age)


class FrontierSampler(TaskSampler):
    """The hardest task so far: the next one if it succeeds often enough, the one before if it hardly ever does."""

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


class LogisticSampler(TaskSampler):
    """The task whose success rate is nearest to one half by a logistic fit over the newest episodes, as in SEELE."""

    is_ordered = True

    def __init__(self, count: int, rule: SamplerRule) -> None:
        super().__init__(count, rule)
        self._newest: deque[tuple[int, bool]] = deque(maxlen=rule.memory or None)

    @override
    def choose(self, generator: np.random.Generator) -> int:
        if not self._newest:
            return 0
        places = np.array([task for task, _ in self._newest]) / max(self.count - 1, 1)
        slope, offset = fitted_logistic(places, np.array([success for _, success in self._newest], np.float64))
        margins = slope * np.arange(self.count) / max(self.count - 1, 1) + offset
        return int(np.argmin(np.abs(margins)))

    @override
    def report(self, task: int, *, success: bool, score: float) -> None:
        super().report(task, success=success, score=score)
        self._newest.append((task, success))

    @override
    def state_dict(self) -> StateDict:
        return super().state_dict() | {"newest": [[task, int(success)] for task, success in self._newest]}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        self._newest.clear()
        self._newest.extend((int(task), bool(success)) for task, success in state["newest"])


class LadderSampler(TaskSampler):
    """The task itself for some episodes; easier ones as long as all of these failed, as in GHPO."""

    is_ordered = True

    def __init__(self, count: int, rule: SamplerRule) -> None:
        super().__init__(count, rule)
        self._rung, self._tried = count - 1, 0
        self._has_succeeded = False

    @override
    def choose(self, generator: np.random.Generator) -> int:
        return self._rung

    @override
    def report(self, task: int, *, success: bool, score: float) -> None:
        super().report(task, success=success, score=score)
        if task != self._rung:
            return
        self._tried, self._has_succeeded = self._tried + 1, self._has_succeeded or success
        if self._tried >= self.rule.least_episodes:
            self._rung = self.count - 1 if self._has_succeeded or not task else task - 1
            self._tried, self._has_succeeded = 0, False

    @override
    def state_dict(self) -> StateDict:
        return super().state_dict() | {"rung": self._rung, "tried": self._tried, "has_succeeded": self._has_succeeded}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        self._rung, self._tried = int(state["rung"]), int(state["tried"])
        self._has_succeeded = bool(state["has_succeeded"])


SAMPLERS: dict[str, Callable[[int, SamplerRule], TaskSampler]] = {
    "uniform": UniformSampler,
    "learnability": LearnabilitySampler,
    "gain": GainSampler,
    "replay": ReplaySampler,
    "frontier": FrontierSampler,
    "logistic": LogisticSampler,
    "ladder": LadderSampler,
}


def sampler_of(count: int, rule: SamplerRule) -> TaskSampler:
    """Return the sampler of a rule for that many tasks; raises UnknownName."""
    if rule.sampler not in SAMPLERS:
        raise UnknownName("task sampler", rule.sampler, SAMPLERS)
    return SAMPLERS[rule.sampler](count, rule)


def fitted_logistic(places: Floats, outcomes: Floats, ridge: float = 0.1, iterations: int = 20) -> tuple[float, float]:
    """Return slope and offset of p(x) = sigmoid(slope x + offset) for outcomes (K,) in [0, 1], by Newton's method.

    ridge: weight of the squared slope and offset, so that outcomes that are all alike have a solution.
    """
    design = np.stack([places, np.ones_like(places)], 1)
    found = np.zeros(2)
    for _ in range(iterations):
        rates = 1.0 / (1.0 + np.exp(-np.clip(design @ found, -30.0, 30.0)))
        gradient = design.T @ (outcomes - rates) - ridge * found
        hessian = (design * (rates * (1.0 - rates))[:, None]).T @ design + ridge * np.eye(2)
        found = found + np.linalg.solve(hessian, gradient)
    return float(found[0]), float(found[1])
