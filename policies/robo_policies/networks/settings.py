"""Settings of every learner with neural networks: the device, and the group `network`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, ClassVar, Literal

import torch
from torch import nn

from robo_rl.entry_points import load_named, refused_if_it_fails
from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.requirements import require_groups, require_ranges
from robo_rl.spec.environment import EnvironmentSpec


@dataclass(frozen=True)
class BaseNetwork:
    """Settings group `network` of every learner: layers of encoder, actor and critic, and how they are computed."""

    sees: ClassVar[bool] = False
    """True if the learner can read pictures with `convolutions` (robo_policies.networks.image_encoder)."""
    hidden: tuple[int, ...] = (256, 256)
    """Units of the hidden layers."""
    encoder: str | None = None
    """Encoder of observations, "package.module:Class" or an entry point of robo_rl.networks; None for the learner's own."""
    actor: str | None = None
    """Hidden layers of the actor, "package.module:Class" or an entry point of robo_rl.networks; None for an MLP."""
    critic: str | None = None
    """Hidden layers of each critic, "package.module:Class" or an entry point of robo_rl.networks; None for an MLP."""
    engine: Literal["auto", "reference", "accelerated"] = "auto"
    """Computation of plain MLPs: "reference" is autograd; "accelerated" is faster code for float32 on a CPU, with the same
    parameters and results up to rounding; "auto" takes the accelerated code if it applies."""
    acting_device: Literal["learner", "cpu"] = "learner"
    """Device on which the policy acts: "learner" for that of the updates, "cpu" for a copy of the actor on the CPU."""

    def __post_init__(self) -> None:
        self.require({"hidden": (all(units >= 1 for units in self.hidden), "1 or more units in each layer")})

    def require(self, allowed: Mapping[str, tuple[bool, str]]) -> None:
        """Raise InvalidSetting for the first field whose value is not allowed.

        allowed: name of a field -> (True if its value is allowed, words that say which values are).
        """
        require_allowed(self, allowed, group="network")

    def require_unused(self, why: str, *names: str) -> None:
        """Raise InvalidSetting if one of the named settings differs from its default, because the learner does not read it.

        why: reason, for the error.
        """
        defaults = {name: getattr(type(self), name) for name in names}
        self.require({name: (getattr(self, name) == default, f"{default}: {why}") for name, default in defaults.items()})


@dataclass(frozen=True)
class Network(BaseNetwork):
    """Settings group `network` of learners whose networks are MLPs with ReLU: adds standardisation, LayerNorm and precision."""

    normalization_rows: int = 0
    """Number of first observations whose mean and deviation standardise all later ones; 0 for no standardisation."""
    layer_norm: bool = False
    """LayerNorm before each ReLU of the critics."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Number format of the hidden layers; bfloat16 has about three digits, and is fast only on hardware that supports it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require({"normalization_rows": (self.normalization_rows >= 0, "0 or more")})


@dataclass(frozen=True)
class LearnerSettings:
    """Settings of every learner with networks: the device of networks and updates, and the group `network`."""

    device: str = "cpu"
    """Device of networks and updates: cpu, cuda, cuda:1, mps, or auto for the first of cuda, mps and cpu that is present."""

    def __post_init__(self) -> None:
        require_groups(self)
        require_ranges(self)


def accelerates(
    network: BaseNetwork, device: torch.device, layers: str | None, precision: str = "float32", dropout: float = 0.0
) -> bool:
    """Return True if the faster CPU code (robo_policies.networks.accelerated) shall compute a network instead of autograd.

    Args:
        network: Settings; `engine` says whether the accelerated code is wanted.
        device: Device of the network.
        layers: Name of the setting with the user's own layers; None for a plain MLP.
        precision: Number format of the hidden layers.
        dropout: Probability that a hidden unit is dropped.

    Raises:
        InvalidSetting: `engine` is "accelerated", and the accelerated code cannot compute this network.
    """
    given = {"device": device.type, "layers of": layers, "precision": precision, "dropout": dropout}
    fitting = {"device": "cpu", "layers of": None, "precision": "float32", "dropout": 0.0}
    obstacles = ", ".join(f"{name} {value}" for name, value in given.items() if value != fitting[name])
    if network.engine == "accelerated" and obstacles:
        what, allowed = "The accelerated engine cannot compute these networks.", "MLPs without dropout, in float32, on the CPU"
        raise InvalidSetting(what, got=obstacles, allowed=allowed, fix="set network.engine to auto")
    return network.engine != "reference" and not obstacles


def own_encoder(name: str, spec: EnvironmentSpec) -> nn.Module:
    """Build the encoder class that the user named in the setting `network.encoder`, for a spec.

    Raises UnknownName, BrokenPlugin or InvalidSetting, as `own_network` does.
    """
    vectors, pictures = spec.observation.vectors, spec.observation.subset("image")
    row = {entry: torch.zeros(1, *array.shape) for entry, array in vectors.items()}
    row |= {entry: torch.zeros(1, *array.shape, dtype=getattr(torch, array.dtype)) for entry, array in pictures.items()}
    return own_network("network.encoder", name, "MyEncoder(spec)", row, spec)


def own_layers(setting: str, name: str, inputs: int, hidden: Sequence[int]) -> nn.Module:
    """Build the hidden layers that the user named in a setting such as `network.actor`.

    Raises UnknownName, BrokenPlugin or InvalidSetting, as `own_network` does.
    """
    return own_network(setting, name, "MyLayers(inputs, hidden)", torch.zeros(1, inputs), inputs, tuple(hidden))


def own_network(setting: str, name: str, built: str, row: Any, *arguments: Any) -> nn.Module:
    """Import and build a network class of the user, and try it on one row of input.

    Args:
        setting: Setting that names the class, such as "network.actor", for errors.
        name: "package.module:Class", or an entry point of robo_rl.networks.
        built: How the class is called, such as "MyEncoder(spec)", for errors.
        row: Input of one row.
        *arguments: Arguments of the class.

    Returns:
        The network.

    Raises:
        UnknownName: There is no such module or class.
        BrokenPlugin: The module cannot be imported.
        InvalidSetting: The class fails, or its output is not float32 (1, `size`).
    """
    make = load_named("networks", setting, name)
    allowed = f"a class of nn.Module, built as {built}, that makes float32 (B, size) of B rows"
    fix = "mend it; docs/training/networks.md has the contract, robo_policies.networks.conformance the checks"
    with refused_if_it_fails(f"{setting} {name} does not work.", allowed=allowed, fix=fix):
        made = make(*arguments)
        size, features = index(made.size), made(row)
        got = f"{features.dtype}{list(features.shape)} of one row, with size {size}"
    if not isinstance(made, nn.Module) or got != f"torch.float32[1, {size}] of one row, with size {size}":
        raise InvalidSetting(f"{setting} {name} does not fit.", got=got, allowed=allowed, fix=fix)
    return made
