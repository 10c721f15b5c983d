"""Divides rewards by the running standard deviation of the discounted return, as many learners expect rewards near 1."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.rewards.place import Place
from robo_rl.rewards.shaping.stage import Stage
from robo_rl.rewards.steps import Steps
from robo_rl.types import Labels


@dataclass(frozen=True)
class Scale(Stage):
    """Divides by the standard deviation so far of the discounted sum of rewards; takes no mean away, which would move the goal.

    After Engstrom et al. 2020 (arXiv:2005.12729), as in Stable-Baselines3's VecNormalize. The scale changes while a policy
    learns: a replay memory then holds rewards of several scales. For on-policy learners.
    """

    least: float = 1e-4
    """Below it the standard deviation counts as this: a reward that is always the same is not blown up."""
    bound: float = 10.0
    """Largest magnitude of a scaled reward (VecNormalize: 10)."""
    discount: float | None = None
    """The learner's; of no use without a learner."""

    def __post_init__(self) -> None:
        require_allowed(self, {"least": (self.least > 0, "above 0"), "bound": (self.bound > 0, "above 0")})

    @property
    def identity(self) -> dict[str, Any]:
        """The settings."""
        return asdict(self)

    def require(self, place: Place) -> None:
        """Raise InvalidSetting for recorded episodes, whose labels must not depend on an order."""
        if place.is_recorded:
            raise InvalidSetting(
                "The stage scale follows the rewards of a training, and these episodes are recorded.",
                got="stage scale",
                fix="leave it out of what labels a dataset; weight brings rewards near 1 there",
            )
        place.discount_for("scale", self.discount)

    def apply(self, steps: Steps, labels: Labels, place: Place) -> Labels:
        """Return scaled rewards, all by the deviation after the last of them."""
        memory, discount = place.memory, place.discount_for("scale", self.discount)
        returns = memory.setdefault("returns", {})
        count, mean, spread = memory.get("moments", (0, 0.0, 0.0))  # spread: sum of squared deviations (Welford 1962)
        for row in np.flatnonzero(labels.valid).tolist():
            index = str(steps.index[row])
            before = 0.0 if steps.begins[row] else returns.get(index, 0.0)
            returns[index] = value = before * discount + float(labels.values[row])
            count, away = count + 1, value - mean
            mean += away / count
            spread += away * (value - mean)
        memory["moments"] = [count, mean, spread]
        deviation = max(float(np.sqrt(spread / max(count, 1))), self.least)
        return Labels(np.clip(labels.values / deviation, -self.bound, self.bound), labels.valid)
