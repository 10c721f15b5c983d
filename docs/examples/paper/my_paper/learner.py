"""RWR: Peters & Schaal 2007, "Reinforcement Learning by Reward-Weighted Regression for Operational Space Control"."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from robo_policies.learners.parts import Learned, LearnerParts
from robo_policies.networks.encoders import TensorBatch
from robo_policies.networks.regression_actors import DeterministicActor
from robo_policies.networks.settings import LearnerSettings, Network
from robo_rl.protocols.contract import STEPS, Needs
from robo_rl.protocols.sampling import Replay, Sampling
from robo_rl.requirements import require_continuous
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Batch, Metrics


@dataclass(frozen=True)
class RWRReplay(Replay):
    """Replay memory of reward-weighted regression."""

    learning_starts: int = 1_000
    n_step: int = 20
    """Steps over which a reward counts for an action."""


@dataclass(frozen=True)
class RWRConfig(LearnerSettings):
    """Settings of reward-weighted regression."""

    needs = Needs(STEPS)

    lr: float = 3e-4
    """Learning rate of Adam."""
    temperature: float = 0.1
    """[reward] lower imitates only the best."""
    batch_size: int = 256
    """Steps of a gradient step."""
    network: Network = Network()
    """Networks."""
    replay: RWRReplay = RWRReplay()
    """Replay memory."""

    @property
    def sampling(self) -> Sampling:
        """Requirements on the training loop."""
        return Sampling.of(self)

    def build(self, spec: EnvironmentSpec, seed: int) -> RWR:
        """Return a fresh learner."""
        return RWR(spec, self, seed)


class RWR(Learned):
    """Imitation of rewarded actions."""

    def __init__(self, spec: EnvironmentSpec, config: RWRConfig, seed: int) -> None:
        require_continuous(spec, "rwr")
        self.config = config
        self.parts = parts = LearnerParts(spec, config, seed)
        actor = DeterministicActor(parts.networks, parts.encoder.size, spec.action.size)
        self.actor = parts.add("actor", actor, config.lr, trains_encoder=True)
        parts.act_with(self.actor)

    def update(self, batch: Batch) -> Metrics:
        """Take one gradient step."""
        data = self.parts.batch(batch)
        loss = (self._weights(data) * self.actor.loss(self.parts.encoder(data.observations), data.actions)).mean()
        self.actor.descend(loss)
        return self.parts.finish_update({"actor_loss": loss})

    def _weights(self, data: TensorBatch) -> torch.Tensor:
        # weights exp(r / temperature), normalised over the batch
        return (data.rewards / self.config.temperature).softmax(0) * len(data)
