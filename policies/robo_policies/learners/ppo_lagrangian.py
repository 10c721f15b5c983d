"""PPO with Lagrange multipliers: Ray, Achiam and Amodei 2019, "Benchmarking Safe Exploration in Deep Reinforcement Learning".

max over pi, min over lambda >= 0 of J(pi) - sum_c lambda_c (J_c(pi) - d_c). The PID multiplier is algorithm 2 of Stooke, Achiam
and Abbeel 2020, "Responsive Safety in Reinforcement Learning by PID Lagrangian Methods", arXiv:2007.03964.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from robo_policies.learners.constrained import ConstrainedConfig, ConstrainedPPO
from robo_rl.errors import require_allowed
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Metrics, StateDict


@dataclass(frozen=True)
class PPOLagrangianConfig(ConstrainedConfig):
    """Settings of PPO with Lagrange multipliers."""

    multiplier: Literal["adam", "pid"] = "adam"
    """"adam" integrates the violation; "pid" adds terms that are proportional to it and to its growth."""
    initial_multiplier: float = 0.0
    """[scaled reward per scaled cost] at the start."""
    multiplier_lr: float = 0.035
    """Learning rate of Adam; 0 freezes the multiplier."""
    kp: float = 0.25
    """Gain of the relative violation (J_C - d) / max(d, 1)."""
    ki: float = 0.05
    """Gain of its sum."""
    kd: float = 0.25
    """Gain of its growth over `delay` rollouts."""
    delay: int = 10
    """Rollouts over which growth is measured."""
    smoothing: float = 0.7
    """Weight of the past in the moving averages of violation and growth of the PID multiplier."""

    def __post_init__(self) -> None:
        super().__post_init__()
        gains = ("initial_multiplier", "multiplier_lr", "kp", "ki", "kd")
        allowed = {name: (getattr(self, name) >= 0, "0 or more") for name in gains}
        allowed |= {"delay": (self.delay >= 1, "1 or more"), "smoothing": (0 <= self.smoothing < 1, "0 to below 1")}
        require_allowed(self, allowed)

    @override
    def build(self, spec: EnvironmentSpec, seed: int, *, steps: int = 0) -> PPOLagrangian:
        return PPOLagrangian(spec, self, seed, rollouts=math.ceil(steps / self.rollout_size))


class PPOLagrangian(ConstrainedPPO):
    """PPO on A - sum_c lambda_c A_c."""

    config: PPOLagrangianConfig

    def __init__(self, spec: EnvironmentSpec, config: PPOLagrangianConfig, seed: int, *, rollouts: int = 0) -> None:
        super().__init__(spec, config, seed, rollouts=rollouts)
        self.bounds = np.array([self.limits[name] for name in self.names])
        """(C,) d"""
        kind = PIDMultiplier if config.multiplier == "pid" else AdamMultiplier
        self.multipliers: list[PIDMultiplier | AdamMultiplier] = [kind(config) for _ in self.names]

    @override
    def constrain(self) -> None:
        violations = (self.episode_costs - self.bounds) / np.maximum(self.bounds, 1.0)
        for multiplier, violation in zip(self.multipliers, violations.tolist(), strict=True):
            multiplier.update(violation)

    @override
    def weigh(self, advantages: Tensor, cost_advantages: Tensor) -> Tensor:
        weights = torch.tensor([each.value for each in self.multipliers], device=self.device)
        return (advantages - cost_advantages @ weights) / (1.0 + weights.sum())

    @override
    def constraint_metrics(self) -> Metrics:
        """Return lambda in units of reward per cost."""
        scales = self.buffer.reward_deviation / self.buffer.deviations
        pairs = zip(self.names, self.multipliers, scales.tolist(), strict=True)
        return {f"train/multiplier_{name}": each.value * scale for name, each, scale in pairs}

    @override
    def state_dict(self) -> StateDict:
        return super().state_dict() | {"multipliers": [each.state_dict() for each in self.multipliers]}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        for each, saved in zip(self.multipliers, state["multipliers"], strict=True):
            each.load_state_dict(saved)


class AdamMultiplier:
    """lambda <- max(0, lambda + step) with steps of Adam along the relative violation."""

    def __init__(self, config: PPOLagrangianConfig) -> None:
        self._parameter = torch.nn.Parameter(torch.tensor(config.initial_multiplier))
        self._optimizer = torch.optim.Adam([self._parameter], lr=config.multiplier_lr)

    @property
    def value(self) -> float:
        """Return lambda."""
        return float(self._parameter.detach())

    def update(self, violation: float) -> None:
        """Ascend lambda times violation."""
        self._parameter.grad = torch.tensor(-violation)
        self._optimizer.step()
        self._parameter.data.clamp_(min=0.0)

    def state_dict(self) -> StateDict:
        """Return lambda and Adam's moments."""
        state = self._optimizer.state.get(self._parameter, {})
        return {"value": self.value, **{name: float(moment) for name, moment in state.items()}}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore the state returned by `state_dict`."""
        self._parameter.data.fill_(state["value"])
        moments = {name: torch.tensor(value) for name, value in state.items() if name != "value"}
        if moments:
            self._optimizer.state[self._parameter] = moments


class PIDMultiplier:
    """lambda = max(0, kp e + ki sum e + kd growth of e); the sum never falls below 0, and growth counts, decline does not."""

    def __init__(self, config: PPOLagrangianConfig) -> None:
        self._config, self.value = config, config.initial_multiplier
        self._sum = config.initial_multiplier
        self._smoothed: float | None = None
        self._past = deque[float](maxlen=config.delay)

    def update(self, violation: float) -> None:
        """Take in the violation of a rollout."""
        config, keep = self._config, self._config.smoothing
        self._sum = max(0.0, self._sum + config.ki * violation)
        self._smoothed = violation if self._smoothed is None else keep * self._smoothed + (1.0 - keep) * violation
        growth = max(0.0, self._smoothed - self._past[0]) if self._past else 0.0
        self._past.append(self._smoothed)
        self.value = max(0.0, config.kp * self._smoothed + self._sum + config.kd * growth)

    def state_dict(self) -> StateDict:
        """Return lambda, the sum and the recent violations."""
        smoothed = np.nan if self._smoothed is None else self._smoothed
        return {"value": self.value, "sum": self._sum, "smoothed": smoothed, "past": list(self._past)}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore the state returned by `state_dict`."""
        self.value, self._sum = float(state["value"]), float(state["sum"])
        self._smoothed = None if np.isnan(state["smoothed"]) else float(state["smoothed"])
        self._past = deque([float(value) for value in state["past"]], maxlen=self._config.delay)
