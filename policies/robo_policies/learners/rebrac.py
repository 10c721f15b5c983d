"""ReBRAC: Tarasov et al. 2023, "Revisiting the Minimalist Approach to Offline Reinforcement Learning" (arXiv 2305.09836)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor
from typing_extensions import override

from robo_policies.learners.td3 import TD3Config, TD3Learner
from robo_policies.networks.encoders import TensorBatch
from robo_rl.errors import require_allowed
from robo_rl.extras import NextActions
from robo_rl.protocols.sampling import Sampling
from robo_rl.spec.environment import EnvironmentSpec


@dataclass(frozen=True)
class ReBRACConfig(TD3Config):
    """Settings of ReBRAC; defaults are the authors' for locomotion, whose two penalties are chosen for each dataset."""

    actor_penalty: float = 0.01
    """Weight of (pi(s) - a)^2 in the actor's loss, against a critic scaled to 1: beta_1; the paper searches 0.001 to 1."""
    critic_penalty: float = 0.01
    """Weight of (a' - a'_data)^2 in the critic's target [reward]: beta_2; the paper searches 0 to 0.5."""
    lr: float = 1e-3
    """Learning rate of Adam for both networks."""
    batch_size: int = 1024
    hidden: tuple[int, ...] = (256, 256, 256)
    """Units of the hidden layers."""
    layer_norm: bool = True
    """LayerNorm in the critics; without it the paper's method fails."""
    reward_scale: float = 1.0
    """Multiplies rewards; the authors take 100 in mazes. `critic_penalty` is in units of scaled reward."""

    def __post_init__(self) -> None:
        super().__post_init__()
        least = {name: (getattr(self, name) >= 0, "0 or more") for name in ("actor_penalty", "critic_penalty")}
        require_allowed(self, least | {"reward_scale": (self.reward_scale > 0, "above 0")})

    @property
    @override
    def sampling(self) -> Sampling:
        return replace(super().sampling, extras=(NextActions(),))

    def build(self, spec: EnvironmentSpec, seed: int) -> ReBRAC:
        """Returns a fresh learner."""
        return ReBRAC(spec, self, seed)


class ReBRAC(TD3Learner):
    """TD3+BC with the penalty apart for actor and critic, LayerNorm, deeper networks and larger batches."""

    def __init__(self, spec: EnvironmentSpec, config: ReBRACConfig, seed: int) -> None:
        super().__init__(spec, config, seed)
        self.config = config

    def critic_target(self, data: TensorBatch) -> Tensor:
        """Eq. 3: r + gamma (min_i Q'_i(s', a') - beta_2 |a' - a'_data|^2), a' = pi'(s') + clipped noise (B,).

        Differs from the authors' code, which leaves out the last step before a time limit: its value is kept here, and its
        penalty, for which there is no recorded action, is 0.
        """
        recorded, is_recorded = (data.extras[name] for name in ("next_actions", "has_next_action"))
        next_actions = self.smoothed_actions(data)
        penalty = (next_actions - recorded).square().sum(-1) * is_recorded
        next_q = self.next_values(data, next_actions)
        next_q = next_q - self.config.critic_penalty * penalty
        return self.config.reward_scale * data.rewards + data.discounts * data.masks * next_q

    def actor_loss(self, observations: Tensor, data: TensorBatch) -> Tensor:
        """Eq. 2: beta_1 |pi(s) - a|^2 - min_i Q_i(s, pi(s)) / mean |min_i Q_i|."""
        actions = self.actor(observations)
        q = self.critic(observations, actions).amin(0)
        cloning = (actions - data.actions).square().sum(-1)
        return (data.weights * (self.config.actor_penalty * cloning - q / q.detach().abs().mean().clamp(min=1e-6))).mean()
