"""TD3+BC: Fujimoto & Gu 2021, "A Minimalist Approach to Offline Reinforcement Learning" (arXiv 2106.06860)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from robo_policies.learner_parts import LearnerParts
from robo_policies.learning import TensorBatch, require_continuous, require_ranges
from robo_policies.offline_networks import Critics, DeterministicActor
from robo_rl.errors import require_allowed
from robo_rl.replay import Sampling
from robo_rl.spec import EnvironmentSpec
from robo_rl.types import Batch, Metrics, StateDict


@dataclass(frozen=True)
class TD3BCConfig:
    """Settings of TD3+BC; defaults are the paper's."""

    alpha: float = 2.5
    """Weight of the critic against cloning, once the critic is scaled to 1."""
    lr: float = 3e-4
    """Learning rate of Adam for both networks."""
    tau: float = 0.005
    """Share by which the target networks move at each update of the actor."""
    discount: float = 0.99
    batch_size: int = 256
    hidden: tuple[int, ...] = (256, 256)
    """Units of the hidden layers."""
    actor_every: int = 2
    """Critic updates for each update of the actor."""
    target_noise: float = 0.2
    """Standard deviation of the noise on the target policy's action."""
    largest_noise: float = 0.5
    """Limit of that noise."""
    exploration: float = 0.1
    """Standard deviation of the noise on actions when learning goes on online, TD3's."""
    normalization_rows: int = 10_000
    """Observations whose mean and deviation standardise the input; the paper takes all of the data."""

    def __post_init__(self) -> None:
        require_ranges(self)
        require_allowed(self, {"actor_every": (self.actor_every >= 1, "1 or more"), "alpha": (self.alpha >= 0, "0 or more")})

    @property
    def sampling(self) -> Sampling:
        """What the training loop must provide."""
        return Sampling(batch_size=self.batch_size, discount=self.discount, offline_fraction=1.0)

    def build(self, spec: EnvironmentSpec, seed: int) -> TD3BC:
        """Returns a fresh learner."""
        return TD3BC(spec, self, seed)


class TD3BC:
    """TD3 with a clone's loss added to its actor."""

    def __init__(self, spec: EnvironmentSpec, config: TD3BCConfig, seed: int) -> None:
        require_continuous(spec, "TD3+BC")
        self.config = config
        self.parts = parts = LearnerParts(spec, seed, config.normalization_rows)
        inputs, actions, hidden = parts.encoder.size, spec.action.size, config.hidden
        self.actor = parts.add(
            "actor", DeterministicActor(inputs, actions, hidden, parts.initial, config.exploration), config.lr
        )
        self.critic = parts.add("critic", Critics(inputs, actions, hidden, parts.initial), config.lr)
        self.target_actor = parts.add_target("target_actor", self.actor)
        self.target_critic = parts.add_target("target_critic", self.critic)
        self.policy = parts.act_with(self.actor)

    def update(self, batch: Batch) -> Metrics:
        """Takes one step of the critics, and of the actor every `actor_every` updates."""
        config, parts = self.config, self.parts
        data = TensorBatch.of(batch, parts.encoder, parts.updates)
        values = self.critic(data.observations, data.actions)
        critic_loss = (data.weights * (values - self.critic_target(data)).square()).mean(1).sum()
        parts.descend("critic", critic_loss)
        scalars = {"critic_loss": critic_loss.detach(), "q_mean": values.detach().mean()}
        if (parts.updates + 1) % config.actor_every == 0:
            actor_loss = self.actor_loss(data)
            parts.descend("actor", actor_loss)
            parts.track(self.target_actor, self.actor, config.tau)
            parts.track(self.target_critic, self.critic, config.tau)
            scalars["actor_loss"] = actor_loss.detach() * config.actor_every  # the window divides by all updates
        return parts.finish_update(scalars)

    @torch.no_grad()
    def critic_target(self, data: TensorBatch) -> Tensor:
        """Returns r + gamma min_i Q'_i(s', a'), a' = pi'(s') + clipped noise (B,)."""
        next_actions = smoothed(self.target_actor(data.next_observations), self.config, self.parts.generator)
        next_q = self.target_critic(data.next_observations, next_actions).min(0).values
        return data.rewards + data.discounts * data.masks * next_q

    def actor_loss(self, data: TensorBatch) -> Tensor:
        """Eq. 3 to 5: -lambda Q_1(s, pi(s)) + (pi(s) - a)^2 with lambda = alpha / mean |Q_1|."""
        actions = self.actor(data.observations)
        q = self.critic(data.observations, actions)[0]
        scale = self.config.alpha / q.detach().abs().mean().clamp(min=1e-6)
        cloning = (actions - data.actions).square().mean(-1)
        return (data.weights * (cloning - scale * q)).mean()

    def state_dict(self) -> StateDict:
        """Returns networks, optimisers, generators and counters."""
        return self.parts.state_dict()

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned; the next update is the one that would have come."""
        self.parts.load_state_dict(state)


class Smoothing(Protocol):
    """How much noise a target policy's action gets."""

    @property
    def target_noise(self) -> float:
        """Standard deviation."""

    @property
    def largest_noise(self) -> float:
        """Limit."""


def smoothed(actions: Tensor, config: Smoothing, generator: torch.Generator) -> Tensor:
    """Returns actions with clipped noise, within [-1, 1] (TD3, Fujimoto et al. 2018, eq. 14)."""
    noise = config.target_noise * torch.randn(actions.shape, generator=generator)
    return torch.clamp(actions + noise.clamp(-config.largest_noise, config.largest_noise), -1.0, 1.0)
