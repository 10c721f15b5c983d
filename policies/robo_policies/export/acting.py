"""Acting networks: the deterministic action of a policy as a function from tensors to tensors, for an export.

B rows, A action elements, H actions of a chunk, R draws of noise.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import singledispatch
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from robo_policies.learners.act import EnsemblingPolicy
from robo_policies.learners.chunks import ChunkPolicy
from robo_policies.learners.parts import ActorPolicy
from robo_policies.learners.ppo import PPOPolicy
from robo_policies.networks.accelerated.mlp import AcceleratedMLP
from robo_policies.networks.actor_critic import MLPEnsemble
from robo_policies.networks.encoders import ObservationEncoder
from robo_policies.networks.policy_value import PolicyValue
from robo_rl.errors import InvalidSetting
from robo_rl.moments import LARGEST, SMALLEST_VARIANCE, Normalizer
from robo_rl.types import Array

NOISE = "noise"
"""Name of the network's input for standard normal noise, from which diffusion and flow policies make actions."""


@dataclass(frozen=True)
class ActingNetwork:
    """A network that computes the actions of an exported policy, with what a program needs to call it rightly."""

    network: nn.Module
    """Function from named tensors (B, ...) to (actions, *new memory). The tensors are the observation, NOISE, and the names in
    `memory`. Actions are (B, A) in [-1, 1], choices (B,), or chunks (B, H, A)."""
    chunk: int = 1
    """H, number of actions that one evaluation of the network returns."""
    executed: int = 1
    """Number of actions of a chunk that are executed before the next evaluation."""
    ensembling: float | None = None
    """Rate m of the weights exp(-m i) with which overlapping chunks are averaged, i = 0 for the oldest; None: no overlap."""
    draws: int = 0
    """R, for noise (R, H, A) that an evaluation reads; 0 if it reads no noise."""
    memory: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Name of an input -> its shape without B. These inputs are outputs of the previous step, and zeros when an episode
    begins."""


@runtime_checkable
class Exportable(Protocol):
    """Interface of policies that make their own network for an export; policies of built-in learners need no such method."""

    def acting_network(self) -> ActingNetwork:
        """Return a copy, on the CPU, of the network that computes the deterministic actions."""


@singledispatch
def acting_network(policy: Any) -> ActingNetwork:
    """Make the network that computes a policy's deterministic actions, for an export.

    Raises:
        InvalidSetting: The action needs more than the output of one network.
    """
    if isinstance(policy, Exportable):
        return policy.acting_network()
    raise InvalidSetting(
        "This policy cannot be exported: its action is more than the output of one network.",
        got=type(policy).__name__,
        allowed="a policy of an actor, of chunks, of PPO, of Stable-Baselines3, or one with a method acting_network()",
        fix="act with it from Python, robo_rl.open_run(RUN).policy(), or write that method (robo_policies.export.acting)",
    )


@acting_network.register
def _of_actor(policy: ActorPolicy) -> ActingNetwork:
    return ActingNetwork(ActorStep(*policy.online))


@acting_network.register
def _of_chunks(policy: ChunkPolicy) -> ActingNetwork:
    return ActingNetwork(ChunkStep(*policy.online), policy.chunk, policy.executed, draws=policy.online[1].draws)


@acting_network.register
def _of_ensembling(policy: EnsemblingPolicy) -> ActingNetwork:
    rate = policy.rate if policy.executed == 1 else None
    return ActingNetwork(ActorStep(*policy.online), policy.chunk, policy.executed, rate)


@acting_network.register
def _of_ppo(policy: PPOPolicy) -> ActingNetwork:
    return ActingNetwork(PPOStep(policy.learner.networks, policy.learner.buffer.observations))


class ActorStep(nn.Module):
    """Network for an export that returns an actor's most likely action or chunk."""

    def __init__(self, encoder: ObservationEncoder, actor: Any) -> None:
        super().__init__()
        self.encoder, self.actor = plain_copy(encoder), plain_copy(actor)

    def forward(self, inputs: dict[str, Tensor]) -> tuple[Tensor, ...]:
        """Return actions (B, A), choices (B,) or chunks (B, H, A), in a tuple of one."""
        return (self.actor.mode(self.encoder(self.encoder.seen(inputs))),)


