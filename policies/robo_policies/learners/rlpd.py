"""RLPD: Ball et al. 2023, "Efficient Online Reinforcement Learning with Offline Data", arXiv:2302.02948.

Soft actor-critic with four changes: half of every batch is offline data, LayerNorm in the critics, a large ensemble of
which a random subset gives the target, and many critic updates per environment step. The steps below follow algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from robo_policies.learners.actor_critic import ActorCritic
from robo_policies.learners.learning import ActorPolicy, EncodedBatch, track
from robo_policies.networks.eyes import eyes_of
from robo_policies.networks.perceptrons import Floats, Precision
from robo_policies.networks.settings import require_continuous, require_ranges
from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.sampling import Sampling
from robo_rl.spec import EnvironmentSpec
from robo_rl.types import Batch, Metrics, StateDict


@dataclass(frozen=True)
class RLPDConfig:
    """Settings of RLPD; defaults are those of the authors' code for sparse-reward tasks unless a field says otherwise."""

    lr: float = 3e-4
    """Learning rate of actor, critics and temperature."""
    batch_size: int = 256
    """Transitions of one critic update, online and offline ones together."""
    updates_per_step: int = 20
    """Critic updates per environment step; the actor and the temperature are updated once."""
    offline_fraction: float = 0.5
    """Share of each batch that comes from demonstrations."""
    discount: float = 0.99
    """Weight of a reward one step later."""
    tau: float = 0.005
    """Share of the online critics that enters the target critics at each critic update."""
    hidden: tuple[int, ...] = (256, 256)
    """Units of the hidden layers of actor and critics; the authors use three layers for AntMaze and Adroit."""
    critics: int = 10
    """Critics in the ensemble, each trained on every batch."""
    target_critics: int = 2
    """Critics drawn at random for each target, whose minimum it takes; the authors use 1 for AntMaze."""
    layer_norm: bool = True
    """LayerNorm before each ReLU of the critics, which bounds Q for actions that no data shows."""
    backup_entropy: bool = False
    """Entropy in the target. Off, because with a sparse reward it adds a bias that hides the reward."""
    initial_temperature: float = 1.0
    """[1] weight of the entropy at the start."""
    target_entropy_per_action: float = -0.5
    """[nat] wanted entropy of the policy per action element."""
    convolutions: tuple[int, ...] = ()
    """Channels of the layers through which pictures are seen, each of half the height and width; none: they are not seen. The
    authors have 32, 64, 128, 256 for 64 pixels, DrQ four of 32 for 84."""
    crop_padding: int = 4
    """[pixel] by which pictures are shifted at most, at random, when they are learnt from; DrQ's for 84 pixels."""
    frozen_convolutions: str | None = None
    """File of weights (safetensors) with which the convolutions stay; what follows them is learnt. None: they are learnt."""
    normalization_rows: int = 0
    """Observations whose mean and deviation standardise the input; 0 leaves it as it is, as the authors do."""
    n_step: int = 1
    """Steps of reward before the bootstrap value."""
    learning_starts: int = 5_000
    """Environment steps with random actions before the first update, as in the authors' published commands."""
    replay_capacity: int = 1_000_000
    """Rows of the online replay memory."""
    precision: Precision = "float32"
    """Of the products of the hidden layers, as in SAC."""
    replay_folder: str | None = None
    """Folder on a disk in which the online replay memory is mapped; None keeps it in RAM."""

    def __post_init__(self) -> None:
        require_ranges(self)
        frozen = self.frozen_convolutions is None or bool(self.convolutions)
        require_allowed(self, {"frozen_convolutions": (frozen, "none where there are no convolutions")})
        if not 1 <= self.target_critics <= self.critics:
            raise InvalidSetting(
                "target_critics must be among the critics.", got=self.target_critics, allowed=f"1 to {self.critics}"
            )

    @property
    def sampling(self) -> Sampling:
        """What the training loop must provide."""
        return Sampling.of(self)

    def build(self, spec: EnvironmentSpec, seed: int) -> RLPD:
        """Returns a fresh learner."""
        return RLPD(spec, self, seed)


