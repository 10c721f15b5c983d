"""RLPD: Ball et al. 2023, "Efficient Online Reinforcement Learning with Offline Data", arXiv:2302.02948.

Soft actor-critic with four changes: half of every batch is offline data, LayerNorm in the critics, a large ensemble of
which a random subset gives the target, and many critic updates per environment step. The steps below follow algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from robo_policies.learners.parts import Learned
from robo_policies.learners.sac import SACSettings, soft_actor_critic
from robo_policies.networks.encoders import TensorBatch
from robo_policies.networks.image_encoder import PictureNetwork
from robo_rl.errors import InvalidSetting
from robo_rl.protocols.contract import CONTINUOUS_ONLY, STEPS, Feature, Needs
from robo_rl.protocols.sampling import NO_WORLD, Replay, Worlds
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Batch, Metrics


@dataclass(frozen=True)
class RLPDNetwork(PictureNetwork):
    """Settings group `network` of RLPD: adds LayerNorm in the critics; the authors use three hidden layers for some tasks.

    These tasks are AntMaze and Adroit.
    """

    layer_norm: bool = True
    """LayerNorm before each ReLU of the critics, which bounds Q for actions outside the data."""


@dataclass(frozen=True)
class RLPDReplay(Replay):
    """Settings group `replay` of RLPD: random steps before the first update, and share of demonstrations in each batch."""

    learning_starts: int = 5_000
    """Environment steps with uniformly random actions before the first update; 5,000 as in the authors' commands."""
    offline_fraction: float = 0.5
    """Share of each batch that comes from demonstrations, 0 to 1."""


