"""CQL: Kumar et al. 2020, "Conservative Q-Learning for Offline Reinforcement Learning" (arXiv 2006.04779), variant CQL(H)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from robo_policies.learners.offline import OfflineValueSettings
from robo_policies.learners.parts import Learned, LearnerParts
from robo_policies.networks.actor_critic import Critics, TanhGaussianActor, Temperature
from robo_policies.networks.encoders import TensorBatch
from robo_rl.errors import require_allowed
from robo_rl.requirements import require_continuous
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Batch, Metrics


@dataclass(frozen=True)
class CQLSettings(OfflineValueSettings):
    """Settings common to CQL and Cal-QL, which learn critics from recorded data and push down the values of other actions.

    They steer the weight of this pessimism, the number of sampled actions, the learning rate of the actor and the temperature.
    """

    alpha: float = 5.0
    """Weight of the conservative term, relative to the squared Bellman residual; 5 to 10 in the authors' commands."""
    actions_sampled: int = 10
    """K, number of actions of each of three kinds (uniform, from pi(s), from pi(s')) that estimate the soft maximum of Q. The
    time of an update is about proportional to it."""
    actor_lr: float = 1e-4
    """Learning rate of Adam for the actor; `lr` is that of critics and temperature."""
    initial_temperature: float = 1.0
    """Weight of the entropy at the first update; it is then tuned towards an entropy of -1 nat for each action element."""
    reward_scale: float = 1.0
    """Factor by which rewards are multiplied."""

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = {"alpha": (self.alpha >= 0, "0 or more"), "actions_sampled": (self.actions_sampled >= 1, "1 or more")}
        require_allowed(self, allowed | {"actor_lr": (self.actor_lr > 0, "above 0")})


@dataclass(frozen=True)
class CQLConfig(CQLSettings):
    """Settings of the learner `cql`, CQL(H) (Kumar et al. 2020, arXiv 2006.04779); the fields are those of `CQLSettings`."""

    def build(self, spec: EnvironmentSpec, seed: int) -> CQL:
        """Build an untrained CQL learner for the spec of an environment; its networks are initialised from `seed`."""
        return CQL(spec, self, seed, unbounded)


def unbounded(data: TensorBatch) -> Tensor:
    """Return minus infinity for each row of a batch, (B,): the lower bound of values of plain CQL, which has none.

    Cal-QL passes `recorded_returns` in its place.
    """
    return torch.full_like(data.rewards, -math.inf)


class CQL(Learned):
    """Learner of CQL and Cal-QL: SAC from recorded data whose critics are pessimistic about actions that were not recorded.

    Each update pushes the values down at the policy's and at random actions, and up at the recorded ones.
    """

    def __init__(
        self, spec: EnvironmentSpec, config: CQLSettings, seed: int, least_values: Callable[[TensorBatch], Tensor] = unbounded
    ) -> None:
        """Make the learner.

        least_values: returns for a batch lower bounds (B,), below which the values of the policy's own actions are not pushed.
        """
        require_continuous(spec, type(config).__name__.removesuffix("Config"))
        self.config, self.least_values = config, least_values
        self.parts = parts = LearnerParts(spec, config, seed)
        inputs, actions = parts.encoder.size, spec.action.size
        self.actor = parts.add("actor", TanhGaussianActor(parts.networks, inputs, actions), config.actor_lr)
        self.critic = parts.add("critic", Critics(parts.networks, inputs + actions), config.lr, trains_encoder=True)
        self.target_critic = parts.add_target("target_critic", self.critic, sees=True)
        self.temperature = parts.add("temperature", Temperature(config.initial_temperature, -actions), config.lr)
        parts.act_with(self.actor)

    def update(self, batch: Batch) -> Metrics:
        """Take one gradient step of the temperature, the critics and the actor; returns metrics, empty if none are due."""
        parts = self.parts
        data = parts.batch(batch)
        with torch.no_grad():
            observations = parts.encoder(data.observations)
        own, log_density = self.actor.sample(observations, parts.generator)
        temperature_loss = self.temperature.loss(log_density)
        self.temperature.descend(temperature_loss)
        alpha = self.temperature.alpha()
        features = parts.encoder(data.observations)
        values = self.critic(features, data.actions)
        bellman = (data.weights * (values - self.critic_target(data)).square()).mean(1).sum()
        excess = (data.weights * (self.soft_maximum(features, data) - values)).mean(1).sum()
        actor_loss = (data.weights * (alpha * log_density - self.critic(observations, own).amin(0))).mean()
        self.actor.descend(actor_loss)  # before the critics move: its gradient leads through them
        self.critic.descend(bellman + self.config.alpha * excess)
        parts.track(self.target_critic, self.critic, self.config.tau)
        losses = {"critic_loss": bellman, "conservative_loss": excess, "actor_loss": actor_loss}
        return parts.finish_update(losses | {"ent_coef": alpha, "q_mean": values.mean()})

    @torch.no_grad()
    def critic_target(self, data: TensorBatch) -> Tensor:
        """Return the targets (B,) of the critics: r + gamma min_i Q'_i(s', a'), with a' drawn from the policy.

        The entropy is left out, as in the authors' code.
        """
        next_actions, _ = self.actor.sample(self.parts.encoder(data.next_observations), self.parts.generator)
        next_q = self.target_critic(self.parts.target_encoder(data.next_observations), next_actions).amin(0)
        return self.config.reward_scale * data.rewards + data.discounts * data.masks * next_q

    def soft_maximum(self, features: Tensor, data: TensorBatch) -> Tensor:
        """Estimate the log of the integral over a of exp Q_i(s, a) for N critics, (N, B), by importance sampling (eq. 4).

        Of the 3 K actions in each state K are uniform, K are drawn from pi(s) and K from pi(s').

        Differs from the authors' code by the constant log(3 K): with it the estimate is that of the integral. No gradient
        changes.

        Args:
            features: Encoded observations (B, F) of the states s.
            data: The batch, which also holds the next observations.
        """
        count, generator = self.config.actions_sampled, self.parts.generator
        repeated = features.repeat_interleave(count, 0)
        with torch.no_grad():
            uniform = 2.0 * torch.rand((len(repeated), data.actions.shape[1]), generator=generator).to(repeated.device) - 1.0
            own, own_density = self.actor.sample(repeated, generator)
            next_features = self.parts.encoder(data.next_observations).repeat_interleave(count, 0)
            following, following_density = self.actor.sample(next_features, generator)
        uniform_density = data.actions.shape[1] * math.log(0.5)
        least = self.least_values(data).repeat_interleave(count, 0)
        exponents = [
            self.critic(repeated, uniform) - uniform_density,
            torch.maximum(self.critic(repeated, own), least) - own_density,
            torch.maximum(self.critic(repeated, following), least) - following_density,
        ]
        joined = torch.cat([part.view(self.critic.members, len(data), count) for part in exponents], -1)
        return torch.logsumexp(joined, -1) - math.log(3 * count)
