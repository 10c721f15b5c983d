"""CQL: Kumar et al. 2020, "Conservative Q-Learning for Offline Reinforcement Learning" (arXiv 2006.04779), variant CQL(H)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from robo_policies.learners.learning import TensorBatch
from robo_policies.learners.parts import LearnerParts
from robo_policies.networks.offline_networks import Critics, TanhGaussianActor
from robo_policies.networks.settings import require_continuous, require_ranges
from robo_rl.errors import require_allowed
from robo_rl.sampling import Sampling
from robo_rl.spec import EnvironmentSpec
from robo_rl.types import Batch, Metrics, StateDict


@dataclass(frozen=True)
class CQLConfig:
    """Settings of CQL."""

    alpha: float = 5.0
    """Weight of the conservative term against the squared Bellman residual; 5 to 10 in the authors' commands."""
    actions_sampled: int = 10
    """Actions of each of three kinds (uniform, pi(s), pi(s')) by which the soft maximum of Q is estimated; costs time in
    proportion."""
    actor_lr: float = 1e-4
    """Learning rate of Adam for the actor."""
    lr: float = 3e-4
    """Learning rate of Adam for critics and temperature."""
    tau: float = 0.005
    """Share by which the target critics move at each update."""
    discount: float = 0.99
    batch_size: int = 256
    hidden: tuple[int, ...] = (256, 256)
    """Units of the hidden layers."""
    initial_temperature: float = 1.0
    """Weight of the entropy at the first update; then tuned towards an entropy of -1 for each action element."""
    reward_scale: float = 1.0
    """Multiplies rewards."""
    normalization_rows: int = 10_000
    """Observations whose mean and deviation standardise the input; 0 leaves it as it is, as the authors do."""

    def __post_init__(self) -> None:
        require_ranges(self)
        allowed = {"alpha": (self.alpha >= 0, "0 or more"), "actions_sampled": (self.actions_sampled >= 1, "1 or more")}
        require_allowed(self, allowed | {"actor_lr": (self.actor_lr > 0, "above 0")})

    @property
    def sampling(self) -> Sampling:
        """What the training loop must provide."""
        return Sampling(batch_size=self.batch_size, discount=self.discount, offline_fraction=1.0)

    def build(self, spec: EnvironmentSpec, seed: int) -> CQL:
        """Returns a fresh learner."""
        return CQL(spec, self, seed, unbounded)


def unbounded(batch: Batch) -> Tensor:
    """Returns minus infinity for each row (B,): no value is too low."""
    return torch.full((len(batch),), -math.inf)


class Temperature(nn.Module):
    """The weight of the entropy, by its logarithm."""

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.logarithm = nn.Parameter(torch.tensor([math.log(initial)]))


class CQL:
    """Soft actor-critic whose critics are pushed down where the policy goes and up where the data are."""

    def __init__(
        self, spec: EnvironmentSpec, config: CQLConfig, seed: int, least_values: Callable[[Batch], Tensor] = unbounded
    ) -> None:
        """Makes the networks; `least_values` says how low the values of the policy's own actions are ever pushed (B,)."""
        require_continuous(spec, type(config).__name__.removesuffix("Config"))
        self.config, self.least_values = config, least_values
        self.parts = parts = LearnerParts(spec, seed, config.normalization_rows)
        inputs, actions = parts.encoder.size, spec.action.size
        self.actor = parts.add("actor", TanhGaussianActor(inputs, actions, config.hidden, parts.initial), config.actor_lr)
        self.critic = parts.add("critic", Critics(inputs, actions, config.hidden, parts.initial), config.lr)
        self.target_critic = parts.add_target("target_critic", self.critic)
        self.temperature = parts.add("temperature", Temperature(config.initial_temperature), config.lr)
        self.policy = parts.act_with(self.actor)

    def update(self, batch: Batch) -> Metrics:
        """Takes one step of the temperature, the critics and the actor."""
        parts = self.parts
        data = TensorBatch.of(batch, parts.encoder, parts.updates)
        own, log_density = self.actor.sample(data.observations, parts.generator)
        temperature_loss = -(self.temperature.logarithm * (log_density.detach() - data.actions.shape[1])).mean()
        parts.descend("temperature", temperature_loss)
        alpha = float(self.temperature.logarithm.detach().exp())
        values = self.critic(data.observations, data.actions)
        bellman = (data.weights * (values - self.critic_target(data)).square()).mean(1).sum()
        excess = (data.weights * (self.soft_maximum(data, self.least_values(batch)) - values)).mean(1).sum()
        actor_loss = (data.weights * (alpha * log_density - self.critic(data.observations, own).min(0).values)).mean()
        parts.descend("actor", actor_loss)  # before the critics move: its gradient leads through them
        parts.descend("critic", bellman + self.config.alpha * excess)
        parts.track(self.target_critic, self.critic, self.config.tau)
        losses = {"critic_loss": bellman.detach(), "conservative_loss": excess.detach(), "actor_loss": actor_loss.detach()}
        return parts.finish_update(losses | {"ent_coef": alpha, "q_mean": values.detach().mean()})

    @torch.no_grad()
    def critic_target(self, data: TensorBatch) -> Tensor:
        """Returns r + gamma min_i Q'_i(s', a'), a' drawn from the policy, without its entropy as in the authors' code (B,)."""
        next_actions, _ = self.actor.sample(data.next_observations, self.parts.generator)
        next_q = self.target_critic(data.next_observations, next_actions).min(0).values
        return self.config.reward_scale * data.rewards + data.discounts * data.masks * next_q

    def soft_maximum(self, data: TensorBatch, least: Tensor) -> Tensor:
        """Eq. 4: log of the integral of exp Q_i(s, a), by importance sampling: uniform actions, a ~ pi(s), a ~ pi(s') (N, B).

        Differs from the authors' code by the constant log(3 K), which no gradient sees, so that it estimates what it says.
        """
        count, generator = self.config.actions_sampled, self.parts.generator
        repeated = data.observations.repeat_interleave(count, 0)
        with torch.no_grad():
            uniform = 2.0 * torch.rand((len(repeated), data.actions.shape[1]), generator=generator) - 1.0
            own, own_density = self.actor.sample(repeated, generator)
            following, following_density = self.actor.sample(data.next_observations.repeat_interleave(count, 0), generator)
        uniform_density = torch.tensor(data.actions.shape[1] * math.log(0.5))
        least = least.repeat_interleave(count, 0)
        exponents = [
            self.critic(repeated, uniform) - uniform_density,
            torch.maximum(self.critic(repeated, own), least) - own_density,
            torch.maximum(self.critic(repeated, following), least) - following_density,
        ]
        joined = torch.cat([part.view(self.critic.members, len(data), count) for part in exponents], -1)
        return torch.logsumexp(joined, -1) - math.log(3 * count)

    def state_dict(self) -> StateDict:
        """Returns networks, optimisers, generators and counters."""
        return self.parts.state_dict()

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned; the next update is the one that would have come."""
        self.parts.load_state_dict(state)
