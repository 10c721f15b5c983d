"""Soft actor-critic: Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications", arXiv:1812.05905.

Equation numbers are those of that paper. At equal settings it is the algorithm of Stable-Baselines3's SAC.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from typing_extensions import override

from robo_policies.learners.parts import Learned, LearnerParts
from robo_policies.networks.actor_critic import Critics, TanhGaussianActor, Temperature
from robo_policies.networks.encoders import TensorBatch
from robo_policies.networks.settings import LearnerSettings, Network
from robo_rl.protocols.components import Stateless
from robo_rl.protocols.contract import STEPS, Needs
from robo_rl.protocols.sampling import NO_WORLD, Replay, Sampling, Worlds
from robo_rl.requirements import require_continuous
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Batch, Metrics, StateDict


@dataclass(frozen=True)
class SACSettings(LearnerSettings):
    """Settings common to SAC and learners based on it: optimiser, discount, target networks, critics, entropy, memory.

    Defaults are those of Stable-Baselines3's SAC unless a field says otherwise.
    """

    needs = Needs(STEPS)

    lr: float = 3e-4
    """Learning rate of actor, critics and temperature."""
    batch_size: int = 256
    """Transitions of one update."""
    discount: float = 0.99
    """Weight of a reward one step later."""
    tau: float = 0.005
    """Share of the online critics that enters the target critics at each update."""
    critics: int = 2
    """Number of critics; targets and actor take their minimum."""
    initial_temperature: float = 1.0
    """Temperature alpha, the weight of the entropy, at the start; above 0."""
    target_entropy_per_action: float = -1.0
    """Target entropy of the policy for each action element [nat]; -1 gives the paper's -dim(A)."""
    privileged_critic: bool = False
    """The critics also read privileged entries of the observation (those that only a simulator knows); the policy never reads
    them (Pinto et al. 2018, arXiv:1710.06542)."""
    network: Network = Network()
    """Sizes of the networks, and how they are computed."""
    replay: Replay = Replay()
    """Settings of the replay memory."""

    @property
    def sampling(self) -> Sampling:
        """The part of these settings that the training loop reads: replay memory, batch size, updates per step, discount."""
        return Sampling.of(self)


@dataclass(frozen=True)
class SACConfig(SACSettings):
    """Settings of the learner `sac` (Haarnoja et al. 2018, arXiv:1812.05905); its own field may add a world model (MBPO)."""

    worlds: Worlds = NO_WORLD
    """Learnt model of the environment that adds imagined steps (MBPO); by default none."""

    def build(self, spec: EnvironmentSpec, seed: int) -> SAC:
        """Build an untrained SAC learner for the spec of an environment; its networks are initialised from `seed`."""
        return SAC(spec, self, seed)


class SoftActorCritic(NamedTuple):
    """Everything that SAC trains: actor, critics, target critics and temperature, with the `LearnerParts` that hold them."""

    parts: LearnerParts
    actor: TanhGaussianActor
    critic: Critics
    target_critic: Critics
    temperature: Temperature


def soft_actor_critic(spec: EnvironmentSpec, config: SACSettings, seed: int) -> SoftActorCritic:
    """Build the untrained networks of SAC and their optimisers for the spec of an environment, and a policy that acts.

    Raises:
        InvalidSetting: The environment has discrete actions.
    """
    require_continuous(spec, type(config).__name__.removesuffix("Config"))
    parts = LearnerParts(spec, config, seed)
    inputs, actions = parts.encoder.size, spec.action.size
    critic = Critics(parts.networks, parts.encoder.critic_size + actions, config.critics)
    parts.add("critic", critic, config.lr, trains_encoder=True)
    target_critic = parts.add_target("target_critic", critic, sees=True)
    actor = TanhGaussianActor(parts.networks, inputs, actions)
    parts.add("actor", actor, config.lr, trains_encoder=config.privileged_critic)  # as in Pinto et al.
    temperature = Temperature(config.initial_temperature, config.target_entropy_per_action * actions)
    parts.add("temperature", temperature, config.lr)
    parts.act_with(actor)
    return SoftActorCritic(parts, actor, critic, target_critic, temperature)