@dataclass(frozen=True)
class RLPDSettings(SACSettings):
    """Settings common to RLPD and HIL-SERL, SAC with demonstrations in each batch: size of the ensemble, updates per step.

    Defaults are those of RLPD's code for sparse rewards.
    """

    needs = Needs(STEPS, CONTINUOUS_ONLY | {Feature.PICTURES})

    batch_size: int = 256
    """Transitions of one critic update, online and offline ones together."""
    updates_per_step: int = 20
    """Critic updates per environment step; actor and temperature have one update per step."""
    tau: float = 0.005
    """Share of the online critics that enters the target critics at each critic update."""
    critics: int = 10
    """Critics in the ensemble, each trained on every batch."""
    target_critics: int = 2
    """Number of target critics, drawn at random at each update, whose minimum is the target; the authors use 1 for AntMaze."""
    backup_entropy: bool = False
    """Include the entropy in the target. Off, because with a sparse reward it adds a bias that hides the reward."""
    target_entropy_per_action: float = -0.5
    """Target entropy of the policy for each action element [nat]."""
    network: RLPDNetwork = RLPDNetwork()
    """Sizes of the networks, and how they are computed."""
    replay: RLPDReplay = RLPDReplay()
    """Settings of the replay memory."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.target_critics <= self.critics:
            raise InvalidSetting(
                "target_critics must be among the critics.", got=self.target_critics, allowed=f"1 to {self.critics}"
            )


@dataclass(frozen=True)
class RLPDConfig(RLPDSettings):
    """Settings of RLPD (Ball et al. 2023, arXiv:2302.02948); its own field may add a learnt world model (MBPO)."""

    worlds: Worlds = NO_WORLD
    """Learnt model of the environment that adds imagined steps (MBPO); by default none."""

    def build(self, spec: EnvironmentSpec, seed: int) -> RLPD:
        """Build an untrained RLPD learner for the spec of an environment; its networks are initialised from `seed`."""
        return RLPD(spec, self, seed)


class RLPD(Learned):
    """Learner of RLPD: SAC with many critics; half of each batch (by default) is demonstrations, the rest own steps."""

    def __init__(self, spec: EnvironmentSpec, config: RLPDSettings, seed: int) -> None:
        self.config = config
        self.parts, self.actor, self.critic, self.target_critic, self.temperature = soft_actor_critic(spec, config, seed)

    def update(self, batch: Batch) -> Metrics:
        """Take `updates_per_step` gradient steps of the critics, then one of actor and temperature.

        Args:
            batch: `batch_size * updates_per_step` transitions.

        Returns:
            Metrics for the log; empty if none are due.

        Raises:
            InvalidSetting: If `updates_per_step` does not divide the number of transitions.
        """
        return self.parts.finish_update(self.learn(self.parts.batch(batch)))

    def learn(self, data: TensorBatch) -> dict[str, Tensor]:
        """Take the gradient steps of one update on a batch of tensors.

        The batch is cut into `updates_per_step` slices. Each slice gives a step of the critics, the last one also a step of
        actor and temperature. Returns losses and other scalars for the log.
        """
        parts, alpha = self.parts, self.temperature.alpha()
        for part in slices(data, self.config.updates_per_step):
            values = self.critic(parts.encoder(part.observations), part.actions)
            critic_loss = self.critic_loss(values, self.critic_target(part, alpha), part.weights)
            self.critic.descend(critic_loss)
            parts.track(self.target_critic, self.critic, self.config.tau)

        observations = parts.actor_features(part.observations)
        actions, log_densities = self.actor.sample(observations, parts.generator)
        actor_loss = self.actor_loss(observations, actions, log_densities, alpha)
        self.actor.descend(actor_loss)
        temperature_loss = self.temperature.loss(log_densities)
        self.temperature.descend(temperature_loss)
        losses = {"critic_loss": critic_loss, "actor_loss": actor_loss, "ent_coef_loss": temperature_loss}
        return losses | {"ent_coef": alpha, "q_mean": values.mean(), "entropy": -log_densities.mean()}

    @torch.no_grad()
    def critic_target(self, data: TensorBatch, alpha: Tensor) -> Tensor:
        """Return y = r + gamma min_{i in Z} Q'_i(s', a') (B,), with a new random subset Z of the target critics.

        alpha: temperature (1,), used if `backup_entropy` is set.
        """
        parts, following = self.parts, data.next_observations
        next_actions, next_log_densities = self.actor.sample(parts.encoder(following), parts.generator)
        next_q = self.target_critic(parts.target_encoder(following), next_actions, members=self._subset()).amin(0)
        if self.config.backup_entropy:
            next_q = next_q - alpha * next_log_densities
        return data.rewards + data.discounts * data.masks * next_q

    def critic_loss(self, values: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """Return the mean squared Bellman residual over critics and batch, for values (N, B), targets (B,) and weights (B,)."""
        return (weights * (values - targets).square()).mean()

    def actor_loss(self, observations: Tensor, actions: Tensor, log_densities: Tensor, alpha: Tensor) -> Tensor:
        """Return the mean over the batch of alpha log pi(a|s) - mean_i Q_i(s, a), with the mean over all critics."""
        return (alpha * log_densities - self.critic(observations.detach(), actions).mean(0)).mean()

    def _subset(self) -> list[int] | slice:
        if self.config.target_critics == self.config.critics:
            return slice(None)
        subset: list[int] = torch.randperm(self.config.critics, generator=self.parts.generator).tolist()
        return subset[: self.config.target_critics]


def slices(data: TensorBatch, count: int) -> Iterator[TensorBatch]:
    """Yield `count` contiguous parts of equal size of a batch; raises InvalidSetting if `count` does not divide its size."""
    if len(data) % count:
        raise InvalidSetting(
            "The batch cannot be cut into equal slices.",
            got=f"{len(data)} transitions",
            allowed=f"a multiple of updates_per_step = {count}",
            fix="sample config.sampling.batch_size * config.sampling.updates_per_step transitions",
        )
    size = len(data) // count
    for start in range(0, len(data), size):
        yield TensorBatch(**{field.name: _cut(getattr(data, field.name), start, size) for field in fields(data)})


def _cut(values: Any, start: int, size: int) -> Any:
    if isinstance(values, dict):
        return {name: value[start : start + size] for name, value in values.items()}
    return values[start : start + size]
