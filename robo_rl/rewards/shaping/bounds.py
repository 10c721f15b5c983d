"""Stages that bound the reward of each step."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from robo_rl.errors import require_allowed
from robo_rl.rewards.shaping.stage import Known, Place, RunningStage, Stateless, Values
from robo_rl.rewards.steps import Steps


@dataclass(frozen=True)
class Clip:
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

    def running(self, place: Place) -> RunningStage:
        """Returns the stage at work."""
        del place
        return _Bounded(-np.inf, 0.0, self.at)


@dataclass(frozen=True)
class Bound:
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

    def running(self, place: Place) -> RunningStage:
        """Returns the stage at work."""
        del place
        return _Bounded(self.low, self.high, 0.0)


class _Bounded(Stateless):
    """Bounds r - `taken`."""

    def __init__(self, low: float, high: float, taken: float) -> None:
        self._low, self._high, self._taken = low, high, taken

    def apply(self, steps: Steps, values: Values, known: Known) -> tuple[Values, Known]:
        del steps
        return np.clip(values - self._taken, self._low, self._high), known
