"""PPO-Saute: Sootla, Cowen-Rivers, Jafferjee, Wang, Mguni, Wang and Bou Ammar 2022, "Saute RL", arXiv:2202.06558.

The state is augmented by the share of the budget that is left, and the reward is replaced once it is spent (eq. 7), so that
the limit holds in each episode rather than on average. N environments, C costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from typing_extensions import override

from robo_policies.learners.constrained import required
from robo_policies.learners.ppo import Constraint, PPOSettings
from robo_rl.errors import InvalidSetting
from robo_rl.protocols.contract import ANY_SPACE, ROLLOUTS, Feature, Needs
from robo_rl.spec.cost import cost_names
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.training.on_policy import VectorStep
from robo_rl.training.rollout_buffer import RolloutBuffer
from robo_rl.types import Array, StateDict

BUDGET = "budget_"


@dataclass(frozen=True)
class PPOSauteConfig(PPOSettings):
    """Settings of PPO-Saute (Sootla et al. 2022, arXiv:2202.06558); its own field is the reward once a budget is spent."""

    needs = Needs((ROLLOUTS,), ANY_SPACE - {Feature.PICTURES}, {Feature.REWARD: "leave reward out: it comes after the budget"})

    unsafe_reward: float = -1.0
    """Reward, in place of the environment's, of each step that ends with a spent budget."""

    @override
    def constraint(self, spec: EnvironmentSpec, seed: int) -> SpentBudgets:
        limits = {cost.name: cost.limit for cost in spec.costs if f"{BUDGET}{cost.name}" in spec.observation}
        if not limits:
            raise InvalidSetting(
                f"{spec.name} shows no budget.",
                got=f"observations {', '.join(spec.observation)}",
                allowed=f"{BUDGET}NAME of a cost",
                fix="--environment.wrappers.constrained.budgets [COST] (docs/safety/constraints.md)",
            )
        columns = [cost_names(spec.costs).index(name) for name in limits]
        return SpentBudgets(columns, [*limits.values()], self.unsafe_reward, self.num_envs)


class SpentBudgets(Constraint):
    """Hooks of PPO-Saute: a step that ends with a spent budget is paid `unsafe_reward`."""

    def __init__(self, columns: Sequence[int], limits: Sequence[float], unsafe_reward: float, environments: int) -> None:
        """columns: of the costs that have `limits`."""
        self._columns, self._limits, self._unsafe = list(columns), tuple(limits), unsafe_reward
        self.sums = np.zeros((environments, len(limits)))
        """(N, C) costs of each running episode so far."""

    @override
    def begin(self) -> None:
        self.sums[:] = 0.0

    @override
    def paid(self, step: VectorStep) -> VectorStep:
        is_spent = (self._with(step) > self._limits).any(1)
        return replace(step, rewards=np.where(is_spent, self._unsafe, np.asarray(step.rewards)))

    @override
    def observe(self, step: VectorStep, buffer: RolloutBuffer) -> None:
        self.sums = self._with(step)
        self.sums[step.terminated | step.truncated] = 0.0

    def _with(self, step: VectorStep) -> Array:
        return np.asarray(self.sums + required(step.costs)[:, self._columns])

    @override
    def state_dict(self) -> StateDict:
        return {"sums": self.sums.copy()}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self.sums = np.array(state["sums"])