class RLPD:
    """Learns online from its own steps and from demonstrations at once."""

    def __init__(self, spec: EnvironmentSpec, config: RLPDConfig, seed: int) -> None:
        require_continuous(spec, "RLPD")
        self.config = config
        self.parts = parts = ActorCritic(spec, config, seed, eyes_of(spec, config, seed))
        self.eyes = parts.eyes
        self.encoder, self.actor, self.temperature = parts.encoder, parts.actor, parts.temperature
        self.critic, self.target_critic = parts.critic, parts.target_critic

    @property
    def policy(self) -> ActorPolicy:
        """The policy being trained."""
        return self.parts.policy

    def update(self, batch: Batch) -> Metrics:
        """Takes the gradient steps of one training step."""
        return self.parts.finish_update(self.learn(self.parts.encoded(batch)))

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")  # what is not finite is refused with a better message
    def learn(self, data: EncodedBatch) -> dict[str, float]:
        """Cuts the batch into `updates_per_step` slices: a critic step on each, then actor and temperature on the last."""
        if len(data) % self.config.updates_per_step:
            raise InvalidSetting(
                "The batch cannot be cut into equal slices.",
                got=f"{len(data)} transitions",
                allowed=f"a multiple of updates_per_step = {self.config.updates_per_step}",
                fix="sample config.sampling.batch_size * config.sampling.updates_per_step transitions",
            )
        alpha = self.temperature.value
        for part in data.slices(self.config.updates_per_step):
            targets = self.critic_target(part, alpha)
            values = self.critic.values(self.eyes.forward(part.observations), part.actions, keep=True)
            critic_loss, by_values = self.critic_loss(values, targets, part.weights)
            self.critic.backward(by_values)
            if self.eyes.features:
                self.eyes.backward(self.critic.feature_gradient(by_values, self.eyes.features))
            self.parts.descend("critic", critic_loss)
            track(self.target_critic.network, self.critic.network, self.config.tau)
            self.eyes.track(self.config.tau)

        observations = self.eyes.look(part.observations)  # the actor's loss ends here: it does not train what sees
        actions, log_densities = self.actor.sample(observations, self.parts.generator, keep=True)
        actor_loss, by_actions, by_log_densities = self.actor_loss(observations, actions, log_densities, alpha)
        self.actor.backward(by_actions, by_log_densities)
        self.parts.descend("actor", actor_loss)

        temperature_loss, by_log_alpha = self.temperature.loss(log_densities)
        self.temperature.backward(by_log_alpha)
        self.parts.descend("temperature", temperature_loss)
        losses = {"critic_loss": critic_loss, "actor_loss": actor_loss, "ent_coef_loss": temperature_loss}
        return losses | {"ent_coef": alpha, "q_mean": float(values.mean()), "entropy": -float(log_densities.mean())}

    def critic_target(self, data: EncodedBatch, alpha: float) -> Floats:
        """Returns y (B,) = r + gamma min_{i in Z} Q'_i(s', a'), Z a fresh random subset of the target critics."""
        following, as_target = (look(data.next_observations) for look in (self.eyes.look, self.eyes.look_as_target))
        next_actions, next_log_densities = self.actor.sample(following, self.parts.generator)
        next_q = self.target_critic.values_of(self._subset(), as_target, next_actions).min(0)
        if self.config.backup_entropy:
            next_q = next_q - alpha * next_log_densities
        targets: Floats = data.rewards + data.discounts * data.masks * next_q
        return targets

    def critic_loss(self, values: Floats, targets: Floats, weights: Floats) -> tuple[float, Floats]:
        """Mean squared Bellman residual over critics and batch, and its derivative by `values` (N, B)."""
        residuals = values - targets
        by_values = weights * residuals * np.float32(2 / values.size)
        return 0.5 * float(np.vdot(by_values, residuals)), by_values

    def actor_loss(
        self, observations: Floats, actions: Floats, log_densities: Floats, alpha: float
    ) -> tuple[float, Floats, Floats]:
        """Alpha log pi(a|s) - mean_i Q_i(s, a), the mean over all critics, and its derivatives by a and log pi."""
        q = self.critic.values(observations, actions, keep=True)
        by_actions = self.critic.action_gradient(np.full_like(q, -1 / q.size), actions.shape[1])
        by_log_densities = np.full_like(log_densities, alpha / len(log_densities))
        return float((alpha * log_densities - q.mean(0)).mean()), by_actions, by_log_densities

    def _subset(self) -> list[int]:
        if self.config.target_critics == self.config.critics:
            return [*range(self.config.critics)]
        subset: list[int] = torch.randperm(self.config.critics, generator=self.parts.generator).tolist()
        return subset[: self.config.target_critics]

    def state_dict(self) -> StateDict:
        """Returns networks, optimisers, generators and counters."""
        return self.parts.state_dict()

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned; the next update is the one that would have come."""
        self.parts.load_state_dict(state)