class ChunkStep(ActorStep):
    """Network for an export of diffusion and flow policies: makes a chunk of actions out of noise, which is an input."""

    def forward(self, inputs: dict[str, Tensor]) -> tuple[Tensor, ...]:
        """Return chunks (B, H, A), in a tuple of one."""
        return (self.actor.from_draws(self.encoder(self.encoder.seen(inputs)), inputs[NOISE]),)


class PPOStep(nn.Module):
    """Network for an export of PPO: standardises observations and returns the most likely action."""

    def __init__(self, networks: PolicyValue, moments: Normalizer) -> None:
        super().__init__()
        self.networks = plain_copy(networks)
        columns = slice(networks.visible)
        deviation = np.sqrt(moments.variance[columns] + SMALLEST_VARIANCE)
        self.scale = VectorScale(moments.mean[columns], deviation, LARGEST) if moments.is_on else nn.Identity()

    def forward(self, inputs: dict[str, Tensor]) -> tuple[Tensor, ...]:
        """Return actions (B, A) or choices (B,), in a tuple of one."""
        networks = self.networks
        flat = [inputs[name].float().flatten(1) for name in networks.vectors]
        vectors = self.scale(torch.cat(flat, 1)) if flat else torch.zeros((1, 0))
        features = networks.encoded(vectors, {each.name: inputs[each.name] for each in networks.pictures})
        return (networks.distribution.most_likely(networks.act(features)),)


class WithConstant(nn.Module):
    """Wraps a network so that its input `name` is a constant and no longer an input."""

    value: Tensor

    def __init__(self, network: nn.Module, name: str, value: Tensor) -> None:
        """Fix an input of a network.

        name: name of the input. value: its value, without the axis of rows.
        """
        super().__init__()
        self.network, self._name = network, name
        self.register_buffer("value", value)

    def forward(self, inputs: dict[str, Tensor]) -> tuple[Tensor, ...]:
        """Return the outputs of the wrapped network for the remaining inputs (B, ...)."""
        found: tuple[Tensor, ...] = self.network({**inputs, self._name: self.value[None]})
        return found


class VectorScale(nn.Module):
    """Module that standardises vectors and clips them to [-largest, largest].

    It computes in double precision, as the policies do, because a quantity that hardly moves has a tiny deviation.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, mean: Array, deviation: Array, largest: float) -> None:
        """Take mean and deviation (D,), float64, and the clip in standard deviations."""
        super().__init__()
        self.largest = largest
        self.register_buffer("mean", torch.from_numpy(mean.copy()))
        self.register_buffer("deviation", torch.from_numpy(deviation.copy()))

    def forward(self, vectors: Tensor) -> Tensor:
        """Return standardised vectors (B, D) float32."""
        return ((vectors.double() - self.mean) / self.deviation).clamp(-self.largest, self.largest).float()


def plain_copy(module: nn.Module) -> Any:
    """Return a copy of a module on the CPU, in which ordinary PyTorch modules replace accelerated networks."""
    copied = copy.deepcopy(module).cpu()
    for parent in [*copied.modules()]:
        for name, child in parent.named_children():
            if isinstance(child, AcceleratedMLP):
                setattr(parent, name, _reference(child))
    return copied.requires_grad_(requires_grad=False)


def _reference(accelerated: AcceleratedMLP) -> MLPEnsemble:
    """Return the MLPEnsemble with the parameters of an accelerated network."""
    state = accelerated.state_dict()
    weights = [value for name, value in state.items() if name.startswith("linears.") and name.endswith(".weight")]
    sizes = (weights[0].shape[1], *(weight.shape[2] for weight in weights))
    made = MLPEnsemble(len(weights[0]), sizes, "norms.0.weight" in state, torch.Generator())
    made.load_state_dict(state)
    return made
