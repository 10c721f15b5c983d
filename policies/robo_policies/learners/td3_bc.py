"""TD3+BC: Fujimoto & Gu 2021, "A Minimalist Approach to Offline Reinforcement Learning" (arXiv 2106.06860)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from robo_policies.learners.td3 import TD3Config, TD3Learner
from robo_policies.networks.encoders import TensorBatch
from robo_rl.errors import require_allowed
from robo_rl.spec.environment import EnvironmentSpec


@dataclass(frozen=True)
class TD3BCConfig(TD3Config):
    """Settings of TD3+BC; defaults are the paper's, which standardises observations by all of the data."""

    alpha: float = 2.5
    """Weight of the critic against cloning, once the critic is scaled to 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_allowed(self, {"alpha": (self.alpha >= 0, "0 or more")})

    def build(self, spec: EnvironmentSpec, seed: int) -> TD3BC:
        """Returns a fresh learner."""
        return TD3BC(spec, self, seed)


class TD3BC(TD3Learner):
    """TD3 with a clone's loss added to its actor."""

    def __init__(self, spec: EnvironmentSpec, config: TD3BCConfig, seed: int) -> None:
        super().__init__(spec, config, seed)
        self.config = config

    def critic_target(self, data: TensorBatch) -> Tensor:
        """Returns r + gamma min_i Q'_i(s', a'), a' = pi'(s') + clipped noise (B,)."""
        next_q = self.next_values(data, self.smoothed_actions(data))
        return data.rewards + data.discounts * data.masks * next_q

    def actor_loss(self, observations: Tensor, data: TensorBatch) -> Tensor:
        """Eq. 3 to 5: -lambda Q_1(s, pi(s)) + (pi(s) - a)^2 with lambda = alpha / mean |Q_1|."""
        actions = self.actor(observations)
        q = self.critic(observations, actions)[0]
        scale = self.config.alpha / q.detach().abs().mean().clamp(min=1e-6)
        cloning = (actions - data.actions).square().mean(-1)
        return (data.weights * (cloning - scale * q)).mean()
