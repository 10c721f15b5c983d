"""PPO with Lagrange multipliers: Ray, Achiam and Amodei 2019, "Benchmarking Safe Exploration in Deep Reinforcement Learning".

max over pi, min over lambda >= 0 of J(pi) - sum_c lambda_c (J_c(pi) - d_c); multipliers are those of `multipliers.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from robo_policies.learners.constrained import ConstrainedSettings, Costs
from robo_policies.learners.multipliers import MultiplierSettings, relative_violation
from robo_policies.learners.ppo import Constraint
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.training.on_policy import VectorStep
from robo_rl.training.rollout_buffer import RolloutBuffer
from robo_rl.types import Metrics, StateDict


@dataclass(frozen=True)
class PPOLagrangianConfig(ConstrainedSettings):
    """Settings of PPO-Lagrangian (Ray et al. 2019): PPO that keeps costs below limits by Lagrange multipliers.

    Its own field sets how the multipliers follow the violation of the limits.
    """

    multiplier: MultiplierSettings = MultiplierSettings()
    """How the Lagrange multipliers are updated."""

    @override
    def constraint(self, spec: EnvironmentSpec, seed: int) -> Lagrangian:
        return Lagrangian(Costs(spec, self, seed), self.multiplier)


class Lagrangian(Constraint):
    """Hooks that add Lagrange multipliers to PPO: the policy is updated by A - sum_c lambda_c A_c."""

    def __init__(self, costs: Costs, settings: MultiplierSettings) -> None:
        self.costs, self._settings = costs, settings
        self.multipliers = [settings.build() for _ in costs.names]

    @override
    def begin(self) -> None:
        self.costs.rollout.begin()

    @override
    def observe(self, step: VectorStep, buffer: RolloutBuffer) -> None:
        self.costs.observe(step, buffer)

    @override
    def adapt(self) -> None:
        if len(self.costs.count()):
            self.ascend()

    def ascend(self) -> None:
        """Update the Lagrange multiplier of each cost by the relative violation of its limit in the newest rollout."""
        pairs = zip(self.costs.per_episode.tolist(), self.costs.bounds.tolist(), strict=True)
        for multiplier, (cost, bound) in zip(self.multipliers, pairs, strict=True):
            multiplier.update(relative_violation(cost, bound, self._settings.largest_violation))

    @override
    def judge(self, advantages: Tensor, vectors: Tensor, buffer: RolloutBuffer) -> Tensor:
        return self.weighed(advantages, self.costs.advantages(vectors, buffer))

    def weighed(self, advantages: Tensor, cost_advantages: Tensor) -> Tensor:
        """Return the advantages (T N,) by which the policy is updated: (A - sum_c lambda_c A_c) / (1 + sum_c lambda_c).

        advantages: A (T N,) of the rewards. cost_advantages: A_c (T N, C) of the C costs.
        """
        weights = torch.tensor([each.value for each in self.multipliers], device=self.costs.device)
        return (advantages - cost_advantages @ weights) / (1.0 + weights.sum())

    @override
    def metrics(self, buffer: RolloutBuffer) -> Metrics:
        """Return the mean of each cost per step, and each multiplier in units of unscaled reward per unscaled cost."""
        scales = buffer.reward_deviation / self.costs.rollout.deviations
        pairs = zip(self.costs.names, self.multipliers, scales.tolist(), strict=True)
        return self.costs.metrics() | {f"train/multiplier_{name}": each.value * scale for name, each, scale in pairs}

    @override
    def state_dict(self) -> StateDict:
        return {"costs": self.costs.state_dict(), "multipliers": [each.state_dict() for each in self.multipliers]}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self.costs.load_state_dict(state["costs"])
        for each, saved in zip(self.multipliers, state["multipliers"], strict=True):
            each.load_state_dict(saved)
