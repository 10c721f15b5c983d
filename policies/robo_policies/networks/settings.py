"""Settings that every learner has: the device it computes on, the engine, and networks of one's own in place of ours."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal

import torch

from robo_rl.discovery import known, load
from robo_rl.errors import InvalidSetting, require_allowed
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


def accelerates(settings: NetworkSettings, device: torch.device, layers: str | None, precision: str, dropout: float) -> bool:
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


def network_class(setting: str, name: str) -> Any:
    """Return the class that a setting names, by module or by entry point; raises UnknownName, BrokenPlugin, InvalidSetting."""
    module, colon, path = name.partition(":")
    if not colon:
        return load("networks", name)
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        fix = "look at the spelling, and whether the package is installed in this environment"
        allowed = "package.module:Class, or a name of " + (
            ", ".join(known("networks")) or "robo_rl.networks; none is installed"
        )
        raise InvalidSetting(f"{setting} cannot be imported.", got=f"{name!r}: {error}", allowed=allowed, fix=fix) from error
    return found


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
