"""Rewards of arm tasks: success alone, or also progress. Each is one class; terms are logged by name.

`...` is no axis for one environment, N for a batch of N.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from typing_extensions import override

from robo_sims.arm.physics import Array, Mask, Rows

Progress = Mapping[str, Array]
"""Name -> (...) how far a part of the task is done, from 0 to 1."""
Measure = Callable[[], Progress]
"""Measures the progress now; called only by rewards that pay for it."""


class SparseReward:
    """Pays 1 at success and nothing else. The reward is the sum of its terms."""

    def __init__(self) -> None:
        self.potential: dict[str, Array] = {}
        """name -> (...) progress that has been paid for"""

    def reset(self, measure: Measure, rows: Rows = ...) -> None:
        """Episodes begin in the present states of `rows`."""

    def terms(self, success: Mask, measure: Measure) -> dict[str, Array]:
        """Returns the terms (...) of one step by name."""
        return {"success": np.asarray(success, np.float64)}


class DenseReward(SparseReward):
    """Pays 1 at success and every gain in progress, takes it back when progress is lost.

    A difference of potentials (Ng, Harada and Russell 1999, "Policy invariance under reward transformations", with gamma = 1):
    waiting near the goal earns nothing, so an episode that ends at success is never worth delaying.
    """

    @override
    def reset(self, measure: Measure, rows: Rows = ...) -> None:
        for name, values in measure().items():
            potential = np.array(self.potential.get(name, values))
            potential[rows] = np.asarray(values)[rows]
            self.potential[name] = potential

    @override
    def terms(self, success: Mask, measure: Measure) -> dict[str, Array]:
        progress = measure()
        gains = {name: values - self.potential[name] for name, values in progress.items()}
        self.potential = dict(progress)
        return super().terms(success, measure) | gains


def closeness(distance: Array, scale: float) -> Array:
    """Returns 1 at distance 0, falling smoothly; 0.5 at `scale`, in the unit of the distance."""
    nearness: Array = 1.0 / (1.0 + np.float_power(distance / scale, 2))
    return nearness


def share(done: Array) -> Array:
    """Returns what is done, from 0 to 1."""
    return np.minimum(np.maximum(done, 0.0), 1.0)


REWARDS: dict[str, type[SparseReward]] = {"sparse": SparseReward, "dense": DenseReward}
