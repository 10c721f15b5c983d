"""IQL: Kostrikov, Nair & Levine 2022, "Offline Reinforcement Learning with Implicit Q-Learning" (arXiv 2110.06169).

Only actions of the data are evaluated; XQL, f-DVL and ReCOIL are this learner with other losses.

    V(s)      follows an upper statistic of Q'(s, a) over the actions in the data; methods differ in this loss on d = Q' - V
    Q_i(s,a)  follows r + gamma V(s')
    pi(a|s)   regresses on the actions in the data, each weighted by exp(beta (Q' - V))

The order is that of the authors' code and changes results: V with the target critics, the actor with the new V, then Q.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from robo_policies.learners.offline import OfflineValueSettings
from robo_policies.learners.parts import Learned, LearnerParts
from robo_policies.networks.actor_critic import Critics
from robo_policies.networks.encoders import TensorBatch
from robo_policies.networks.regression_actors import GaussianActor
from robo_rl.errors import require_allowed
from robo_rl.requirements import require_continuous
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Batch, Metrics

LARGEST_WEIGHT = 100.0  # of one action, as in the authors' code


ValueLoss = Callable[[Tensor], Tensor]
"""Loss of each row (B,), given d = Q'(s, a) - V(s), that makes V(s) a statistic of Q(s, a)."""
BellmanLoss = Callable[[Tensor, Tensor], Tensor]
"""Loss of each element (N, B), given values and targets of Q."""
Targets = Callable[[Tensor, TensorBatch], Tensor]
"""Targets of Q (B,), given V(s') (B,) and the batch."""


@dataclass(frozen=True)
class ImplicitSettings(OfflineValueSettings):
    """Settings that IQL, XQL, f-DVL and ReCOIL share; the defaults are IQL's for locomotion."""

    inverse_temperature: float = 3.0
    """Beta, weight of the advantage in the policy's exponent [1/reward]: 0 clones, larger is greedier. 10 for mazes, 0.5 for
    few demonstrations by people."""
    actor_dropout: float = 0.0
    """Share of the actor's hidden units that are dropped in training; 0.1 for few demonstrations by people."""
    actor_decay_updates: int = 0
    """Updates over which the actor's learning rate falls to 0 along a cosine, as in the papers; constant again
    afterwards, for an online phase. 0 keeps it constant."""
    reward_scale: float = 1.0
    """Multiplies rewards after the shift; the papers scale locomotion so that returns span 1,000."""
    reward_shift: float = 0.0
    """Added to rewards; -1 in the papers' mazes."""
    value_layer_norm: bool = False
    """LayerNorm in the value network; the authors of XQL and f-DVL use it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        drops = 0.0 < self.actor_dropout < 1.0 and self.network.actor is None
        allowed = {"actor_dropout": (drops or self.actor_dropout == 0, "0 or more, below 1, and 0 with network.actor")}
        allowed |= {"actor_decay_updates": (self.actor_decay_updates >= 0, "0 or more")}
        require_allowed(self, allowed | {"reward_scale": (self.reward_scale > 0, "above 0")})


@dataclass(frozen=True)
class IQLConfig(ImplicitSettings):
    """Settings of IQL."""

    expectile: float = 0.7
    """tau: V(s) follows this expectile of Q(s, a) over the actions in the data. 0.5 is the mean, near 1 the maximum. 0.9 for
    mazes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_allowed(self, {"expectile": (0.0 < self.expectile < 1.0, "between 0 and 1, both excluded")})

    def build(self, spec: EnvironmentSpec, seed: int) -> IQL:
        """Return a fresh learner."""
        return IQL(spec, self, seed, value_loss=lambda d: expectile_loss(d, self.expectile), bellman_loss=squared)


