"""DrQ: Kostrikov, Yarats & Fergus 2021, "Image Augmentation Is All You Need: Regularizing Deep RL from Pixels".

arXiv:2004.13649. Soft actor-critic from pictures: the critics train an encoder that the actor shares. Both the targets and the
losses of the critics are means over random shifts of each picture (eq. 1 and 3), K = M, as in the authors' code.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from robo_policies.learners.parts import Learned
from robo_policies.learners.sac import SAC, SACSettings
from robo_policies.networks.encoders import TensorBatch
from robo_policies.networks.image_encoder import PictureNetwork
from robo_rl.errors import require_allowed
from robo_rl.protocols.contract import CONTINUOUS_ONLY, STEPS, Feature, Needs
from robo_rl.protocols.sampling import Replay
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Batch, Metrics


@dataclass(frozen=True)
class DrQNetwork(PictureNetwork):
    """Settings group `network` of DrQ: layers of the convolutional encoder and of the MLPs.

    The authors' MLPs have 1024, 1024.
    """

    convolutions: tuple[int, ...] = (32, 32, 32, 32)
    """Channels of the convolutions that read pictures, each of which halves height and width. The authors' layers after the
    first keep the size, at sixteen times the computation of a layer."""


@dataclass(frozen=True)
class DrQReplay(Replay):
    """Settings group `replay` of DrQ: size of the memory, which holds pictures, and random steps before the first update."""

    capacity: int = 100_000
    """Rows of the replay memory."""
    learning_starts: int = 1_000
    """Environment steps with random actions before the first update."""


@dataclass(frozen=True)
class DrQConfig(SACSettings):
    """Settings of DrQ (Kostrikov et al. 2021, arXiv:2004.13649), SAC from pictures that are shifted at random.

    Its own fields steer the number of shifts and how often the actor is updated. Defaults are those of the authors' code for 84
    pixels unless a field says otherwise.
    """

    needs = Needs(STEPS, CONTINUOUS_ONLY | {Feature.PICTURES})

    lr: float = 1e-3
    """Learning rate of actor, critics with encoder, and temperature."""
    batch_size: int = 128
    """Transitions of one update; the paper's figures have 512."""
    tau: float = 0.01
    """Share of the online critics and encoder that enters their targets every `actor_every` updates."""
    initial_temperature: float = 0.1
    """Temperature alpha, the weight of the entropy, at the start; above 0."""
    shifts: int = 2
    """Number of random shifts of each picture, over which targets and losses of the critics are averaged; K and M."""
    actor_every: int = 2
    """Critic updates for each update of actor, temperature and targets."""
    network: DrQNetwork = DrQNetwork()
    """Sizes of the networks, and how they are computed."""
    replay: DrQReplay = DrQReplay()
    """Settings of the replay memory."""

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = {name: (getattr(self, name) >= 1, "1 or more") for name in ("shifts", "actor_every")}
        require_allowed(self, allowed)
        sees = bool(self.network.convolutions or self.network.encoder)
        self.network.require({"convolutions": (sees, "1 or more layers, unless network.encoder names one of your own")})

    def build(self, spec: EnvironmentSpec, seed: int) -> DrQ:
        """Build an untrained DrQ learner for the spec of an environment; its networks are initialised from `seed`."""
        return DrQ(spec, self, seed)


class DrQ(Learned):
    """Learner of DrQ: SAC from pictures, whose target and critic loss are averaged over several random shifts of each picture.

    The observation may also hold vectors.
    """

    def __init__(self, spec: EnvironmentSpec, config: DrQConfig, seed: int) -> None:
        self.config, self.sac = config, SAC(spec, config, seed)
        self.parts, self.actor, self.critic = self.sac.parts, self.sac.actor, self.sac.critic
        self.temperature = self.sac.temperature

    def update(self, batch: Batch) -> Metrics:
        """Take one step of the critics, and at every `actor_every`-th update one of actor, temperature and targets."""
        parts, config, alpha = self.parts, self.config, self.temperature.alpha()
        views = self.views(batch)
        values, critic_loss = self.regularized_loss(views, self.regularized_target(views, alpha))
        self.critic.descend(critic_loss)
        scalars = {"critic_loss": critic_loss, "q_mean": values.mean(), "ent_coef": alpha}
        if (parts.updates + 1) % config.actor_every == 0:
            observations = parts.actor_features(views[0].observations)
            actions, log_densities = self.actor.sample(observations, parts.generator)
            actor_loss = self.sac.actor_loss(observations, actions, log_densities, alpha)
            self.actor.descend(actor_loss)
            temperature_loss = self.temperature.loss(log_densities)
            self.temperature.descend(temperature_loss)
            parts.track(self.sac.target_critic, self.critic, config.tau)
            delayed = {"actor_loss": actor_loss, "ent_coef_loss": temperature_loss, "entropy": -log_densities.mean()}
            # the window of metrics divides by all updates
            scalars |= {name: value * config.actor_every for name, value in delayed.items()}
        return parts.finish_update(scalars)

    def views(self, batch: Batch) -> list[TensorBatch]:
        """Return `shifts` copies of a batch with different random shifts of the pictures, f(s, nu) and f(s', nu')."""
        parts, config = self.parts, self.config
        data = TensorBatch.of(batch, parts.encoder, parts.device, parts.updates)
        return [config.network.augment(data, parts.encoder.pictures, parts.generator) for _ in range(config.shifts)]

    def regularized_target(self, views: list[TensorBatch], alpha: Tensor) -> Tensor:
        """Return the targets y (B,): the mean of SAC's targets over K shifts of s', each with its own drawn action (eq. 1)."""
        return torch.stack([self.sac.critic_target(view, alpha) for view in views]).mean(0)

    def regularized_loss(self, views: list[TensorBatch], targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the values of N critics for M shifts of s, and the mean of their losses (eq. 3).

        Args:
            views: M shifted copies of the batch.
            targets: y (B,), the same for all copies.

        Returns:
            Values (M, N, B), and the loss, a scalar.
        """
        encoder = self.parts.encoder
        values = torch.stack([self.critic(encoder(view.observations), view.actions) for view in views])
        return values, torch.stack([self.sac.critic_loss(each, targets, views[0].weights) for each in values]).mean()
