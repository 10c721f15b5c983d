"""Rewards of arm tasks: success alone, or also progress; terms are logged by name.

`...` is no axis for one environment, N for a batch of N.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from typing_extensions import override

from robo_sims.arm.physics import Array, Mask, Rows

Progress = Mapping[str, Array]
"""Part of the task -> progress (...) from 0 to 1."""
Measure = Callable[[], Progress]
"""Function that computes the present progress; called only by rewards that use it."""


class SparseReward:
    """Reward of 1 at success. The reward is the sum of its terms."""

    def __init__(self) -> None:
        self.potential: dict[str, Array] = {}
        """name -> (...) progress already rewarded"""

    def reset(self, measure: Measure, rows: Rows = ...) -> None:
        """Prepare the reward for a new episode in some simulations; a sparse reward has nothing to prepare.

        Args:
            measure: Quantities of the initial states.
            rows: Simulations that begin an episode.
        """

    def terms(self, success: Mask, measure: Measure) -> dict[str, Array]:
        """Return the terms (...) of one step by name."""
        return {"success": np.asarray(success, np.float64)}


class DenseReward(SparseReward):
    """Reward of 1 at success, plus the change in progress.

    Potential-based shaping (Ng, Harada and Russell 1999, "Policy invariance under reward transformations", with gamma = 1):
    waiting near the goal earns nothing, so delaying success does not pay.
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
    """Return 1 at distance 0, falling smoothly; 0.5 at `scale`, in the unit of the distance."""
    nearness: Array = 1.0 / (1.0 + np.float_power(distance / scale, 2))
    return nearness


def share(done: Array) -> Array:
    """Return values clipped to the range from 0 to 1."""
    return np.minimum(np.maximum(done, 0.0), 1.0)


REWARDS: dict[str, type[SparseReward]] = {"sparse": SparseReward, "dense": DenseReward}
