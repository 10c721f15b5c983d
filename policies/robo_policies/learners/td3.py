"""TD3, the base of TD3+BC and ReBRAC: Fujimoto et al. 2018, "Addressing Function Approximation Error" (arXiv 1802.09477).

Two critics, a deterministic actor that takes a step at every second update, and targets of both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from robo_policies.learners.offline import OfflineValueSettings
from robo_policies.learners.parts import Learned, LearnerParts
from robo_policies.networks.actor_critic import Critics, normal
from robo_policies.networks.encoders import TensorBatch
from robo_policies.networks.regression_actors import DeterministicActor
from robo_rl.errors import require_allowed
from robo_rl.requirements import require_continuous
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Batch, Metrics


@dataclass(frozen=True)
class TD3Settings(OfflineValueSettings):
    """Settings common to TD3+BC, ReBRAC and OER: how often the actor is updated, and the noise of target actions.

    Defaults are those of TD3+BC.
    """

    actor_every: int = 2
    """Critic updates for each update of the actor."""
    target_noise: float = 0.2
    """Standard deviation of the noise on the target policy's actions, which lie in [-1, 1]."""
    largest_noise: float = 0.5
    """Limit to which `target_noise` is clipped on both sides."""
    exploration: float = 0.1
    """Standard deviation of the noise on actions in an online phase; TD3's value."""

    def __post_init__(self) -> None:
        super().__post_init__()
        least = {"target_noise": 0, "largest_noise": 0, "exploration": 0, "actor_every": 1}
        require_allowed(self, {name: (getattr(self, name) >= low, f"{low} or more") for name, low in least.items()})


class Regulariser(ABC):
    """Base class of what keeps TD3 near the recorded actions: it changes the critics' targets and the actor's loss."""

    def following(self, values: Tensor, actions: Tensor, data: TensorBatch) -> Tensor:
        """Return `values`, min_i Q'_i(s', a') (B,), minus a penalty for the actions a' (B, A); no penalty by default."""
        del actions, data
        return values

    @abstractmethod
    def actor_loss(self, learner: TD3, observations: Tensor, data: TensorBatch) -> Tensor:
        """Return the loss of the actor, a scalar, averaged over the batch.

        Args:
            learner: The learner, for its actor and critics.
            observations: Features (B, F).
            data: The batch, with the recorded actions.
        """


class TD3(Learned):
    """Learner of TD3+BC and ReBRAC: TD3 on recorded data, kept near the recorded actions by a `Regulariser`."""

    def __init__(
        self, spec: EnvironmentSpec, config: TD3Settings, seed: int, regulariser: Regulariser, reward_scale: float = 1.0
    ) -> None:
        require_continuous(spec, type(config).__name__.removesuffix("Config"))
        self.parts = parts = LearnerParts(spec, config, seed)
        self.config, self.regulariser, self.reward_scale = config, regulariser, reward_scale
        inputs, actions = parts.encoder.size, spec.action.size
        self.actor = parts.add("actor", DeterministicActor(parts.networks, inputs, actions, config.exploration), config.lr)
        critic = Critics(parts.networks, inputs + actions)
        self.critic = parts.add("critic", critic, config.lr, trains_encoder=True)
        self.target_actor = parts.add_target("target_actor", self.actor)
        self.target_critic = parts.add_target("target_critic", self.critic, sees=True)
        parts.act_with(self.actor)

    @torch.no_grad()
    def critic_target(self, data: TensorBatch) -> Tensor:
        """Return the targets (B,) of the critics: r + gamma min_i Q'_i(s', a'), with a' = pi'(s') + clipped noise."""
        actions = self.smoothed_actions(data)
        values = self.target_critic(self.parts.target_encoder(data.next_observations), actions).amin(0)
        following = self.regulariser.following(values, actions, data)
        return self.reward_scale * data.rewards + data.discounts * data.masks * following

    def update(self, batch: Batch) -> Metrics:
        """Take one gradient step of the critics; every `actor_every`-th update also one of the actor, and moves all targets.

        Returns metrics for the log, empty if none are due.
        """
        config, parts = self.config, self.parts
        data = parts.batch(batch)
        targets = self.critic_target(data)
        values = self.critic(parts.encoder(data.observations), data.actions)
        critic_loss = (data.weights * (values - targets).square()).mean(1).sum()
        self.critic.descend(critic_loss)
        scalars = {"critic_loss": critic_loss, "q_mean": values.mean()}
        if (parts.updates + 1) % config.actor_every == 0:
            with torch.no_grad():
                observations = parts.encoder(data.observations)
            actor_loss = self.regulariser.actor_loss(self, observations, data)
            self.actor.descend(actor_loss)
            parts.track(self.target_actor, self.actor, config.tau)
            parts.track(self.target_critic, self.critic, config.tau)
            scalars["actor_loss"] = actor_loss * config.actor_every  # the window divides by all updates
        return parts.finish_update(scalars)

    def smoothed_actions(self, data: TensorBatch) -> Tensor:
        """Return a' (B, A): actions of the target policy at s' with clipped noise, clipped to [-1, 1] (eq. 14)."""
        actions, config = self.target_actor(self.parts.target_encoder(data.next_observations)), self.config
        noise = config.target_noise * normal(actions, self.parts.generator)
        return torch.clamp(actions + noise.clamp(-config.largest_noise, config.largest_noise), -1.0, 1.0)
