"""Settings of every learner: device, engine, and own networks in place of the built-in ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, ClassVar, Literal

import torch
from torch import nn

from robo_rl.entry_points import load_named, refused_if_it_fails
from robo_rl.errors import InvalidSetting
from robo_rl.spec.environment import EnvironmentSpec


@dataclass(frozen=True)
class NetworkSettings:
    """Device, engine and networks of a learner."""

    sees: ClassVar[bool] = False
    """True if the settings bring an encoder and an augmentation of pictures (robo_policies.networks.image_encoder)."""
    device: str = "cpu"
    """Device of networks and updates: cpu, cuda, cuda:1, mps, or auto for the first of cuda, mps and cpu that is present."""
    acting_device: Literal["learner", "cpu"] = "learner"
    """Device on which the policy acts: that of the learner, or the CPU with a copy of the actor that follows each update."""
    engine: Literal["auto", "reference", "accelerated"] = "auto"
    """Computation of plain MLPs: reference is autograd throughout, accelerated are kernels for float32 on a CPU with the same
    parameters and results, auto takes these if they apply."""
    network: str | None = None
    """Encoder of observations, "package.module:Class" or an entry point of robo_rl.networks; None for the learner's own."""
    actor_network: str | None = None
    """Hidden layers of the actor, named in the same way; None for an MLP."""
    critic_network: str | None = None
    """Hidden layers of each critic, named in the same way; None for an MLP."""


@dataclass(frozen=True)
class ReplaySettings:
    """Memory of an off-policy learner."""

    n_step: int = 1
    """Steps of reward before the bootstrap value."""
    learning_starts: int = 5_000
    """Environment steps with random actions before the first update; Stable-Baselines3 has 100, its tuned settings 10,000."""
    update_every: int = 1
    """Environment steps, over all environments, from one update to the next."""
    replay_capacity: int = 1_000_000
    """Rows of the replay memory."""
    replay_folder: str | None = None
    """Folder on a disk in which the online replay memory is mapped; None keeps it in RAM."""
    offline_fraction: float = 0.0
    """Share of each batch that comes from demonstrations."""


def resolve_device(name: str) -> torch.device:
    """Return the device of a setting; raises InvalidSetting with those that are present."""
    cuda = ["cuda", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))] if torch.cuda.is_available() else []
    mps = ["mps"] if torch.backends.mps.is_available() else []
    present = [*cuda, *mps, "cpu"]
    if name not in (*present, "auto"):
        what = "There is no such device."
        raise InvalidSetting(what, got=name, allowed=", ".join((*present, "auto")), fix="set device to one of these")
    return torch.device(present[0] if name == "auto" else name)


def accelerates(
    settings: NetworkSettings, device: torch.device, layers: str | None, precision: str = "float32", dropout: float = 0.0
) -> bool:
    """Return True if kernels compute an MLP instead of own `layers`; raises InvalidSetting if they are required and cannot."""
    given = {"device": device.type, "layers of": layers, "precision": precision, "dropout": dropout}
    fitting = {"device": "cpu", "layers of": None, "precision": "float32", "dropout": 0.0}
    obstacles = ", ".join(f"{name} {value}" for name, value in given.items() if value != fitting[name])
    if settings.engine == "accelerated" and obstacles:
        what, allowed = "The accelerated engine cannot compute these networks.", "MLPs without dropout, in float32, on the CPU"
        raise InvalidSetting(what, got=obstacles, allowed=allowed, fix="set engine to auto")
    return settings.engine != "reference" and not obstacles


def own_encoder(name: str, spec: EnvironmentSpec) -> nn.Module:
    """Return the encoder that `network` names; raises the errors of `own_network`."""
    vectors, pictures = spec.observation.vectors, spec.observation.subset("image")
    row = {entry: torch.zeros(1, *array.shape) for entry, array in vectors.items()}
    row |= {entry: torch.zeros(1, *array.shape, dtype=getattr(torch, array.dtype)) for entry, array in pictures.items()}
    return own_network("network", name, "MyEncoder(spec)", row, spec)


def own_layers(setting: str, name: str, inputs: int, hidden: Sequence[int]) -> nn.Module:
    """Return the hidden layers that a setting names; raises the errors of `own_network`."""
    return own_network(setting, name, "MyLayers(inputs, hidden)", torch.zeros(1, inputs), inputs, tuple(hidden))


def own_network(setting: str, name: str, built: str, row: Any, *arguments: Any) -> nn.Module:
    """Return the network that a setting names, tried on one row; raises UnknownName, BrokenPlugin, InvalidSetting."""
    make = load_named("networks", setting, name)
    allowed = f"a class of nn.Module, built as {built}, that makes float32 (B, size) of B rows"
    fix = "mend it; docs/networks.md has the contract, robo_policies.networks.conformance the checks"
    with refused_if_it_fails(f"{setting} {name} does not work.", allowed=allowed, fix=fix):
        made = make(*arguments)
        size, features = index(made.size), made(row)
        got = f"{features.dtype}{list(features.shape)} of one row, with size {size}"
    if not isinstance(made, nn.Module) or got != f"torch.float32[1, {size}] of one row, with size {size}":
        raise InvalidSetting(f"{setting} {name} does not fit.", got=got, allowed=allowed, fix=fix)
    return made
