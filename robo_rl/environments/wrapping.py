"""Wrappers of an environment as a list of {name: NAME, SETTING: VALUE, ...}, the innermost first.

Entry points of `robo_rl.wrappers` name frozen dataclasses of settings (docs/simulators/wrappers.md).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from robo_rl.entry_points import load
from robo_rl.errors import InvalidSetting, RoboRLError
from robo_rl.protocols.contract import Feature
from robo_rl.settings import settings_as

if TYPE_CHECKING:
    import gymnasium

Part = Literal["name", "observation", "action", "instruction", "max_steps", "success_rule", "costs"]
"""Part of an environment's spec that a wrapper may change: the name of a field of `EnvironmentSpec`."""
Entry = Mapping[str, Any]
"""Entry of a list of wrappers: {name: NAME, SETTING: VALUE, ...}, in which NAME is an entry point."""


class EnvironmentWrapper(ABC):
    """Base class of settings of a wrapper; subclasses are frozen dataclasses and declare what the wrapper changes."""

    changes: ClassVar[tuple[Part, ...]] = ()
    """Parts of the spec that the wrapper may change; rewards and `info` are not part of a spec."""
    is_batched: ClassVar[bool] = False
    """True if `wrap_vector` can wrap a vector environment as a whole; otherwise each single environment is wrapped."""
    in_evaluations: ClassVar[bool] = True
    """False for a wrapper that is used only in training; it may change neither observations nor actions."""

    @property
    def asks(self) -> frozenset[Feature]:
        """Features, such as pictures, that the training loop must support to use this wrapper."""
        return frozenset()

    @abstractmethod
    def wrap(self, environment: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
        """Return the environment in the wrapper; raises InvalidSetting or UnknownName if the wrapper does not fit."""

    def wrap_vector(self, environments: gymnasium.vector.VectorEnv[Any, Any, Any]) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
        """Return the vector environment in the wrapper; called only if `is_batched`."""
        raise NotImplementedError


def read_wrappers(entries: Iterable[Entry]) -> list[EnvironmentWrapper]:
    """Return the wrappers of a list of entries; raises UnknownName for an unknown name, InvalidSetting for a wrong setting."""
    return [_read(entry) for entry in listed(entries)]


def wrapped(environment: gymnasium.Env[Any, Any], entries: Iterable[Entry]) -> gymnasium.Env[Any, Any]:
    """Return an environment in a list of wrappers; closes the environment if a wrapper is refused."""
    try:
        for wrapper in read_wrappers(entries):
            environment = wrapper.wrap(environment)
    except RoboRLError:
        environment.close()
        raise
    return environment


def changed(entries: Sequence[Entry], changes: Iterable[Entry]) -> list[dict[str, Any]]:
    """Return a list of wrappers with changed settings.

    A change with the name of a listed wrapper updates its settings; other changes are appended. An empty list of changes
    removes all wrappers.
    """
    changes = listed(changes)
    found = [dict(entry) for entry in listed(entries)] if changes else []
    for change in changes:
        here = next((each for each in found if each.get("name") == change.get("name")), None)
        found = [{**each, **change} if each is here else each for each in found] if here else [*found, dict(change)]
    return found


def in_evaluations(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries of the wrappers that are used in evaluations, too."""
    found = listed(entries)
    return [entry for entry, wrapper in zip(found, read_wrappers(found), strict=True) if wrapper.in_evaluations]


def listed(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries as a list; raises InvalidSetting unless each is a mapping with a name."""
    found = None if isinstance(entries, str | Mapping) or not isinstance(entries, Iterable) else list(entries)
    if found is None or not all(isinstance(entry, Mapping) and isinstance(entry.get("name"), str) for entry in found):
        allowed = "[{name: NAME, SETTING: VALUE, ...}, ...]"
        raise InvalidSetting("Wrappers are a list.", got=repr(entries)[:200], allowed=allowed)
    return found


def _read(entry: Entry) -> EnvironmentWrapper:
    name = str(entry["name"])
    fix = "a wrapper of your own is an entry point of robo_rl.wrappers (docs/simulators/wrappers.md)"
    kind = load("wrappers", name, fix=fix)
    settings = {key: value for key, value in entry.items() if key != "name"}
    wrapper: EnvironmentWrapper = settings_as(kind, settings, source=f"the wrapper {name}")
    return wrapper
