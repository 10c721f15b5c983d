"""ReBRAC: Tarasov et al. 2023, "Revisiting the Minimalist Approach to Offline Reinforcement Learning" (arXiv 2305.09836)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from robo_policies.learner_parts import LearnerParts
from robo_policies.learning import TensorBatch, require_continuous, require_ranges
from robo_policies.offline_networks import Critics, DeterministicActor
from robo_policies.td3_bc import smoothed
from robo_rl.errors import require_allowed
from robo_rl.replay import Sampling
from robo_rl.spec import EnvironmentSpec
from robo_rl.types import Batch, Metrics, StateDict


@dataclass(frozen=True)
class ReBRACConfig:
    """Settings of ReBRAC; defaults are the authors' for locomotion, whose two penalties are chosen for each dataset."""

    actor_penalty: float = 0.01
    """Weight of (pi(s) - a)^2 in the actor's loss, against a critic scaled to 1: beta_1; the paper searches 0.001 to 1."""
    critic_penalty: float = 0.01
    """Weight of (a' - a'_data)^2 in the critic's target [reward]: beta_2; the paper searches 0 to 0.5."""
    lr: float = 1e-3
    """Learning rate of Adam for both networks."""
    tau: float = 0.005
    """Share by which the target networks move at each update of the actor."""
    discount: float = 0.99
    batch_size: int = 1024
    hidden: tuple[int, ...] = (256, 256, 256)
    """Units of the hidden layers."""
    layer_norm: bool = True
    """LayerNorm in the critics; without it the paper's method fails."""
    actor_every: int = 2
    """Critic updates for each update of the actor."""
    target_noise: float = 0.2
    """Standard deviation of the noise on the target policy's action."""
    largest_noise: float = 0.5
    """Limit of that noise."""
    exploration: float = 0.1
    """Standard deviation of the noise on actions when learning goes on online, TD3's."""
    reward_scale: float = 1.0
    """Multiplies rewards; the authors take 100 in mazes. `critic_penalty` is in units of scaled reward."""
    normalization_rows: int = 10_000
    """Observations whose mean and deviation standardise the input; 0 leaves it as it is, as the authors do."""

    def __post_init__(self) -> None:
        require_ranges(self)
        least = {"actor_every": 1, "actor_penalty": 0, "critic_penalty": 0}
        require_allowed(self, {name: (getattr(self, name) >= low, f"{low} or more") for name, low in least.items()})

    @property
    def sampling(self) -> Sampling:
        """What the training loop must provide."""
        return Sampling(batch_size=self.batch_size, discount=self.discount, offline_fraction=1.0)

    def build(self, spec: EnvironmentSpec, seed: int) -> ReBRAC:
        """Returns a fresh learner."""
        return ReBRAC(spec, self, seed)


class ReBRAC:
    """TD3+BC with the penalty apart for actor and critic, LayerNorm, deeper networks and larger batches."""

    def __init__(self, spec: EnvironmentSpec, config: ReBRACConfig, seed: int) -> None:
        require_continuous(spec, "ReBRAC")
        self.config = config
        self.parts = parts = LearnerParts(spec, seed, config.normalization_rows)
        inputs, actions, hidden = parts.encoder.size, spec.action.size, config.hidden
        self.actor = parts.add(
            "actor", DeterministicActor(inputs, actions, hidden, parts.initial, config.exploration), config.lr
        )
        critic = Critics(inputs, actions, hidden, parts.initial, layer_norm=config.layer_norm)
        self.critic = parts.add("critic", critic, config.lr)
        self.target_actor = parts.add_target("target_actor", self.actor)
        self.target_critic = parts.add_target("target_critic", self.critic)
        self.policy = parts.act_with(self.actor)

    def update(self, batch: Batch) -> Metrics:
        """Takes one step of the critics, and of the actor every `actor_every` updates."""
        config, parts = self.config, self.parts
        data = TensorBatch.of(batch, parts.encoder, parts.updates)
        assert batch.next_actions is not None and batch.has_next_action is not None, "every replay memory provides them"
        targets = self.critic_target(data, torch.from_numpy(batch.next_actions), torch.from_numpy(batch.has_next_action))
        values = self.critic(data.observations, data.actions)
        critic_loss = (data.weights * (values - targets).square()).mean(1).sum()
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
    def critic_target(self, data: TensorBatch, recorded: Tensor, is_recorded: Tensor) -> Tensor:
        """Eq. 3: r + gamma (min_i Q'_i(s', a') - beta_2 |a' - a'_data|^2), a' = pi'(s') + clipped noise (B,).

        Differs from the authors' code, which leaves out the last step before a time limit: its value is kept here, and its
        penalty, for which there is no recorded action, is 0.
        """
        next_actions = smoothed(self.target_actor(data.next_observations), self.config, self.parts.generator)
        penalty = (next_actions - recorded).square().sum(-1) * is_recorded
        next_q = self.target_critic(data.next_observations, next_actions).min(0).values
        next_q = next_q - self.config.critic_penalty * penalty
        return self.config.reward_scale * data.rewards + data.discounts * data.masks * next_q

    def actor_loss(self, data: TensorBatch) -> Tensor:
        """Eq. 2: beta_1 |pi(s) - a|^2 - min_i Q_i(s, pi(s)) / mean |min_i Q_i|."""
        actions = self.actor(data.observations)
        q = self.critic(data.observations, actions).min(0).values
        cloning = (actions - data.actions).square().sum(-1)
        return (data.weights * (self.config.actor_penalty * cloning - q / q.detach().abs().mean().clamp(min=1e-6))).mean()

    def state_dict(self) -> StateDict:
        """Returns networks, optimisers, generators and counters."""
        return self.parts.state_dict()

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned; the next update is the one that would have come."""
        self.parts.load_state_dict(state)
