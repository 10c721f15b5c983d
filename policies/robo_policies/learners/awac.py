"""AWAC: Nair et al. 2020, "AWAC: Accelerating Online Reinforcement Learning with Offline Datasets" (arXiv 2006.09359)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from robo_policies.learners.iql import LARGEST_WEIGHT
from robo_policies.learners.offline import OfflineValueSettings
from robo_policies.learners.parts import Learned, LearnerParts
from robo_policies.networks.actor_critic import Critics
from robo_policies.networks.encoders import TensorBatch
from robo_policies.networks.regression_actors import GaussianActor
from robo_rl.errors import require_allowed
from robo_rl.requirements import require_continuous
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Batch, Metrics


@dataclass(frozen=True)
class AWACConfig(OfflineValueSettings):
    """Settings of AWAC (Nair et al. 2020, arXiv 2006.09359), which clones recorded actions weighted by their advantage.

    Its own fields steer how strongly good actions are preferred (`temperature`) and the scale of rewards. The authors' actor
    has four hidden layers.
    """

    temperature: float = 1.0
    """Lambda [reward], divisor of the advantages in the exponent; the paper takes 1 for locomotion, 0.3 for manipulation."""
    reward_scale: float = 1.0
    """Factor by which rewards are multiplied."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_allowed(self, {"temperature": (self.temperature > 0, "above 0")})

    def build(self, spec: EnvironmentSpec, seed: int) -> AWAC:
        """Build an untrained AWAC learner for the spec of an environment; its networks are initialised from `seed`."""
        return AWAC(spec, self, seed)


class AWAC(Learned):
    """Learner of AWAC: its actor imitates the recorded actions, weighted by exp(advantage / lambda).

    Its critics learn Q of the current policy by temporal differences.
    """

    def __init__(self, spec: EnvironmentSpec, config: AWACConfig, seed: int) -> None:
        require_continuous(spec, "AWAC")
        self.config = config
        self.parts = parts = LearnerParts(spec, config, seed)
        inputs, actions = parts.encoder.size, spec.action.size
        self.actor = parts.add("actor", GaussianActor(parts.networks, inputs, actions), config.lr)
        self.critic = parts.add("critic", Critics(parts.networks, inputs + actions), config.lr, trains_encoder=True)
        self.target_critic = parts.add_target("target_critic", self.critic, sees=True)
        parts.act_with(self.actor)

    def update(self, batch: Batch) -> Metrics:
        """Take one gradient step of the critics, then one of the actor; returns metrics for the log, empty if none are due."""
        data = self.parts.batch(batch)
        values = self.critic(self.parts.encoder(data.observations), data.actions)
        critic_loss = (data.weights * (values - self.critic_target(data)).square()).mean(1).sum()
        self.critic.descend(critic_loss)
        actor_loss = self.actor_loss(data)
        self.actor.descend(actor_loss)
        self.parts.track(self.target_critic, self.critic, self.config.tau)
        scalars = {"critic_loss": critic_loss, "actor_loss": actor_loss, "q_mean": values.mean()}
        return self.parts.finish_update(scalars)

    @torch.no_grad()
    def critic_target(self, data: TensorBatch) -> Tensor:
        """Return the targets (B,) of the critics: r + gamma min_i Q'_i(s', a'), with a' drawn from the policy."""
        next_actions = self.actor.draw(self.parts.encoder(data.next_observations), self.parts.generator)
        next_q = self.target_critic(self.parts.target_encoder(data.next_observations), next_actions).amin(0)
        return self.config.reward_scale * data.rewards + data.discounts * data.masks * next_q

    def actor_loss(self, data: TensorBatch) -> Tensor:
        """Return the actor's loss, the mean over the batch of -exp((Q(s, a) - V(s)) / lambda) log pi(a|s) (eq. 13).

        V(s) is Q(s, a') for one a' drawn from the policy.

        Differs from the paper: the weights are limited to 100, as in later implementations, because one large advantage
        would otherwise outweigh the batch.
        """
        with torch.no_grad():
            observations = self.parts.encoder(data.observations)
            own = self.actor.draw(observations, self.parts.generator)
            v = self.critic(observations, own).amin(0)
            q = self.critic(observations, data.actions).amin(0)
            weights = torch.exp((q - v) / self.config.temperature).clamp(max=LARGEST_WEIGHT)
        log_densities = self.actor.log_density(observations, data.actions, self.parts.generator)
        return -(data.weights * weights * log_densities).mean()
