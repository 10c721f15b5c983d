"""How an arm task pays: from success alone, or also for progress. Each is one class; terms are logged by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

Progress = Mapping[str, float]
"""Name -> how far a part of the task is done, from 0 to 1."""
Measure = Callable[[], Progress]
"""Measures the progress now; called only by rewards that pay for it."""


class Reward(Protocol):
    """Turns what a task measures into named reward terms; the reward is their sum."""

    def reset(self, measure: Measure) -> None:
        """A new episode begins in this state."""

    def terms(self, success: bool, measure: Measure) -> dict[str, float]:
        """Returns the terms of one step."""

    def nothing(self) -> dict[str, float]:
        """Returns the terms of a step that cannot be judged: all zero."""


class SparseReward:
    """Pays 1 at success and nothing else."""

    def reset(self, measure: Measure) -> None:
        """Has nothing to remember."""

    def terms(self, success: bool, measure: Measure) -> dict[str, float]:
        """Returns the single term."""
        return {"success": float(success)}

    def nothing(self) -> dict[str, float]:
        """Returns the single term, zero."""
        return {"success": 0.0}


class DenseReward:
    """Pays 1 at success and every gain in progress, takes it back when progress is lost.

    A difference of potentials (Ng, Harada and Russell 1999, "Policy invariance under reward transformations", with gamma = 1):
    waiting near the goal earns nothing, so an episode that ends at success is never worth delaying.
    """

    def __init__(self) -> None:
        self._before: dict[str, float] = {}

    def reset(self, measure: Measure) -> None:
        """Remembers where the episode starts."""
        self._before = dict(measure())

    def terms(self, success: bool, measure: Measure) -> dict[str, float]:
        """Returns success and the change of each part of the progress."""
        progress = measure()
        changes = {name: value - self._before[name] for name, value in progress.items()}
        self._before = dict(progress)
        return {"success": float(success), **changes}

    def nothing(self) -> dict[str, float]:
        """Returns every term, zero."""
        return dict.fromkeys(("success", *self._before), 0.0)


def closeness(distance: float, scale: float) -> float:
    """Returns 1 at distance 0, falling smoothly; 0.5 at `scale`, in the unit of the distance."""
    return 1.0 / (1.0 + (distance / scale) ** 2)


REWARDS: dict[str, type[SparseReward] | type[DenseReward]] = {"sparse": SparseReward, "dense": DenseReward}
