"""Behaviour cloning: supervised learning of the demonstrated action (Pomerleau 1989, "ALVINN").

Learns from recorded episodes alone; rewards and next observations are not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from robo_policies.learners.learning import TensorBatch
from robo_policies.learners.parts import LearnerParts
from robo_policies.networks.networks import mlp
from robo_policies.networks.settings import require_ranges
from robo_rl.sampling import Sampling
from robo_rl.spec import EnvironmentSpec
from robo_rl.types import Batch, Metrics, StateDict


@dataclass(frozen=True)
class BCConfig:
    """Settings of behaviour cloning."""

    lr: float = 1e-3
    """Learning rate of Adam; the default of the `imitation` library."""
    batch_size: int = 256
    """Demonstrated steps of one update."""
    hidden: tuple[int, ...] = (256, 256)
    """Units of the hidden layers."""
    normalization_rows: int = 10_000
    """Observations whose mean and deviation standardise the input; 0 leaves it as it is."""

    def __post_init__(self) -> None:
        require_ranges(self)

    @property
    def sampling(self) -> Sampling:
        """What the training loop must provide."""
        return Sampling(batch_size=self.batch_size, offline_fraction=1.0)

    def build(self, spec: EnvironmentSpec, seed: int) -> BC:
        """Returns a fresh learner."""
        return BC(spec, self, seed)


class TanhActor(nn.Module):
    """a = tanh(f(s)) with a Gaussian of fixed, equal deviations around it: the likelihood is the squared error.

    Not the tanh-Gaussian of SAC: demonstrators often command exactly -1 or 1, where its density has no maximum.
    """

    def __init__(self, inputs: int, actions: int, hidden: Sequence[int], generator: torch.Generator) -> None:
        super().__init__()
        self.layers = mlp((inputs, *hidden, actions), generator)

    def loss(self, observations: Tensor, actions: Tensor) -> Tensor:
        """Returns the squared error, averaged over the elements of each action (B,)."""
        return ((self.mode(observations) - actions) ** 2).mean(-1)

    def mode(self, observations: Tensor) -> Tensor:
        """Returns actions (B, A)."""
        return torch.tanh(self.layers(observations))

    def draw(self, observations: Tensor, generator: torch.Generator) -> Tensor:
        """Returns the same as `mode`: the spread of the demonstrations is not learnt."""
        del generator
        return self.mode(observations)


class CategoricalActor(nn.Module):
    """pi(a|s) = softmax(f(s)): a policy that chooses among discrete actions."""

    def __init__(self, inputs: int, actions: int, hidden: Sequence[int], generator: torch.Generator) -> None:
        super().__init__()
        self.layers = mlp((inputs, *hidden, actions), generator)

    def loss(self, observations: Tensor, actions: Tensor) -> Tensor:
        """Returns -log pi(a|s), (B,)."""
        return functional.cross_entropy(self.layers(observations), actions, reduction="none")

    def mode(self, observations: Tensor) -> Tensor:
        """Returns the most likely choices (B,)."""
        choices: Tensor = self.layers(observations).argmax(-1)
        return choices

    def draw(self, observations: Tensor, generator: torch.Generator) -> Tensor:
        """Returns random choices (B,)."""
        return torch.multinomial(self.layers(observations).softmax(-1), 1, generator=generator).squeeze(-1)


class BC:
    """Clones the demonstrated actions, continuous or discrete."""

    def __init__(self, spec: EnvironmentSpec, config: BCConfig, seed: int) -> None:
        self.config = config
        self.parts = parts = LearnerParts(spec, seed, config.normalization_rows)
        actor_class = CategoricalActor if spec.action.is_discrete else TanhActor
        actor = actor_class(parts.encoder.size, spec.action.size, config.hidden, parts.initial)
        self.actor = parts.add("actor", actor, config.lr)
        self.encoder, self.policy = parts.encoder, parts.act_with(self.actor)

    def update(self, batch: Batch) -> Metrics:
        """Takes one gradient step towards the actions of the batch."""
        data = TensorBatch.of(batch, self.encoder, self.parts.updates)
        loss = (data.weights * self.actor.loss(data.observations, data.actions)).mean()
        self.parts.descend("actor", loss)
        return self.parts.finish_update({"bc_loss": loss.detach()})

    def state_dict(self) -> StateDict:
        """Returns network, optimiser, generators and counters."""
        return self.parts.state_dict()

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned; the next update is the one that would have come."""
        self.parts.load_state_dict(state)
