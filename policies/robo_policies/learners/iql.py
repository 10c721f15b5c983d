"""IQL: Kostrikov, Nair & Levine 2022, "Offline Reinforcement Learning with Implicit Q-Learning" (arXiv 2110.06169).

Only actions of the data are evaluated; XQL, f-DVL and ReCOIL are this learner with other losses.

    V(s)      follows a high statistic of Q'(s, a) over the actions in the data; methods differ in this loss of d = Q' - V
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
"""Loss of V for each row (B,), given d = Q'(s, a) - V(s) (B,)."""
BellmanLoss = Callable[[Tensor, Tensor], Tensor]
"""Loss of Q for each element (N, B), given values (N, B) and targets (N, B)."""
Targets = Callable[[Tensor, TensorBatch], Tensor]
"""Targets of Q (B,), given V(s') (B,) and the batch."""


@dataclass(frozen=True)
class ImplicitSettings(OfflineValueSettings):
    """Settings common to IQL, XQL, f-DVL and ReCOIL, which learn V, Q and a policy from recorded actions alone.

    They steer how strongly good actions are preferred, dropout and decay of the actor, and the scale of rewards. The defaults
    are IQL's for locomotion.
    """

    inverse_temperature: float = 3.0
    """Beta [1/reward]: actions are cloned with weight exp(beta * advantage), so 0 clones all alike and a large beta prefers
    better ones. The paper takes 10 for mazes, 0.5 for few demonstrations by people."""
    actor_dropout: float = 0.0
    """Probability that a hidden unit of the actor is dropped in training; 0.1 in the paper for few demonstrations by people."""
    actor_decay_updates: int = 0
    """Updates over which the actor's learning rate falls to 0 along a cosine, as in the papers. After them it is `lr` again,
    for an online phase. 0: always `lr`."""
    reward_scale: float = 1.0
    """Factor of rewards after the shift; the papers scale locomotion so that best and worst return differ by 1,000."""
    reward_shift: float = 0.0
    """Number added to rewards before they are scaled; -1 in the papers' mazes."""
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
    """Settings of IQL (Kostrikov et al. 2022, arXiv 2110.06169).

    Its own field sets how near V lies to the best recorded action.
    """

    expectile: float = 0.7
    """Tau, between 0 and 1: V(s) is this expectile of Q(s, a) over the actions in the data. 0.5 is the mean, near 1 the
    maximum. The paper takes 0.9 for mazes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_allowed(self, {"expectile": (0.0 < self.expectile < 1.0, "between 0 and 1, both excluded")})

    def build(self, spec: EnvironmentSpec, seed: int) -> IQL:
        """Build an untrained IQL learner for the spec of an environment; its networks are initialised from `seed`."""
        return IQL(spec, self, seed, value_loss=lambda d: expectile_loss(d, self.expectile), bellman_loss=squared)


class IQL(Learned):
    """Learner of IQL, XQL, f-DVL and ReCOIL, offline methods that evaluate recorded actions alone.

    They differ in the loss of V, the loss of Q and the targets of Q, which are passed in.
    """

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
        """Make the learner.

        Args:
            spec: The environment's spec; raises InvalidSetting for discrete actions.
            config: Settings.
            seed: Seed of all random numbers.
            value_loss: Loss of V.
            bellman_loss: Loss of Q.
            targets: Targets of Q; by default r + gamma V(s') with r shifted and scaled.
        """
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
        """Take one gradient step of V, then of the actor, then of Q; returns metrics for the log, empty if none are due."""
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
        """Return the actor's loss: the mean of -min(exp(beta A), 100) log pi(a|s) for advantages A (B,) (eq. 7)."""
        weights = torch.exp(self.config.inverse_temperature * advantages).clamp(max=LARGEST_WEIGHT)
        log_densities = self.actor.log_density(observations, data.actions, self.parts.generator)
        return -(data.weights * weights * log_densities).mean()

    def critic_loss(self, values: Tensor, next_v: Tensor, data: TensorBatch) -> Tensor:
        """Return the critics' loss, summed over the critics and averaged over the batch.

        values: Q (N, B) at the recorded actions. next_v: V(s') (B,).
        """
        targets = self.targets(next_v, data)
        return (data.weights * self.bellman_loss(values, targets.expand_as(values))).mean(1).sum()


@dataclass(frozen=True)
class ScaledRewards:
    """Function that computes the usual targets of Q, (B,): scale (r + shift) + gamma V(s')."""

    scale: float
    shift: float

    def __call__(self, next_v: Tensor, data: TensorBatch) -> Tensor:
        """Return the targets (B,), given V(s') (B,)."""
        return self.scale * (data.rewards + self.shift) + data.discounts * data.masks * next_v


def expectile_loss(differences: Tensor, expectile: float) -> Tensor:
    """Return |tau - 1(d < 0)| d^2 (B,) for d = Q - V (B,) (eq. 5); the V with the smallest loss is the expectile tau of Q."""
    return torch.abs(expectile - (differences < 0).float()) * differences.square()


def squared(values: Tensor, targets: Tensor) -> Tensor:
    """Return the squared differences (N, B) of values (N, B) and targets (N, B), the loss of Q in IQL."""
    return functional.mse_loss(values, targets, reduction="none")


huber: BellmanLoss = nn.HuberLoss(reduction="none", delta=20.0)
"""Huber loss of Q in the published settings of XQL and f-DVL: quadratic up to a difference of 20, linear beyond."""


def cosine(lr: float, update: int, updates: int) -> float:
    """Return the learning rate at an update: half a cosine from `lr` to 0 over `updates` (Loshchilov & Hutter 2017), then `lr`.

    It returns to `lr` because it would otherwise be 0 in an online phase that follows.
    """
    return lr if update >= updates else lr * 0.5 * (1 + math.cos(math.pi * update / updates))
