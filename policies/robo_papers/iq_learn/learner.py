"""IQ-Learn: Garg et al. 2021, "IQ-Learn: Inverse soft-Q Learning for Imitation", arXiv:2106.12142.

One soft Q-function is reward and value at once: r(s, a) = Q(s, a) - gamma V(s'). It rises at the expert's steps and is held
back elsewhere; a soft actor-critic follows it. Equation numbers are those of the paper. B rows, N critics.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from robo_policies.learners.imitation import ImitationSettings
from robo_policies.learners.parts import Learned
from robo_policies.learners.sac import soft_actor_critic
from robo_policies.networks.encoders import TensorBatch
from robo_rl.errors import require_allowed
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Batch, Metrics


@dataclass(frozen=True)
class IQLearnConfig(ImitationSettings):
    """Settings of IQ-Learn (Garg et al. 2021, arXiv:2106.12142): SAC whose critics learn from an expert's steps.

    Its own fields set the regulariser, the constant entropy weight and the actor's learning rate; the values are the authors'
    for MuJoCo unless a field says otherwise.
    """

    divergence_weight: float = 0.5
    """Alpha of the chi-square regulariser: rewards are held near 0, the more the smaller it is."""
    initial_temperature: float = 0.01
    """Weight of the entropy, constant over the training; above 0."""
    actor_lr: float = 3e-5
    """Learning rate of the actor; `lr` is that of the critics."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_allowed(self, {name: (getattr(self, name) > 0.0, "above 0") for name in ("divergence_weight", "actor_lr")})

    def build(self, spec: EnvironmentSpec, seed: int) -> IQLearn:
        """Build an untrained IQ-Learn learner for the spec of an environment; its networks are initialised from `seed`."""
        return IQLearn(spec, self, seed)


class IQLearn(Learned):
    """Learner of IQ-Learn: SAC whose critics learn from whether a step is the expert's, without rewards."""

    def __init__(self, spec: EnvironmentSpec, config: IQLearnConfig, seed: int) -> None:
        self.config = config
        self.parts, self.actor, self.critic, self.target_critic, self.temperature = soft_actor_critic(spec, config, seed)

    def update(self, batch: Batch) -> Metrics:
        """Take one gradient step of critics and actor; the temperature stays. Returns metrics, empty if none are due."""
        return self.parts.finish_update(self.learn(self.parts.batch(batch)))

    def learn(self, data: TensorBatch) -> dict[str, Tensor]:
        """Take one gradient step of critics and actor on a batch of tensors; returns figures for the log."""
        parts, config = self.parts, self.config
        alpha = self.temperature.alpha()
        observations = parts.encoder(data.observations).detach()
        actions, log_densities = self.actor.sample(observations, parts.generator)
        values = self.critic(parts.encoder(data.observations), data.actions)
        states = self.critic(observations, actions.detach()) - alpha * log_densities.detach()
        following = data.discounts * data.masks * self.next_value(data, alpha)
        critic_loss = self.imitation_loss(values, states, following, data.extras["from_expert"])
        self.critic.descend(critic_loss)
        actor_loss = (alpha * log_densities - self.critic(observations, actions).amin(0)).mean()
        self.actor.descend(actor_loss, config.actor_lr)
        parts.track(self.target_critic, self.critic, config.tau)
        rewards = (values - following).mean(0)
        is_expert = data.extras["from_expert"].float()
        figures = {"expert": _mean(rewards, is_expert), "policy": _mean(rewards, 1.0 - is_expert)}
        found = {f"reward_of_{name}": figure for name, figure in figures.items()} | {"entropy": -log_densities.mean()}
        return found | {"critic_loss": critic_loss, "actor_loss": actor_loss, "q_mean": values.mean()}

    @torch.no_grad()
    def next_value(self, data: TensorBatch, alpha: Tensor) -> Tensor:
        """Return V(s') (B,), the soft value of an action of the policy by the target critics."""
        parts, following = self.parts, data.next_observations
        actions, log_densities = self.actor.sample(parts.encoder(following), parts.generator)
        found: Tensor = self.target_critic(parts.target_encoder(following), actions).amin(0) - alpha * log_densities
        return found

    def imitation_loss(self, values: Tensor, states: Tensor, following: Tensor, is_expert: Tensor) -> Tensor:
        """Return the critics' loss, a scalar: eq. 10 with opposite sign, summed over the N critics.

        -E_expert[r] + E[V(s) - gamma V(s')] + E[r^2] / (4 alpha), r = Q - gamma V(s'): expectations without a name are over
        both kinds of steps, as in the authors' `value` loss with a regulariser.

        Args:
            values: Q (N, B).
            states: V (N, B) of the states.
            following: gamma V(s') (B,).
            is_expert: (B,) True for the expert's steps.
        """
        rewards = values - following
        expert = (rewards * is_expert).sum(1) / is_expert.sum().clamp(min=1)
        held = rewards.square().mean(1) / (4.0 * self.config.divergence_weight)
        return (-expert + (states - following).mean(1) + held).sum()


def _mean(values: Tensor, weights: Tensor) -> Tensor:
    return (values * weights).sum() / weights.sum().clamp(min=1.0)
