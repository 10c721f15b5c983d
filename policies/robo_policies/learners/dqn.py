"""Deep Q-learning for discrete actions: Mnih et al. 2015, "Human-level control through deep reinforcement learning".

The target is that of van Hasselt et al. 2016, "Deep Reinforcement Learning with Double Q-learning", arXiv:1509.06461.
B rows, C choices.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from robo_policies.learners.parts import Learned, LearnerParts
from robo_policies.networks.actor_critic import NetworkFactory, Trainable
from robo_policies.networks.encoders import TensorBatch
from robo_policies.networks.settings import LearnerSettings, Network
from robo_rl.errors import require_allowed
from robo_rl.protocols.contract import STEPS, Feature, Needs
from robo_rl.protocols.sampling import Replay, Sampling
from robo_rl.requirements import require_choices
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Batch, Metrics


@dataclass(frozen=True)
class DQNReplay(Replay):
    """Settings group `replay` of DQN: size of the replay memory, and the random steps before the first update."""

    learning_starts: int = 1_000
    """Environment steps with uniformly random actions before the first update."""


@dataclass(frozen=True)
class DQNConfig(LearnerSettings):
    """Settings of double DQN (Mnih et al. 2015; van Hasselt et al. 2016, arXiv:1509.06461), for discrete actions.

    They steer the optimiser, the target network and the decay of epsilon. Defaults are for observations of vectors; the paper's
    are for pictures of Atari games.
    """

    needs = Needs(STEPS, frozenset({Feature.DISCRETE}))

    lr: float = 3e-4
    """Learning rate of Adam."""
    batch_size: int = 128
    """Transitions of one update."""
    discount: float = 0.99
    """Weight of a reward one step later."""
    tau: float = 0.005
    """Share of the online network that enters the target network at each update."""
    exploration_updates: int = 10_000
    """Number of updates over which epsilon, the probability of a random action, falls from 1 to `exploration`."""
    exploration: float = 0.05
    """Epsilon after `exploration_updates` updates, 0 to 1."""
    network: Network = Network()
    """Network of the values Q; its fields for critics apply to it."""
    replay: DQNReplay = DQNReplay()
    """Settings of the replay memory."""

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = {"exploration_updates": (self.exploration_updates >= 1, "1 or more")}
        require_allowed(self, allowed | {"exploration": (0.0 <= self.exploration <= 1.0, "0 to 1")})

    @property
    def sampling(self) -> Sampling:
        """Settings of these that the training loop reads: replay memory, batch size, updates per step, discount."""
        return Sampling.of(self)

    def build(self, spec: EnvironmentSpec, seed: int) -> DQN:
        """Build an untrained DQN learner for the spec of an environment; its network is initialised from `seed`."""
        return DQN(spec, self, seed)


class EpsilonGreedy(Trainable):
    """Network of the values Q(s, a) of C choices, and epsilon-greedy actions.

    The best choice is taken, or with probability `epsilon` a random one.
    """

    epsilon: Tensor

    def __init__(self, factory: NetworkFactory, inputs: int, choices: int) -> None:
        super().__init__()
        self.layers = factory.critic(inputs, 1, outputs=choices)
        self.register_buffer("epsilon", torch.ones(()))

    def values(self, observations: Tensor) -> Tensor:
        """Return Q(s, .) (B, C) for features (B, F)."""
        values: Tensor = self.layers(observations).squeeze(0)
        return values

    def mode(self, observations: Tensor) -> Tensor:
        """Return the choices (B,) with the largest values."""
        return self.values(observations).argmax(-1)

    def draw(self, observations: Tensor, generator: torch.Generator) -> Tensor:
        """Return epsilon-greedy choices (B,)."""
        values = self.values(observations).cpu()  # the generator's device
        others = torch.randint(values.shape[-1], values.shape[:1], generator=generator)
        return torch.where(torch.rand(values.shape[:1], generator=generator) < self.epsilon.cpu(), others, values.argmax(-1))


class DQN(Learned):
    """Learner of DQN: discrete actions from a replay memory, by double Q-learning."""

    def __init__(self, spec: EnvironmentSpec, config: DQNConfig, seed: int) -> None:
        require_choices(spec, "DQN")
        self.config = config
        self.parts = parts = LearnerParts(spec, config, seed)
        actor = EpsilonGreedy(parts.networks, parts.encoder.size, spec.action.size)
        self.actor = parts.add("values", actor, config.lr, trains_encoder=True)
        self.target = parts.add_target("target_values", self.actor, sees=True)
        parts.act_with(self.actor)

    def update(self, batch: Batch) -> Metrics:
        """Take one gradient step on a batch, and decrease epsilon.

        Returns the metrics for the log, or an empty dict at updates for which none are due.
        """
        data, config = self.parts.batch(batch), self.config
        values = self.actor.values(self.parts.encoder(data.observations))
        taken = values.gather(1, data.actions[:, None]).squeeze(1)
        loss = (data.weights * functional.smooth_l1_loss(taken, self.targets(data), reduction="none")).mean()
        self.actor.descend(loss)
        self.parts.track(self.target, self.actor, config.tau)
        self.actor.epsilon.fill_(max(config.exploration, 1.0 - (self.parts.updates + 1) / config.exploration_updates))
        return self.parts.finish_update({"loss": loss, "q_mean": taken.mean(), "epsilon": self.actor.epsilon})

    @torch.no_grad()
    def targets(self, data: TensorBatch) -> Tensor:
        """Return the targets (B,): r + gamma Q'(s', argmax_a Q(s', a)), without the second term if the task ended."""
        chosen = self.actor.mode(self.parts.encoder(data.next_observations))
        values = self.target.values(self.parts.target_encoder(data.next_observations))
        return data.rewards + data.discounts * data.masks * values.gather(1, chosen[:, None]).squeeze(1)