class IQL(Learned):
    """Implicit Q-learning with a given loss of V, loss of Q, and targets of Q: IQL, XQL, f-DVL and ReCOIL."""

    def __init__(
        self,
        spec: EnvironmentSpec,
        config: ImplicitSettings,
        seed: int,
        *,
        value_loss: ValueLoss,
        bellman_loss: BellmanLoss,
        targets: Targets | None = None,
    ) -> None:
        """targets: function for the targets of Q; by default r + gamma V(s'), with r shifted and scaled."""
        require_continuous(spec, type(config).__name__.removesuffix("Config"))
        self.config, self.value_loss, self.bellman_loss = config, value_loss, bellman_loss
        self.targets = targets or ScaledRewards(config.reward_scale, config.reward_shift)
        self.parts = parts = LearnerParts(spec, config, seed)
        inputs, actions = parts.encoder.size, spec.action.size
        self.value = parts.add("value", Critics(parts.networks, inputs, 1, layer_norm=config.value_layer_norm), config.lr)
        self.critic = parts.add("critic", Critics(parts.networks, inputs + actions), config.lr, trains_encoder=True)
        self.target_critic = parts.add_target("target_critic", self.critic, sees=True)
        actor = GaussianActor(parts.networks, inputs, actions, config.actor_dropout)
        self.actor = parts.add("actor", actor, config.lr)
        parts.act_with(self.actor)

    def update(self, batch: Batch) -> Metrics:
        """Take one gradient step of V, then of the actor, then of Q."""
        config, parts = self.config, self.parts
        data = parts.batch(batch)
        with torch.no_grad():
            observations, following = parts.encoder(data.observations), parts.encoder(data.next_observations)
            q = self.target_critic(parts.target_encoder(data.observations), data.actions).amin(0)
        v = self.value(observations)[0]
        value_loss = (data.weights * self.value_loss(q - v)).mean()
        self.value.descend(value_loss)
        with torch.no_grad():
            advantages = q - self.value(observations)[0]
            next_v = self.value(following)[0]
        actor_loss = self.actor_loss(observations, data, advantages)
        self.actor.descend(actor_loss, cosine(config.lr, parts.updates, config.actor_decay_updates))
        critic_loss = self.critic_loss(self.critic(parts.encoder(data.observations), data.actions), next_v, data)
        self.critic.descend(critic_loss)
        parts.track(self.target_critic, self.critic, config.tau)
        return parts.finish_update(
            {
                "value_loss": value_loss,
                "critic_loss": critic_loss,
                "actor_loss": actor_loss,
                "v_mean": v.mean(),
                "v_max": v.max(),
                "q_mean": q.mean(),
                "advantage_mean": advantages.mean(),
            }
        )

    def actor_loss(self, observations: Tensor, data: TensorBatch, advantages: Tensor) -> Tensor:
        """Return the loss of advantage-weighted regression: the mean of -min(exp(beta A), 100) log pi(a|s)."""
        weights = torch.exp(self.config.inverse_temperature * advantages).clamp(max=LARGEST_WEIGHT)
        log_densities = self.actor.log_density(observations, data.actions, self.parts.generator)
        return -(data.weights * weights * log_densities).mean()

    def critic_loss(self, values: Tensor, next_v: Tensor, data: TensorBatch) -> Tensor:
        """Return the loss of the Bellman residuals of Q (N, B), summed over the critics and averaged over the batch."""
        targets = self.targets(next_v, data)
        return (data.weights * self.bellman_loss(values, targets.expand_as(values))).mean(1).sum()


@dataclass(frozen=True)
class ScaledRewards:
    """Targets r + gamma V(s') of Q, with rewards that are first shifted, then scaled."""

    scale: float
    shift: float

    def __call__(self, next_v: Tensor, data: TensorBatch) -> Tensor:
        """Return the targets (B,)."""
        return self.scale * (data.rewards + self.shift) + data.discounts * data.masks * next_v


def expectile_loss(differences: Tensor, expectile: float) -> Tensor:
    """Return |tau - 1(d < 0)| d^2 (eq. 5); the V with the least loss is the expectile tau of Q."""
    return torch.abs(expectile - (differences < 0).float()) * differences.square()


def squared(values: Tensor, targets: Tensor) -> Tensor:
    """Return the squared residuals, the Bellman loss of IQL."""
    return functional.mse_loss(values, targets, reduction="none")


huber: BellmanLoss = nn.HuberLoss(reduction="none", delta=20.0)
"""Quadratic up to 20 and linear beyond: the Bellman loss of XQL's and f-DVL's published settings."""


def cosine(lr: float, update: int, updates: int) -> float:
    """Return the learning rate: half a cosine from `lr` to 0 over `updates` (Loshchilov & Hutter 2017), then `lr`.

    Constant again afterwards, because the learning rate would otherwise be 0 in a following online phase.
    """
    return lr if update >= updates else lr * 0.5 * (1 + math.cos(math.pi * update / updates))
