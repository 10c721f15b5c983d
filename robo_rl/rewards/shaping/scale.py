"""Divides rewards by the running standard deviation of the discounted return, as many learners expect rewards near 1."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.rewards.shaping.stage import Known, Place, RunningStage, Values
from robo_rl.rewards.steps import Steps
from robo_rl.types import StateDict


@dataclass(frozen=True)
class Scale:
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

    def running(self, place: Place) -> RunningStage:
        """Returns the stage at work; raises InvalidSetting for recorded episodes, whose labels must not depend on an order."""
        if place.is_recorded:
            raise InvalidSetting(
                "The stage scale follows the rewards of a training, and these episodes are recorded.",
                got="stage scale",
                fix="leave it out of what labels a dataset; weight brings rewards near 1 there",
            )
        return _Running(self, place.discount_for("scale", self.discount))


class _Running:
    def __init__(self, stage: Scale, discount: float) -> None:
        self._stage, self._discount = stage, discount
        self._returns: dict[int, float] = {}
        self._count, self._mean, self._spread = 0, 0.0, 0.0  # spread: sum of squared deviations (Welford 1962)

    @property
    def entries(self) -> tuple[str, ...]:
        return ()

    def apply(self, steps: Steps, values: Values, known: Known) -> tuple[Values, Known]:
        for row, index in enumerate(steps.index.tolist()):
            if known[row]:
                before = 0.0 if steps.begins[row] else self._returns.get(index, 0.0)
                self._returns[index] = before * self._discount + float(values[row])
                self._take_in(self._returns[index])
        deviation = max(float(np.sqrt(self._spread / max(self._count, 1))), self._stage.least)
        return np.clip(values / deviation, -self._stage.bound, self._stage.bound), known

    def _take_in(self, value: float) -> None:
        self._count += 1
        away = value - self._mean
        self._mean += away / self._count
        self._spread += away * (value - self._mean)

    def restart(self) -> None:
        self._returns.clear()

    def state_dict(self) -> StateDict:
        returns = {str(index): value for index, value in self._returns.items()}
        return {"returns": returns, "moments": [self._count, self._mean, self._spread]}

    def load_state_dict(self, state: StateDict) -> None:
        self._returns = {int(index): value for index, value in state["returns"].items()}
        self._count, self._mean, self._spread = state["moments"]
