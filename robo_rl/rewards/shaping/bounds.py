"""Stages that bound the reward of each step."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from robo_rl.errors import require_allowed
from robo_rl.rewards.place import Place
from robo_rl.rewards.shaping.stage import Stage
from robo_rl.rewards.steps import Steps
from robo_rl.types import Labels


@dataclass(frozen=True)
class Clip(Stage):
    """Pays min(r - at, 0): what is good enough costs nothing, and no number of good steps adds up to a profit.

    The mechanism Clip of Gao et al. 2024, "On Designing Effective RL Reward at Training Time for LLM Reasoning"
    (arXiv:2410.15115), with their eta as `at`. Rewards are never above 0: where ending early is possible it may pay.
    """

    at: float
    """Reward of a step that is good enough."""

    def __post_init__(self) -> None:
        require_allowed(self, {"at": (bool(np.isfinite(self.at)), "a finite number")})

    @property
    def identity(self) -> dict[str, Any]:
        """The settings."""
        return asdict(self)

    def apply(self, steps: Steps, labels: Labels, place: Place) -> Labels:
        """Return min(r - at, 0)."""
        return Labels(np.minimum(labels.values - self.at, 0.0), labels.valid)


@dataclass(frozen=True)
class Bound(Stage):
    """Puts what is below `low` to `low`, and what is above `high` to `high`."""

    low: float = -np.inf
    """Lowest reward of a step."""
    high: float = np.inf
    """Highest reward of a step."""

    def __post_init__(self) -> None:
        require_allowed(self, {"low": (self.low < self.high, f"below high, which is {self.high}")})

    @property
    def identity(self) -> dict[str, Any]:
        """The settings."""
        return {name: str(value) for name, value in asdict(self).items()}

    def apply(self, steps: Steps, labels: Labels, place: Place) -> Labels:
        """Return what is within."""
        return Labels(np.clip(labels.values, self.low, self.high), labels.valid)
