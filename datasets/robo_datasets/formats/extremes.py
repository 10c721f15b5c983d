"""Observations of foreign data, compared with those of their environment: another unit is seen by its size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from robo_rl.rollout.episode import RandomPolicy, Rollout
from robo_rl.spec.environment import EnvironmentSpec, specification
from robo_rl.types import Episode

EPISODES, STEPS = 2, 50
"""Played with random actions to see how large observations are."""
MORE = 10.0
"""Times as large as in the environment: degrees are 57 times radians, percent 100, millimetres 1000 times metres."""


class Extremes:
    """Largest magnitude of each observation of numbers."""

    def __init__(self) -> None:
        self._most: dict[str, float] = {}

    def add(self, episode: Episode) -> None:
        """Take the observations of an episode."""
        for name, values in episode.observations.items():
            if values.dtype.kind == "f":
                self._most[name] = max(self._most.get(name, 0.0), float(np.nanmax(np.abs(values), initial=0.0)))

    @property
    def found(self) -> Mapping[str, float]:
        """Observation -> largest magnitude."""
        return self._most

    def lines(self, shown: Mapping[str, float], spec: EnvironmentSpec) -> list[str]:
        """Return a remark on each observation that is far larger than in the environment."""
        return [
            f"observation {name} reaches {self._most[name]:.4g}, {size:.3g} in {EPISODES} short episodes of {spec.name} (unit "
            f"{spec.observation[name].unit or 'none'}): another unit? --observation-scales {name} FACTOR"
            for name, size in shown.items()
            if size > 0 and self._most.get(name, 0.0) > MORE * size
        ]


def shown_by(environment: gymnasium.Env[Any, Any]) -> Mapping[str, float]:
    """Play short episodes of random actions and return the largest magnitude of each observation of numbers."""
    extremes, policy = Extremes(), RandomPolicy(specification(environment), seed=0)
    for seed in range(EPISODES):
        rollout = Rollout(environment, policy, seed=seed)
        while not rollout.done and len(rollout) < STEPS:
            rollout.step()
        if not rollout.done:
            rollout.cut("time_limit")
        extremes.add(rollout.episode())
    return extremes.found
