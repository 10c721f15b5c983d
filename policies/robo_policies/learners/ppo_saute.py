"""PPO-Saute: Sootla, Cowen-Rivers, Jafferjee, Wang, Mguni, Wang and Bou Ammar 2022, "Saute RL", arXiv:2202.06558.

The state is augmented by the share of the budget that is left, and the reward is replaced once it is spent (eq. 7), so that
the limit holds in each episode rather than on average. N environments, C costs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from typing_extensions import override

from robo_policies.learners.constrained import required
from robo_policies.learners.ppo import PPO, PPOConfig
from robo_policies.networks.policy_value import Floats
from robo_rl.errors import InvalidSetting
from robo_rl.protocols.contract import ANY_SPACE, ROLLOUTS, Feature, Needs
from robo_rl.spec.cost import cost_names
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.training.on_policy import VectorStep
from robo_rl.training.rollout_buffer import RolloutBuffer, Value
from robo_rl.types import Array

BUDGET = "budget_"


@dataclass(frozen=True)
class PPOSauteConfig(PPOConfig):
    """Settings of PPO-Saute."""

    needs = Needs((ROLLOUTS,), ANY_SPACE - {Feature.PICTURES}, {Feature.REWARD: "leave reward out: it comes after the budget"})

    unsafe_reward: float = -1.0
    """Reward of each step that ends with a spent budget."""

    @override
    def build(self, spec: EnvironmentSpec, seed: int, *, steps: int = 0) -> PPOSaute:
        return PPOSaute(spec, self, seed, rollouts=math.ceil(steps / self.rollout_size))


class PPOSaute(PPO):
    """PPO on the augmented problem."""

    def __init__(self, spec: EnvironmentSpec, config: PPOSauteConfig, seed: int, *, rollouts: int = 0) -> None:
        limits = {cost.name: cost.limit for cost in spec.costs if f"{BUDGET}{cost.name}" in spec.observation}
        if not limits:
            raise InvalidSetting(
                f"{spec.name} shows no budget.",
                got=f"observations {', '.join(spec.observation)}",
                allowed=f"{BUDGET}NAME of a cost",
                fix="--environment.wrappers.constrained.budgets [COST] (docs/constraints.md)",
            )
        super().__init__(spec, config, seed, rollouts=rollouts)
        columns = [cost_names(spec.costs).index(name) for name in limits]
        self.buffer = SauteBuffer(config, columns, [*limits.values()], self.networks.reads, self.networks.pictures, spec.action)


class SauteBuffer(RolloutBuffer):
    """Rollout in which a step that ends with a spent budget is paid `unsafe_reward`."""

    def __init__(self, config: PPOSauteConfig, columns: Sequence[int], limits: Sequence[float], *parts: Any) -> None:
        """columns: of the costs that have `limits`."""
        super().__init__(config, *parts)
        self._columns, self._limits, self._unsafe = list(columns), tuple(limits), config.unsafe_reward
        self.sums = np.zeros((config.num_envs, len(limits)))
        """(N, C) costs of each running episode so far."""

    @override
    def _begin(self, vectors: Floats, observations: Mapping[str, Array], *, are_new: bool) -> None:
        super()._begin(vectors, observations, are_new=are_new)
        if are_new:
            self.sums[:] = 0.0

    @override
    def _add(self, step: VectorStep, vectors: Floats, value: Value) -> None:
        self.sums += required(step.costs)[:, self._columns]
        is_spent = (self.sums > self._limits).any(1)
        rewards = np.where(is_spent, self._unsafe, np.asarray(step.rewards))
        super()._add(replace(step, rewards=rewards), vectors, value)
        self.sums[step.terminated | step.truncated] = 0.0
