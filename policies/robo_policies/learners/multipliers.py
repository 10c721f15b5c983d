"""Limits of constraint costs, and the Lagrange multipliers that enforce them.

max over pi, min over lambda >= 0 of J(pi) - sum_c lambda_c (J_c(pi) - d_c). The PID multiplier is algorithm 2 of Stooke, Achiam
and Abbeel 2020, "Responsive Safety in Reinforcement Learning by PID Lagrangian Methods", arXiv:2007.03964.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch

from robo_policies.learners.clipped_step import ClippedAdam
from robo_rl.errors import InvalidSetting, UnknownName, require_allowed
from robo_rl.spec.cost import PLAIN, CostSpec
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import StateDict


@dataclass(frozen=True)
class LimitSettings:
    """Settings field `limits`, common to learners with constraint costs: the largest sum of each cost over an episode."""

    limits: Mapping[str, float | str] = field(default_factory=dict)
    """Name of a cost -> largest sum of this cost over an episode, as a number or with its unit, such as 25 or "3 N s". A cost
    that is not named keeps the environment's limit."""

    def limits_of(self, spec: EnvironmentSpec) -> dict[str, float]:
        """Return for each cost of the environment its limit, by name, in alphabetical order.

        Raises:
            UnknownName: `limits` names a cost that the environment does not have.
            InvalidSetting: The environment has no costs, or a cost has no limit.
        """
        declared = {cost.name: cost for cost in spec.costs}
        if not declared and PLAIN in self.limits:
            declared = {PLAIN: CostSpec(PLAIN, 0.0)}
        for name in self.limits:
            if name not in declared:
                raise UnknownName(f"cost of {spec.name}", str(name), declared)
        if not declared:
            raise InvalidSetting(
                f"{spec.name} declares no constraint cost.",
                got="no costs in the spec",
                allowed="an environment with costs, such as hazards/Point-v0, or the wrapper constrained",
                fix='learner.limits {cost: 25} if its steps report info["cost"]; or another learner',
            )
        return {name: declared[name].limit_of(self.limits.get(name, declared[name].limit)) for name in sorted(declared)}


@dataclass(frozen=True)
class MultiplierSettings:
    """Settings group `multiplier`: how the Lagrange multiplier of each cost follows the violation of its limit.

    Either Adam or a PID controller updates it (`kind`).
    """

    kind: Literal["adam", "pid"] = "adam"
    """"adam" integrates the violation of the limit; "pid" adds terms proportional to the violation and to its growth."""
    initial: float = 0.0
    """Multiplier at the start [scaled reward per scaled cost]; 0 or more."""
    lr: float = 0.035
    """Learning rate of Adam; 0 freezes the multiplier."""
    kp: float = 0.25
    """PID: gain of the relative violation (J_C - d) / d, with J_C the cost of an episode and d its limit."""
    ki: float = 0.05
    """PID: gain of the sum of the relative violations."""
    kd: float = 0.25
    """PID: gain of the growth of the relative violation over `delay` rollouts; a decline counts as 0."""
    delay: int = 10
    """PID: number of rollouts over which growth is measured."""
    smoothing: float = 0.7
    """PID: weight of the past in the moving average of the violation, 0 to below 1."""

    largest_violation: float = 10.0
    """Largest relative violation that counts; larger ones are clipped to it. The smallest is -1 (no cost), so with 1 a
    multiplier can fall as fast as it rises."""

    def __post_init__(self) -> None:
        gains = ("initial", "lr", "kp", "ki", "kd")
        allowed = {name: (getattr(self, name) >= 0, "0 or more") for name in gains}
        allowed |= {"delay": (self.delay >= 1, "1 or more"), "smoothing": (0 <= self.smoothing < 1, "0 to below 1")}
        allowed |= {"largest_violation": (self.largest_violation > 0, "above 0")}
        require_allowed(self, allowed, group="multiplier")

    def build(self) -> PIDMultiplier | AdamMultiplier:
        """Build a multiplier of the chosen `kind`, at its initial value."""
        return PIDMultiplier(self) if self.kind == "pid" else AdamMultiplier(self)


def relative_violation(cost: float, limit: float, largest: float) -> float:
    """Return the relative violation (J_C - d) / d of a limit d by a cost J_C, at most `largest`.

    With d = 0 it is J_C itself, at most `largest`.
    """
    return min((cost - limit) / (limit or 1.0), largest)


class AdamMultiplier:
    """Lagrange multiplier lambda <- max(0, lambda + step), with steps of Adam along the relative violation of a limit."""

    def __init__(self, config: MultiplierSettings) -> None:
        self._adam = ClippedAdam([torch.tensor([config.initial])], config.lr, epsilon=1e-8)

    @property
    def value(self) -> float:
        """The Lagrange multiplier lambda, 0 or more."""
        return float(self._adam.flat)

    def update(self, violation: float) -> None:
        """Update lambda with the relative violation (J_C - d) / d of the newest rollout or episode."""
        self._adam.norms.clear()
        self._adam.step(torch.tensor([-violation]))
        self._adam.flat.clamp_(min=0.0)

    def state_dict(self) -> StateDict:
        """Return lambda and the moments of Adam, to save them."""
        return {"value": self.value, **{name: float(moment) for name, moment in self._adam.state.items()}}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore the state returned by `state_dict`."""
        for name, tensor in {"value": self._adam.flat, **self._adam.state}.items():
            tensor.fill_(state[name])


class PIDMultiplier:
    """Lagrange multiplier of a PID controller: lambda = max(0, kp m + ki sum e + kd growth of m).

    e is the relative violation of the limit, m its moving average. The sum never falls below 0, and a decline of m counts as a
    growth of 0.
    """

    def __init__(self, config: MultiplierSettings) -> None:
        self._config, self.value = config, config.initial
        self._sum = config.initial
        self._smoothed: float | None = None
        self._past = deque[float](maxlen=config.delay)

    def update(self, violation: float) -> None:
        """Update lambda with the relative violation (J_C - d) / d of the newest rollout or episode."""
        config, keep = self._config, self._config.smoothing
        self._sum = max(0.0, self._sum + config.ki * violation)
        self._smoothed = violation if self._smoothed is None else keep * self._smoothed + (1.0 - keep) * violation
        growth = max(0.0, self._smoothed - self._past[0]) if self._past else 0.0
        self._past.append(self._smoothed)
        self.value = max(0.0, config.kp * self._smoothed + self._sum + config.kd * growth)

    def state_dict(self) -> StateDict:
        """Return lambda, the sum and the recent violations."""
        smoothed = [] if self._smoothed is None else [self._smoothed]
        return {"value": self.value, "sum": self._sum, "smoothed": smoothed, "past": list(self._past)}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore the state returned by `state_dict`."""
        self.value, self._sum = float(state["value"]), float(state["sum"])
        self._smoothed = next((float(value) for value in state["smoothed"]), None)
        self._past = deque([float(value) for value in state["past"]], maxlen=self._config.delay)
