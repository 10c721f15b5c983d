"""The networks of soft actor-critic and its descendants, what optimises them, and the state of both."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from robo_policies.learners.learning import (
    ActorPolicy,
    CheckedAdam,
    EncodedBatch,
    MetricsWindow,
    clone_state,
    generators,
    load_generator,
    load_state,
)
from robo_policies.networks.eyes import ClosedEyes, Eyes
from robo_policies.networks.networks import ObservationEncoder, QEnsemble, TanhGaussianActor
from robo_policies.networks.perceptrons import DTYPES, Floats, Perceptrons, Precision
from robo_rl.protocols import Stateful
from robo_rl.spec import EnvironmentSpec
from robo_rl.types import Batch, Metrics, StateDict


class Settings(Protocol):
    """What the networks need of a learner's settings; each field is described there."""

    lr: float
    hidden: tuple[int, ...]
    critics: int
    layer_norm: bool
    initial_temperature: float
    target_entropy_per_action: float
    normalization_rows: int
    precision: Precision


class ActorCritic:
    """Encoder, eyes, actor, critics with their targets, temperature, an optimiser for each, and generators from one seed."""

    def __init__(self, spec: EnvironmentSpec, settings: Settings, seed: int, eyes: Eyes | None = None) -> None:
        """`eyes` see pictures, if that; what they learn the critics' optimiser trains."""
        self.eyes: Eyes = eyes or ClosedEyes()
        initial, self.generator, acting = generators(seed, 3)
        self.encoder = ObservationEncoder(spec, settings.normalization_rows)
        dtype = DTYPES[settings.precision]
        self.seen = self.eyes.features + self.encoder.size
        """Numbers that networks see of an observation."""
        self.actor = TanhGaussianActor(self.seen, spec.action.size, settings.hidden, initial, dtype)
        inputs = self.seen + spec.action.size
        self.critic = QEnsemble(inputs, settings.hidden, settings.critics, settings.layer_norm, initial, dtype)
        self.target_critic = QEnsemble(inputs, settings.hidden, settings.critics, settings.layer_norm, initial, dtype)
        self.target_critic.load_state_dict(self.critic.state_dict())
        self.temperature = Temperature(settings.initial_temperature, settings.target_entropy_per_action * spec.action.size)
        self.policy = ActorPolicy(spec, self.eyes.encoder(self.encoder), self.actor, acting)
        self._trained: dict[str, Perceptrons | Temperature] = {
            "critic": self.critic.network,
            "actor": self.actor.network,
            "temperature": self.temperature,
        }
        by_critics = {"critic": (self.eyes.learnt, self.eyes.gradients)}
        self._optimizers: dict[str, CheckedAdam] = {}
        self._gradients: dict[str, list[Tensor]] = {}
        for name, part in self._trained.items():
            learnt, gradients = by_critics.get(name, ((), ()))
            self._optimizers[name] = CheckedAdam(f"{name} loss", [part.vector, *learnt], settings.lr)
            self._gradients[name] = [part.gradient, *gradients]
        self._metrics = MetricsWindow()
        self.updates = 0

    def encoded(self, batch: Batch) -> EncodedBatch:
        """Returns a batch as the networks are to see it; raises NonFiniteUpdate if it holds NaN or infinity."""
        return self.eyes.opened(batch, EncodedBatch.of(batch, self.encoder, self.updates))

    def descend(self, name: str, loss: float) -> None:
        """Steps down the gradient that `backward` left in a network; raises NonFiniteUpdate, keeping the parameters."""
        self._optimizers[name].step(float(loss), self._gradients[name], self.updates)
        self._trained[name].refresh()

    def finish_update(self, scalars: Mapping[str, float]) -> Metrics:
        """Counts the update and returns metrics where they are due, tags train/<name>."""
        self.updates += 1
        return self._metrics.add({f"train/{name}": value for name, value in scalars.items()})

    def state_dict(self) -> StateDict:
        """Returns networks, optimisers, generators and counters."""
        return {
            "encoder": clone_state(self.encoder),
            **({"eyes": self.eyes.state_dict()} if self.eyes.features else {}),
            **{name: part.state_dict() for name, part in self._parts().items()},
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self._optimizers.items()},
            "generator": self.generator.get_state().clone(),
            "policy": self.policy.state_dict(),
            "metrics": self._metrics.state_dict(),
            "updates": self.updates,
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned; the next update is the one that would have come."""
        load_state(self.encoder, state["encoder"])
        if self.eyes.features:
            self.eyes.load_state_dict(state["eyes"])
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        for name, optimizer in self._optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
        load_generator(self.generator, state["generator"])
        self.policy.load_state_dict(state["policy"])
        self._metrics.load_state_dict(state["metrics"])
        self.updates = int(state["updates"])

    def _parts(self) -> dict[str, Stateful]:
        return {
            "actor": self.actor,
            "critic": self.critic,
            "target_critic": self.target_critic,
            "temperature": self.temperature,
        }


class Temperature:
    """The weight alpha of the entropy, tuned so that the policy's entropy approaches a target."""

    def __init__(self, initial: float, target_entropy: float) -> None:
        self.vector, self.gradient = torch.tensor([initial]).log(), torch.zeros(1)
        """log alpha, and the derivative that `backward` writes."""
        self.target_entropy = target_entropy

    @property
    def value(self) -> float:
        """Alpha > 0."""
        return math.exp(self.vector.item())

    def loss(self, log_densities: Floats) -> tuple[float, float]:
        """J(alpha), eq. 18, for the policy's own actions, and its derivative by log alpha.

        Differs from eq. 18: log alpha stands in place of alpha, as in the authors' code and in Stable-Baselines3,
        because the step size then does not vanish with alpha.
        """
        excess = float(log_densities.mean()) + self.target_entropy
        return -self.vector.item() * excess, -excess

    def refresh(self) -> None:
        """Does nothing: log alpha is used as it is."""

    def backward(self, by_log_alpha: float) -> None:
        """Writes `gradient`."""
        self.gradient.fill_(by_log_alpha)

    def state_dict(self) -> StateDict:
        """Returns log alpha."""
        return {"log_alpha": self.vector.clone()}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned."""
        self.vector.copy_(torch.as_tensor(state["log_alpha"]))
