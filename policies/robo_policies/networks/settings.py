"""Settings that every learner has: the device it computes on, the engine, and networks of one's own in place of ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from operator import index
from traceback import extract_tb
from typing import Any, Literal

import torch
from torch import nn

from robo_rl.discovery import load_named
from robo_rl.errors import InvalidSetting, RoboRLError, require_allowed
from robo_rl.spec import EnvironmentSpec


@dataclass(frozen=True)
class NetworkSettings:
    """Device, engine and networks of a learner."""

    device: str = "cpu"
    """Device of networks and updates: cpu, cuda, cuda:1, mps, or auto for the first of cuda, mps and cpu that is present."""
    acting_device: Literal["learner", "cpu"] = "learner"
    """Device on which the policy acts: that of the learner, or the CPU with a copy of the actor that follows each update."""
    engine: Literal["auto", "reference", "accelerated"] = "auto"
    """How plain MLPs are computed: reference is autograd throughout, accelerated are kernels for float32 on a CPU with the same
    parameters and results, auto takes these if they apply."""
    network: str | None = None
    """Encoder of observations, "package.module:Class" or an entry point of robo_rl.networks; None for the learner's own."""
    actor_network: str | None = None
    """Hidden layers of the actor, named in the same way; None for an MLP."""
    critic_network: str | None = None
    """Hidden layers of each critic, named in the same way; None for an MLP."""


def resolve_device(name: str) -> torch.device:
    """Return the device of a setting; raises InvalidSetting with those that are present."""
    present = _present_devices()
    if name == "auto":
        return torch.device(next(each for each in ("cuda", "mps", "cpu") if each in present))
    if name not in present:
        raise InvalidSetting(
            "There is no such device.", got=name, allowed=", ".join([*present, "auto"]), fix="set device to one"
        )
    return torch.device(name)


def _present_devices() -> list[str]:
    cuda = [f"cuda:{index}" for index in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    mps = ["mps"] if torch.backends.mps.is_available() else []
    return ["cpu", *(["cuda"] if cuda else []), *cuda, *mps]


def accelerates(
    settings: NetworkSettings, device: torch.device, layers: str | None, precision: str = "float32", dropout: float = 0.0
) -> bool:
    """Return True if kernels compute an MLP; raises InvalidSetting if they must, and cannot.

    layers: the setting that replaces the MLP by layers of one's own.
    """
    obstacles = {
        f"device {device}": device.type != "cpu",
        f"precision {precision}": precision != "float32",
        f"dropout {dropout}": dropout > 0,
        f"layers of {layers}": layers is not None,
    }
    found = [name for name, is_found in obstacles.items() if is_found]
    if settings.engine == "accelerated" and found:
        raise InvalidSetting(
            "The accelerated engine cannot compute these networks.",
            got=", ".join(found),
            allowed="MLPs without dropout, in float32, on the CPU",
            fix="set engine to auto",
        )
    return settings.engine != "reference" and not found


def own_encoder(name: str, spec: EnvironmentSpec) -> nn.Module:
    """Return the encoder that `network` names; raises what `own_network` does."""
    read = (*spec.observation.vectors.arrays, *spec.observation.subset("image").arrays)
    types = {array.name: getattr(torch, array.dtype if array.role == "image" else "float32") for array in read}
    row = {array.name: torch.zeros(1, *array.shape, dtype=types[array.name]) for array in read}
    return own_network("network", name, "MyEncoder(spec)", row, spec)


def own_layers(setting: str, name: str, inputs: int, hidden: Sequence[int]) -> nn.Module:
    """Return the hidden layers that a setting names; raises what `own_network` does."""
    return own_network(setting, name, "MyLayers(inputs, hidden)", torch.zeros(1, inputs), inputs, tuple(hidden))


def own_network(setting: str, name: str, built: str, row: Any, *arguments: Any) -> nn.Module:
    """Return a network made by what a setting names, and tried on one row; raises UnknownName, BrokenPlugin, InvalidSetting."""
    make = load_named("networks", setting, name)
    allowed = f"a class of nn.Module, built as {built}, that makes float32 (B, size) of B rows"
    try:
        made = make(*arguments)
        size, features = index(made.size), made(row)
        got = f"{features.dtype}{list(features.shape)} of one row, with size {size}"
    except RoboRLError:
        raise
    except Exception as error:  # others' code may raise anything
        place = [frame for frame in extract_tb(error.__traceback__) if "/torch/" not in frame.filename][-1]
        got = f"{type(error).__name__}: {error}, at {place.filename}:{place.lineno}"
        raise InvalidSetting(f"{setting} {name} does not work.", got=got, allowed=allowed, fix=CONTRACT) from error
    if not isinstance(made, nn.Module) or got != f"torch.float32[1, {size}] of one row, with size {size}":
        raise InvalidSetting(f"{setting} {name} does not fit.", got=got, allowed=allowed, fix=CONTRACT)
    return made


CONTRACT = "mend it; docs/networks.md has the contract, robo_policies.networks.conformance the checks"

RANGES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "lr": (lambda rate: rate > 0, "above 0"),
    "batch_size": (lambda size: size >= 1, "1 or more"),
    "tau": (lambda share: 0 < share <= 1, "above 0, at most 1"),
    "hidden": (lambda units: all(count >= 1 for count in units), "1 or more units in each layer"),
    "critics": (lambda count: count >= 1, "1 or more"),
    "initial_temperature": (lambda weight: weight > 0, "above 0"),
    "normalization_rows": (lambda rows: rows >= 0, "0 or more"),
    "convolutions": (lambda channels: all(count >= 1 for count in channels), "1 or more channels in each layer"),
    "crop_padding": (lambda pixels: pixels >= 0, "0 or more"),
}
"""Allowed values of settings by name, in every learner that has them."""


def require_ranges(config: Any) -> None:
    """Raise InvalidSetting if a setting of a learner, or of its `sampling`, is out of range."""
    values = {field.name: getattr(config, field.name) for field in fields(config) if field.name in RANGES}
    require_allowed(config, {name: (RANGES[name][0](value), RANGES[name][1]) for name, value in values.items()})
    _ = config.sampling  # checks itself when it is made


def require_continuous(spec: EnvironmentSpec, learner: str) -> None:
    """Raise InvalidSetting if the actions of an environment are choices."""
    if spec.action.is_discrete:
        raise InvalidSetting(
            f"{learner} needs continuous actions, and those of {spec.name!r} are discrete.",
            got=f"{spec.action.size} choices: {', '.join(spec.action.names)}",
            allowed="an action in [-1, 1]^A",
            fix="use sb3-dqn or sb3-ppo, or bc with demonstrations",
        )
