"""Compare the magnitude of foreign observations with that in their environment, to notice another unit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from robo_rl.rollout.episode import RandomPolicy, Rollout
from robo_rl.spec.environment import EnvironmentSpec, specification
from robo_rl.types import Episode

EPISODES, STEPS = 2, 50
"""number of episodes, and largest number of steps of each, that are played with random actions to measure the environment"""
MORE = 10.0
"""ratio of the magnitudes above which the unit may differ: degrees are 57 times radians, percent 100 times shares"""


class Extremes:
    """Largest magnitude of each observation of type float, over all episodes that were added."""

    def __init__(self) -> None:
        self._most: dict[str, float] = {}

    def add(self, episode: Episode) -> None:
        """Raise the largest magnitudes to those of an episode's observations of type float; NaN is ignored."""
        for name, values in episode.observations.items():
            if values.dtype.kind == "f":
                self._most[name] = max(self._most.get(name, 0.0), float(np.nanmax(np.abs(values), initial=0.0)))

    @property
    def found(self) -> Mapping[str, float]:
        """Name of an observation -> largest absolute value that has been seen so far."""
        return self._most

    def lines(self, shown: Mapping[str, float], spec: EnvironmentSpec) -> list[str]:
        """Return a remark on each observation that is more than MORE times as large as in the environment.

        Args:
            shown: Observation -> largest magnitude in the environment, as `shown_by` returns it.
            spec: Spec of the environment.
        """
        return [
            f"observation {name} reaches {self._most[name]:.4g}, {size:.3g} in {EPISODES} short episodes of {spec.name} (unit "
            f"{spec.observation[name].unit or 'none'}): another unit? --observation-scales {name} FACTOR"
            for name, size in shown.items()
            if size > 0 and self._most.get(name, 0.0) > MORE * size
        ]


def shown_by(environment: gymnasium.Env[Any, Any]) -> Mapping[str, float]:
    """Play short episodes with random actions, and return observation -> largest magnitude, for observations of type float."""
    extremes, policy = Extremes(), RandomPolicy(specification(environment), seed=0)
    for seed in range(EPISODES):
        rollout = Rollout(environment, policy, seed=seed)
        while not rollout.done and len(rollout) < STEPS:
            rollout.step()
        if not rollout.done:
            rollout.cut("time_limit")
        extremes.add(rollout.episode())
    return extremes.found
