"""Behaviour cloning: supervised learning of the demonstrated action (Pomerleau 1989, "ALVINN").

Learns from recorded episodes alone; rewards and next observations are not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from robo_policies.learning import (
    ActorPolicy,
    CheckedAdam,
    MetricsWindow,
    TensorBatch,
    clone_state,
    generators,
    load_state,
    require_ranges,
)
from robo_policies.networks import ObservationEncoder, mlp
from robo_rl.replay import Sampling
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
        initial, acting = generators(seed, 2)
        self.config = config
        self.updates = 0
        self.encoder = ObservationEncoder(spec, config.normalization_rows)
        actor_class = CategoricalActor if spec.action.is_discrete else TanhActor
        self.actor = actor_class(self.encoder.size, spec.action.size, config.hidden, initial)
        self._policy = ActorPolicy(spec, self.encoder, self.actor, acting)
        self._optimizer = CheckedAdam("cloning loss", self.actor.parameters(), config.lr)
        self._metrics = MetricsWindow()

    @property
    def policy(self) -> ActorPolicy:
        """The policy being trained."""
        return self._policy

    def update(self, batch: Batch) -> Metrics:
        """Takes one gradient step towards the actions of the batch."""
        data = TensorBatch.of(batch, self.encoder, self.updates)
        loss = (data.weights * self.actor.loss(data.observations, data.actions)).mean()
        self._optimizer.minimize(loss, self.updates)
        self.updates += 1
        return self._metrics.add({"train/bc_loss": float(loss.detach())})

    def state_dict(self) -> StateDict:
        """Returns network, optimiser, generator and counters."""
        return {
            "encoder": clone_state(self.encoder),
            "actor": clone_state(self.actor),
            "optimizer": self._optimizer.state_dict(),
            "policy": self._policy.state_dict(),
            "metrics": self._metrics.state_dict(),
            "updates": self.updates,
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned; the next update is the one that would have come."""
        load_state(self.encoder, state["encoder"])
        load_state(self.actor, state["actor"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._policy.load_state_dict(state["policy"])
        self._metrics.load_state_dict(state["metrics"])
        self.updates = int(state["updates"])
