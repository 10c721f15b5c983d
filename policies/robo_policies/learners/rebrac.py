"""ReBRAC: Tarasov et al. 2023, "Revisiting the Minimalist Approach to Offline Reinforcement Learning" (arXiv 2305.09836)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor
from typing_extensions import override

from robo_policies.learners.offline import OfflineNetwork
from robo_policies.learners.td3 import TD3, Regulariser, TD3Settings
from robo_policies.networks.encoders import TensorBatch
from robo_rl.errors import require_allowed
from robo_rl.extras import NextActions
from robo_rl.protocols.sampling import Sampling
from robo_rl.spec.environment import EnvironmentSpec


@dataclass(frozen=True)
class ReBRACNetwork(OfflineNetwork):
    """Settings group `network` of ReBRAC: three hidden layers, and LayerNorm in the critics."""

    hidden: tuple[int, ...] = (256, 256, 256)
    """Units of the hidden layers."""
    layer_norm: bool = True
    """LayerNorm before each ReLU of the critics; without it the paper's method fails."""


@dataclass(frozen=True)
class ReBRACConfig(TD3Settings):
    """Settings of ReBRAC (Tarasov et al. 2023, arXiv 2305.09836): TD3+BC with separate penalties in actor and critics.

    Its own fields are the weights of the two penalties for actions far from the recorded ones, and the scale of rewards.
    Defaults are the authors' for locomotion. The authors choose both penalties for each dataset.
    """

    actor_penalty: float = 0.01
    """Beta_1, weight of |pi(s) - a|^2 in the actor's loss, relative to Q scaled to a mean of 1; the paper tries 0.001 to 1."""
    critic_penalty: float = 0.01
    """Beta_2 [scaled reward], weight of |a' - a'_data|^2 in the critics' targets; the paper tries 0 to 0.5."""
    lr: float = 1e-3
    """Learning rate of Adam for both networks."""
    batch_size: int = 1024
    network: ReBRACNetwork = ReBRACNetwork()
    """Sizes of the networks, and how they are computed."""
    reward_scale: float = 1.0
    """Factor of rewards; the authors take 100 in mazes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        least = {name: (getattr(self, name) >= 0, "0 or more") for name in ("actor_penalty", "critic_penalty")}
        require_allowed(self, least | {"reward_scale": (self.reward_scale > 0, "above 0")})

    @property
    @override
    def sampling(self) -> Sampling:
        return replace(super().sampling, extras=(NextActions(),))

    def build(self, spec: EnvironmentSpec, seed: int) -> TD3:
        """Build an untrained TD3 learner with ReBRAC's penalties for a spec; its networks are initialised from `seed`."""
        return TD3(spec, self, seed, TwoPenalties(self.actor_penalty, self.critic_penalty), self.reward_scale)


@dataclass(frozen=True)
class TwoPenalties(Regulariser):
    """Regulariser of ReBRAC: penalties for actions far from the recorded ones, with separate weights for actor and critics."""

    actor: float
    """Beta_1, weight of the actor's penalty."""
    critic: float
    """Beta_2, weight of the critics' penalty."""

    @override
    def following(self, values: Tensor, actions: Tensor, data: TensorBatch) -> Tensor:
        """Return min_i Q'_i(s', a') - beta_2 |a' - a'_data|^2 (B,) (eq. 3), given min_i Q'_i (B,) and a' (B, A).

        Differs from the authors' code at the last step before a time limit, which has no a'_data: they leave this step out,
        here its penalty is 0.
        """
        recorded, is_recorded = (data.extras[name] for name in ("next_actions", "has_next_action"))
        return values - self.critic * ((actions - recorded).square().sum(-1) * is_recorded)

    @override
    def actor_loss(self, learner: TD3, observations: Tensor, data: TensorBatch) -> Tensor:
        """Return the mean of beta_1 |pi(s) - a|^2 - min_i Q_i(s, pi(s)) / mean |min_i Q_i| (eq. 2)."""
        actions = learner.actor(observations)
        q = learner.critic(observations, actions).amin(0)
        cloning = (actions - data.actions).square().sum(-1)
        return (data.weights * (self.actor * cloning - q / q.detach().abs().mean().clamp(min=1e-6))).mean()
