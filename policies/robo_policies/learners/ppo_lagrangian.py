"""PPO with Lagrange multipliers: Ray, Achiam and Amodei 2019, "Benchmarking Safe Exploration in Deep Reinforcement Learning".

max over pi, min over lambda >= 0 of J(pi) - sum_c lambda_c (J_c(pi) - d_c); multipliers are those of `multipliers.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from robo_policies.learners.constrained import ConstrainedConfig, ConstrainedPPO
from robo_policies.learners.multipliers import MultiplierSettings, relative_violation
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Metrics, StateDict


@dataclass(frozen=True)
class PPOLagrangianConfig(ConstrainedConfig, MultiplierSettings):
    """Settings of PPO with Lagrange multipliers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_multiplier_allowed()

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
        self.multipliers = [config.multiplier_of() for _ in self.names]

    @override
    def constrain(self) -> None:
        for multiplier, cost, bound in zip(self.multipliers, self.episode_costs.tolist(), self.bounds.tolist(), strict=True):
            multiplier.update(relative_violation(cost, bound, self.config.largest_violation))

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
