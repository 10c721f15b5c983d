"""The networks of soft actor-critic and its descendants, what optimises them, and the state of both."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

from robo_policies.learning import (
    ActorPolicy,
    CheckedAdam,
    MetricsWindow,
    clone_state,
    generators,
    load_generator,
    load_state,
)
from robo_policies.networks import ObservationEncoder, QEnsemble, TanhGaussianActor
from robo_rl.spec import EnvironmentSpec
from robo_rl.types import Metrics, StateDict


class Settings(Protocol):
    """What the networks need of a learner's settings; each field is described there."""

    lr: float
    hidden: tuple[int, ...]
    critics: int
    layer_norm: bool
    initial_temperature: float
    target_entropy_per_action: float
    normalization_rows: int


class ActorCritic:
    """Encoder, actor, critics with their targets, temperature, an optimiser for each, and generators from one seed."""

    def __init__(self, spec: EnvironmentSpec, settings: Settings, seed: int) -> None:
        initial, self.generator, acting = generators(seed, 3)
        self.encoder = ObservationEncoder(spec, settings.normalization_rows)
        self.actor = TanhGaussianActor(self.encoder.size, spec.action.size, settings.hidden, initial)
        inputs = self.encoder.size + spec.action.size
        self.critic = QEnsemble(inputs, settings.hidden, settings.critics, settings.layer_norm, initial)
        self.target_critic = copy.deepcopy(self.critic).requires_grad_(False)
        self.temperature = Temperature(settings.initial_temperature, settings.target_entropy_per_action * spec.action.size)
        self.policy = ActorPolicy(spec, self.encoder, self.actor, acting)
        self._optimizers = {
            "critic": CheckedAdam("critic loss", self.critic.parameters(), settings.lr),
            "actor": CheckedAdam("actor loss", self.actor.parameters(), settings.lr),
            "temperature": CheckedAdam("temperature loss", self.temperature.parameters(), settings.lr),
        }
        self._metrics = MetricsWindow()
        self.updates = 0

    def minimize(self, name: str, loss: Tensor) -> None:
        """Takes one step of the optimiser of that network; raises NonFiniteUpdate, keeping the parameters as they are."""
        self._optimizers[name].minimize(loss, self.updates)

    def finish_update(self, scalars: Mapping[str, Tensor]) -> Metrics:
        """Counts the update and returns metrics where they are due, tags train/<name>."""
        self.updates += 1
        return self._metrics.add({f"train/{name}": value for name, value in scalars.items()})

    def state_dict(self) -> StateDict:
        """Returns networks, optimisers, generators and counters."""
        return {
            **{name: clone_state(module) for name, module in self._modules().items()},
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self._optimizers.items()},
            "generator": self.generator.get_state().clone(),
            "policy": self.policy.state_dict(),
            "metrics": self._metrics.state_dict(),
            "updates": self.updates,
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned; the next update is the one that would have come."""
        for name, module in self._modules().items():
            load_state(module, state[name])
        for name, optimizer in self._optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
        load_generator(self.generator, state["generator"])
        self.policy.load_state_dict(state["policy"])
        self._metrics.load_state_dict(state["metrics"])
        self.updates = int(state["updates"])

    def _modules(self) -> dict[str, nn.Module]:
        return {
            "encoder": self.encoder,
            "actor": self.actor,
            "critic": self.critic,
            "target_critic": self.target_critic,
            "temperature": self.temperature,
        }


class Temperature(nn.Module):
    """The weight alpha of the entropy, tuned so that the policy's entropy approaches a target."""

    def __init__(self, initial: float, target_entropy: float) -> None:
        super().__init__()
        self.log_alpha = nn.Parameter(torch.tensor(initial).log())
        self.target_entropy = target_entropy

    @property
    def value(self) -> Tensor:
        """Alpha > 0."""
        return self.log_alpha.exp()

    def loss(self, log_densities: Tensor) -> Tensor:
        """J(alpha), eq. 18, for the policy's own actions.

        Differs from eq. 18: log alpha stands in place of alpha, as in the authors' code and in Stable-Baselines3,
        because the step size then does not vanish with alpha.
        """
        return -(self.log_alpha * (log_densities.detach() + self.target_entropy)).mean()