class Objective(Stateless):
    """What SAC maximises, return plus entropy, as methods that learners based on SAC override to change one quantity."""

    def entropy_weight(self, alpha: Tensor, data: TensorBatch) -> Tensor:
        """Return the weight of the entropy, (1,) or (B,), given the temperature alpha (1,); SAC returns alpha."""
        return alpha

    def entropy_terms(self, log_densities: Tensor, actions: Tensor, data: TensorBatch, *, following: bool) -> Tensor:
        """Return the term (B,) that takes the place of log pi(a|s) (B,) in the losses; SAC returns log pi(a|s) itself.

        actions: (B, A). following: True for actions at s', False for actions at s.
        """
        return log_densities

    def target(self, targets: Tensor, data: TensorBatch) -> Tensor:
        """Return the targets (B,) of the critics, given those of SAC (right-hand side of eq. 5) (B,); SAC changes nothing."""
        return targets

    def actor_loss(self, loss: Tensor, observations: Tensor, actions: Tensor) -> Tensor:
        """Return the actor's loss, a scalar, given that of SAC (eq. 9); the base class returns it unchanged.

        observations: features (B, F). actions: the policy's actions (B, A).
        """
        return loss


class SAC(Learned):
    """Learner of soft actor-critic (SAC): each batch gives one gradient step of the critics, the actor and the temperature."""

    def __init__(self, spec: EnvironmentSpec, config: SACSettings, seed: int, objective: Objective | None = None) -> None:
        """Make the learner; `objective` is by default that of SAC, return and entropy."""
        self.config, self.objective = config, objective or Objective()
        self.parts, self.actor, self.critic, self.target_critic, self.temperature = soft_actor_critic(spec, config, seed)

    def update(self, batch: Batch) -> Metrics:
        """Take one gradient step of critics, actor and temperature; returns metrics for the log, empty if none are due."""
        return self.parts.finish_update(self.learn(self.parts.batch(batch)))

    def learn(self, data: TensorBatch) -> dict[str, Tensor]:
        """Take one gradient step of critics, actor and temperature on a batch of tensors (algorithm 1, lines 10 to 13).

        Returns losses and other figures for the log.
        """
        parts = self.parts
        observations = parts.encoder(data.observations).detach()
        # Differs from algorithm 1: one draw of actions serves temperature and actor, as in Stable-Baselines3.
        actions, log_densities = self.sampled(observations, data, following=False)
        alpha = self.temperature.alpha()
        weight = self.objective.entropy_weight(alpha, data)
        temperature_loss = self.temperature.loss(log_densities)  # eq. 18
        self.temperature.descend(temperature_loss)
        values = self.critic(parts.encoder(data.observations), data.actions)
        critic_loss = self.critic_loss(values, self.critic_target(data, weight), data.weights)
        self.critic.descend(critic_loss)
        actor_loss = self.actor_loss(observations, actions, log_densities, weight)
        self.actor.descend(actor_loss)
        parts.track(self.target_critic, self.critic, self.config.tau)
        losses = {"critic_loss": critic_loss, "actor_loss": actor_loss, "ent_coef_loss": temperature_loss}
        return losses | {"ent_coef": alpha, "q_mean": values.mean(), "entropy": -log_densities.mean()}

    def sampled(self, features: Tensor, data: TensorBatch, *, following: bool) -> tuple[Tensor, Tensor]:
        """Return random actions (B, A) of the policy for features (B, F), and their entropy terms (B,), log pi(a|s) in SAC.

        following: True if the features are those of s', False for s.
        """
        actions, log_densities = self.actor.sample(features, self.parts.generator)
        return actions, self.objective.entropy_terms(log_densities, actions, data, following=following)

    @torch.no_grad()
    def critic_target(self, data: TensorBatch, alpha: Tensor) -> Tensor:
        """Return the targets y (B,): r + gamma (min_i Q'_i(s', a') - alpha log pi(a'|s')) (eq. 5 with 3)."""
        features = self.parts.encoder(data.next_observations)
        seen_by_target = self.parts.target_encoder(data.next_observations)
        next_actions, next_log_densities = self.sampled(features, data, following=True)
        next_q = self.target_critic(seen_by_target, next_actions).amin(0)
        return self.objective.target(data.rewards + data.discounts * data.masks * (next_q - alpha * next_log_densities), data)

    def critic_loss(self, values: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """Return J_Q (eq. 5): half the squared Bellman residual, averaged over the batch and summed over the critics.

        values: (N, B). targets, weights: (B,).
        """
        return 0.5 * (weights * (values - targets).square()).mean(1).sum()

    def actor_loss(self, observations: Tensor, actions: Tensor, log_densities: Tensor, alpha: Tensor) -> Tensor:
        """Return J_pi (eq. 9): the mean of alpha log pi(a|s) - min_i Q_i(s, a) at the policy's actions (B, A)."""
        loss = (alpha * log_densities - self.critic(observations.detach(), actions).amin(0)).mean()
        return self.objective.actor_loss(loss, observations, actions)

    @override
    def state_dict(self) -> StateDict:
        return super().state_dict() | self.objective.state_dict()

    @override
    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        self.objective.load_state_dict(state)
