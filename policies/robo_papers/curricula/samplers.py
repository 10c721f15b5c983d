"""Samplers of training tasks by what their outcomes tell.

Prioritised level replay: Jiang, Grefenstette and Rocktaeschel 2021, arXiv:2010.03934. Learnability: Rutherford et al. 2024,
"No Regrets", arXiv:2408.15099. Gain: Matiisen et al. 2017, "Teacher-Student Curriculum Learning", arXiv:1707.00183. Hints of
adaptive length: SEELE, GHPO. n tasks, numbered from 0.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.environments.task_samplers import SamplerRule, TaskSampler
from robo_rl.errors import require_allowed
from robo_rl.settings import settings_as
from robo_rl.types import StateDict

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ReplaySettings:
    """Settings of the sampler `replay`, prioritised level replay (Jiang et al. 2021)."""

    rank_power: float = 0.1
    """Temperature of the weights by rank: small values prefer the highest ranks."""
    staleness: float = 0.1
    """Share of the weights that goes to tasks by the time since they were seen, 0 to 1."""

    def __post_init__(self) -> None:
        shares = {"staleness": (0.0 <= self.staleness <= 1.0, "0 to 1")}
        require_allowed(self, shares | {"rank_power": (self.rank_power > 0, "above 0")})


@dataclass(frozen=True)
class LogisticSettings:
    """Settings of the sampler `logistic`, which fits success to difficulty."""

    memory: int = 48
    """Number of newest episodes that are fitted; 0 for all, the control condition."""

    def __post_init__(self) -> None:
        require_allowed(self, {"memory": (self.memory >= 0, "0 or more")})


class LearnabilitySampler(TaskSampler):
    """Sampler that draws tasks in proportion to p (1 - p), with p the running success rate (learnability)."""

    @override
    def choose(self, generator: np.random.Generator) -> int:
        weights = self.success * (1.0 - self.success) + 1e-6
        return int(generator.choice(self.count, p=weights / weights.sum()))


class ReplaySampler(TaskSampler):
    """Sampler of prioritised level replay: tasks by the rank of their surprise, and by the time since they were seen.

    New tasks come with the share of those that were not seen. Differs from the paper: the score is the distance of the return
    from its running mean, in place of the critic's error, so that the sampler needs no critic.
    """

    def __init__(self, count: int, rule: SamplerRule) -> None:
        super().__init__(count, rule)
        self._settings = settings_as(ReplaySettings, rule.settings, source="curriculum.settings")

    @override
    def choose(self, generator: np.random.Generator) -> int:
        seen = np.flatnonzero(self.seen)
        if generator.random() >= len(seen) / self.count:
            return int(generator.choice(np.flatnonzero(self.seen == 0)))
        weights = self.weights(seen)
        return int(generator.choice(seen, p=weights))

    def weights(self, seen: npt.NDArray[np.int64]) -> Floats:
        """Return the probability (K,) that each of the tasks `seen` (K,), numbers of tasks, is drawn next."""
        ranks = np.empty(len(seen))
        ranks[np.argsort(-self.surprise[seen], kind="stable")] = np.arange(1, len(seen) + 1)
        by_rank = ranks ** (-1.0 / self._settings.rank_power)
        ages = (self.last.max() - self.last[seen]).astype(np.float64)
        by_age = ages / ages.sum() if ages.any() else np.full(len(seen), 1.0 / len(seen))
        share = self._settings.staleness
        return np.asarray((1.0 - share) * by_rank / by_rank.sum() + share * by_age)


class LogisticSampler(TaskSampler):
    """Sampler that takes the task whose success rate is nearest to one half by a logistic fit, as in SEELE.

    The newest episodes are fitted.
    """

    is_ordered = True

    def __init__(self, count: int, rule: SamplerRule) -> None:
        super().__init__(count, rule)
        settings = settings_as(LogisticSettings, rule.settings, source="curriculum.settings")
        self._newest: deque[tuple[int, bool]] = deque(maxlen=settings.memory or None)

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


def fitted_logistic(places: Floats, outcomes: Floats, ridge: float = 0.1, iterations: int = 20) -> tuple[float, float]:
    """Fit p(x) = sigmoid(slope x + offset) to outcomes by Newton's method; return slope and offset.

    Args:
        places: (K,) x, the difficulty of each task.
        outcomes: (K,) in [0, 1].
        ridge: Weight of the squared slope and offset, so that outcomes that are all alike have a solution.
        iterations: Number of Newton's steps.
    """
    design = np.stack([places, np.ones_like(places)], 1)
    found = np.zeros(2)
    for _ in range(iterations):
        rates = 1.0 / (1.0 + np.exp(-np.clip(design @ found, -30.0, 30.0)))
        gradient = design.T @ (outcomes - rates) - ridge * found
        hessian = (design * (rates * (1.0 - rates))[:, None]).T @ design + ridge * np.eye(2)
        found = found + np.linalg.solve(hessian, gradient)
    return float(found[0]), float(found[1])
