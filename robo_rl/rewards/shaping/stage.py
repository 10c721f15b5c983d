"""What a stage promises a pipeline."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from robo_rl.rewards.place import Place
from robo_rl.rewards.steps import Steps
from robo_rl.types import Labels


class Stage(ABC):
    """A stage between a reward and the policy: a frozen dataclass of settings. What it remembers is in the place's memory."""

    @property
    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Plain values that the rewards follow from."""

    @abstractmethod
    def apply(self, steps: Steps, labels: Labels, place: Place) -> Labels:
        """Return the rewards of steps as this stage has them, float64; the value of a missing one is 0, before and after."""

    def require(self, place: Place) -> None:  # noqa: B027 - most stages work everywhere
        """Raise InvalidSetting if it cannot work in that place."""

    def entries(self, place: Place) -> Sequence[str]:
        """Return the entries of an observation that it looks at."""
        return ()
