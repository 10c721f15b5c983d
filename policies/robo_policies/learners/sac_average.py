"""SAC for the mean reward of a step, without a discount: relative value iteration.

Hisaki and Ono 2024, "RVI-SAC: Average Reward Off-Policy Deep Reinforcement Learning", arXiv:2408.01972. B rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from robo_policies.learners.sac import SAC, SACConfig
from robo_policies.networks.encoders import TensorBatch
from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import StateDict


@dataclass(frozen=True)
class SACAverageConfig(SACConfig):
    """Settings of SAC for the mean reward."""

    discount: float = 1.0
    """1: there is no discount."""
    rate_step: float = 0.005
    """Weight of the newest batch in the running mean of values, which stands for the mean reward of a step (kappa)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = {"discount": (self.discount == 1.0, "1: the mean reward has no discount")}
        allowed["n_step"] = (self.n_step == 1, "1: the mean reward is taken off once for each step")
        require_allowed(self, allowed | {"rate_step": (0.0 < self.rate_step <= 1.0, "above 0, at most 1")})

    @override
    def build(self, spec: EnvironmentSpec, seed: int) -> SACAverage:
        return SACAverage(spec, self, seed)


class SACAverage(SAC):
    """Maximises the mean of reward and entropy over the steps of a task that does not end."""

    config: SACAverageConfig

    def __init__(self, spec: EnvironmentSpec, config: SACAverageConfig, seed: int) -> None:
        super().__init__(spec, config, seed)
        self.rate = torch.zeros((), device=self.parts.device)
        """f(Q), which values settle at: the mean reward of a step, and of its entropy."""

    @override
    def learn(self, data: TensorBatch) -> dict[str, Tensor]:
        if not bool(data.masks.all()):
            raise InvalidSetting(
                "A mean over steps is for tasks that do not end.",
                got="a step that terminated its episode",
                allowed="episodes that the time limit ends",
                fix="take sac, or an environment whose episodes end by the time limit alone",
            )
        return super().learn(data) | {"mean_reward": self.rate}

    @override
    @torch.no_grad()
    def critic_target(self, data: TensorBatch, alpha: Tensor) -> Tensor:
        """Return r - f(Q) + min Q(s', a') - alpha log pi(a'|s'), (B,); eq. 11 with f(Q) a running mean of such values."""
        soft = super().critic_target(data, alpha)
        self.rate = self.rate + self.config.rate_step * ((soft - data.rewards).mean() - self.rate)
        return soft - self.rate

    @override
    def state_dict(self) -> StateDict:
        return super().state_dict() | {"rate": float(self.rate)}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        self.rate = torch.tensor(float(state["rate"]), device=self.parts.device)
