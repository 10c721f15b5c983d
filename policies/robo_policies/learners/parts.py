"""What a learner written with autograd is made of: named networks, their optimisers and targets, generators, state."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Protocol, TypeVar

import torch
from torch import Tensor, nn

from robo_policies.learners.learning import (
    Actor,
    ActorPolicy,
    CheckedAdam,
    MetricsWindow,
    clone_state,
    generators,
    load_generator,
    load_state,
)
from robo_policies.networks.networks import ObservationEncoder
from robo_rl.protocols import Policy, Stateful
from robo_rl.spec import EnvironmentSpec
from robo_rl.types import Metrics, StateDict

Module = TypeVar("Module", bound=nn.Module)


class StatefulPolicy(Policy, Stateful, Protocol):
    """A policy that is saved and restored."""


class LearnerParts:
    """Networks are added one by one; everything that was added is saved, restored and refused together."""

    def __init__(self, spec: EnvironmentSpec, seed: int, normalization_rows: int) -> None:
        self.initial, self.generator, self.acting = generators(seed, 3)
        """`initial` draws first parameters, `generator` everything that updates draw, `acting` the policy's actions."""
        self.spec = spec
        self.encoder = ObservationEncoder(spec, normalization_rows)
        self.updates = 0
        self._networks: dict[str, nn.Module] = {}
        self._optimizers: dict[str, CheckedAdam] = {}
        self._metrics = MetricsWindow()
        self.policy: StatefulPolicy
        """The policy being trained, saved and restored with the rest."""

    def add(self, name: str, network: Module, lr: float) -> Module:
        """Returns the network, from now on trained by Adam with this learning rate."""
        self._networks[name] = network
        self._optimizers[name] = CheckedAdam(f"{name} loss", network.parameters(), lr)
        return network

    def add_target(self, name: str, network: Module) -> Module:
        """Returns a copy of a network that follows it by `track`."""
        target = copy.deepcopy(network).requires_grad_(requires_grad=False)
        self._networks[name] = target
        return target

    def act_with(self, actor: Actor) -> ActorPolicy:
        """Returns the policy of an actor that was added."""
        self.policy = policy = ActorPolicy(self.spec, self.encoder, actor, self.acting)
        return policy

    def descend(self, name: str, loss: Tensor, lr: float | None = None) -> None:
        """Takes one step down the gradient of a loss, by one network only; raises NonFiniteUpdate, keeping the parameters."""
        optimizer = self._optimizers[name]
        if lr is not None:
            optimizer.lr = lr
        optimizer.minimize(loss, self.updates)

    @staticmethod
    @torch.no_grad()
    def track(target: nn.Module, online: nn.Module, tau: float) -> None:
        """Moves target parameters towards the online ones: target <- (1 - tau) target + tau online."""
        torch._foreach_lerp_(list(target.parameters()), list(online.parameters()), tau)

    def finish_update(self, scalars: Mapping[str, float | Tensor]) -> Metrics:
        """Counts the update and returns metrics where they are due, tags train/<name>."""
        self.updates += 1
        return self._metrics.add({f"train/{name}": float(value) for name, value in scalars.items()})

    def state_dict(self) -> StateDict:
        """Returns networks, optimisers, generators and counters."""
        return {
            "encoder": clone_state(self.encoder),
            "networks": {name: clone_state(network) for name, network in self._networks.items()},
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self._optimizers.items()},
            "generator": self.generator.get_state().clone(),
            "policy": self.policy.state_dict(),
            "metrics": self._metrics.state_dict(),
            "updates": self.updates,
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned; the next update is the one that would have come."""
        load_state(self.encoder, state["encoder"])
        for name, network in self._networks.items():
            load_state(network, state["networks"][name])
        for name, optimizer in self._optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
        load_generator(self.generator, state["generator"])
        self.policy.load_state_dict(state["policy"])
        self._metrics.load_state_dict(state["metrics"])
        self.updates = int(state["updates"])


def cosine(lr: float, update: int, updates: int) -> float:
    """Returns the learning rate of a half cosine from `lr` to 0 over so many updates (Loshchilov & Hutter 2017), then `lr`.

    Constant again afterwards, because a learner that then goes on in the environment would otherwise stand still.
    """
    return lr if update >= updates else lr * 0.5 * (1 + math.cos(math.pi * update / updates))
