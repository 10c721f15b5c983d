"""Behaviour cloning: supervised learning of the demonstrated action (Pomerleau 1989, "ALVINN").

Learns from recorded episodes alone; rewards and next observations are not used.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from robo_policies.learners.offline import OfflineConfig
from robo_policies.learners.parts import Learned, LearnerParts
from robo_policies.networks.actor_critic import Network, NetworkFactory
from robo_rl.protocols.contract import CONTINUOUS_ONLY, DATA, Feature, Needs
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Batch, Metrics


@dataclass(frozen=True)
class BCConfig(OfflineConfig):
    """Settings of behaviour cloning."""

    needs = Needs(DATA, CONTINUOUS_ONLY | {Feature.DISCRETE, Feature.PICTURES})

    lr: float = 1e-3
    """Learning rate of Adam; the default of the `imitation` library."""

    def build(self, spec: EnvironmentSpec, seed: int) -> BC:
        """Returns a fresh learner."""
        return BC(spec, self, seed)


class TanhActor(Network):
    """a = tanh(f(s)) with a Gaussian of fixed, equal deviations around it: the likelihood is the squared error.

    Not the tanh-Gaussian of SAC: demonstrators often command exactly -1 or 1, at which its density has no maximum.
    """

    def __init__(self, factory: NetworkFactory, inputs: int, actions: int) -> None:
        super().__init__()
        self.layers = factory.actor(inputs, actions)

    def loss(self, observations: Tensor, actions: Tensor) -> Tensor:
        """Returns the squared error, averaged over the elements of each action (B,)."""
        return ((self.mode(observations) - actions) ** 2).mean(-1)

    def mode(self, observations: Tensor) -> Tensor:
        """Returns actions (B, A)."""
        return torch.tanh(self.layers(observations).squeeze(0))

    def draw(self, observations: Tensor, generator: torch.Generator) -> Tensor:
        """Returns the same as `mode`: the spread of the demonstrations is not learnt."""
        del generator
        return self.mode(observations)


class CategoricalActor(Network):
    """pi(a|s) = softmax(f(s)): a policy that chooses among discrete actions."""

    def __init__(self, factory: NetworkFactory, inputs: int, actions: int) -> None:
        super().__init__()
        self.layers = factory.actor(inputs, actions)

    def loss(self, observations: Tensor, actions: Tensor) -> Tensor:
        """Returns -log pi(a|s), (B,)."""
        return functional.cross_entropy(self.layers(observations).squeeze(0), actions, reduction="none")

    def mode(self, observations: Tensor) -> Tensor:
        """Returns the most likely choices (B,)."""
        choices: Tensor = self.layers(observations).squeeze(0).argmax(-1)
        return choices

    def draw(self, observations: Tensor, generator: torch.Generator) -> Tensor:
        """Returns random choices (B,)."""
        chances = self.layers(observations).squeeze(0).softmax(-1).cpu()  # the generator's device
        return torch.multinomial(chances, 1, generator=generator).squeeze(-1)


class BC(Learned):
    """Clones the demonstrated actions, continuous or discrete."""

    def __init__(self, spec: EnvironmentSpec, config: BCConfig, seed: int) -> None:
        self.config = config
        self.parts = parts = LearnerParts(spec, config, seed)
        actor_class = CategoricalActor if spec.action.is_discrete else TanhActor
        actor = actor_class(parts.networks, parts.encoder.size, spec.action.size)
        self.actor = parts.add("actor", actor, config.lr, trains_encoder=True)
        parts.act_with(self.actor)

    def update(self, batch: Batch) -> Metrics:
        """Takes one gradient step towards the actions of the batch."""
        data = self.parts.batch(batch)
        loss = (data.weights * self.actor.loss(self.parts.encoder(data.observations), data.actions)).mean()
        self.actor.descend(loss)
        return self.parts.finish_update({"bc_loss": loss})
