"""Components by name through package entry points: environments, learners, rewards, models, robots, cameras, formats.

The operations of `robo_rl`, such as `train`, are entry points, too: packages above this one implement them. A third party adds
a component by an entry point of its own package, or in a paper (`robo_rl.papers`), without a change here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from traceback import extract_tb
from typing import Any

from robo_rl.code_names import object_named
from robo_rl.errors import BrokenPlugin, InvalidSetting, MissingOperation, RoboRLError, UnknownName
from robo_rl.papers import Component, Group, papers


def known(group: Group) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name, sorted by name; no plug-in is imported."""
    return dict(_declared(group, tuple(sys.path), tuple(map(_changed, sys.path))))


@lru_cache(maxsize=64)
def _declared(group: Group, path: tuple[str, ...], changed: tuple[int, ...]) -> dict[str, EntryPoint]:
    """Return the value of `known`; the cache is renewed after a package was installed in a folder of `sys.path`."""
    return {point.name: point for point in sorted(declared(group), key=lambda point: point.name)}


def declared(group: Group) -> list[EntryPoint]:
    """Return the entry points of a group from papers and installed packages; a name may occur twice."""
    return [point for paper in papers().values() for point in paper.points(group)] + [*entry_points(group=f"robo_rl.{group}")]


def _changed(folder: str) -> int:
    """Return the time of a folder's last change [ns]; 0 if there is no such folder."""
    with suppress(OSError):
        return os.stat(folder or ".").st_mtime_ns
    return 0


def load(group: Group, name: str, *, fix: str | None = None) -> Any:
    """Return the object of an entry point.

    Raises:
        UnknownName: There is no such entry point; the message lists similar names.
        BrokenPlugin: The package that declares it fails to load.
    """
    points = known(group)
    if name not in points:
        raise UnknownName(group.removesuffix("s").replace("_", "-"), name, points, fix=fix)
    return component(group, points[name])


def load_named(group: Group, setting: str, name: str) -> Any:
    """Return the object that a setting names: "package.module:Class" or an entry point of a group.

    Raises:
        UnknownName: There is no such entry point, or the module does not have the name.
        BrokenPlugin: The package of the entry point fails to load.
        InvalidSetting: The module cannot be imported.
    """
    if ":" not in name:
        return load(group, name, fix="name a class without an entry point as package.module:Class")
    names = ", ".join(known(group)) or "none is installed"
    allowed = f"package.module:Class, or an entry point of robo_rl.{group} ({names})"
    return object_named(name, setting, allowed=allowed)


@contextmanager
def refused_if_it_fails(what: str, *, allowed: str, fix: str) -> Iterator[None]:
    """Turn any error of foreign code in this context into InvalidSetting, with the line of code that failed.

    Errors of robo_rl pass unchanged. what, allowed, fix: parts of the message, the problem, the allowed values and the remedy.
    """
    try:
        yield
    except RoboRLError:
        raise
    except Exception as error:
        place = [frame for frame in extract_tb(error.__traceback__) if "/torch/" not in frame.filename][-1]
        got = f"{type(error).__name__}: {error}, at {place.filename}:{place.lineno}"
        raise InvalidSetting(what, got=got, allowed=allowed, fix=fix) from error


def operation(name: str) -> Any:
    """Return the implementation of `robo_rl.<name>`; raises MissingOperation if its package is not installed."""
    points = known("operations")
    if name not in points:
        raise MissingOperation(name)
    return component("operations", points[name])


def component(group: Group, point: EntryPoint) -> Any:
    """Import and return the object that an entry point names; raises BrokenPlugin if it cannot be loaded."""
    with plugin_errors(group, point):
        return point.load()


@contextmanager
def plugin_errors(group: Group, point: EntryPoint) -> Iterator[None]:
    """Turn any error of a plug-in in this context into BrokenPlugin, which names its package.

    Errors of robo_rl pass unchanged.
    """
    try:
        yield
    except RoboRLError:
        raise
    except (Exception, SystemExit) as error:
        raise BrokenPlugin(group, point.name, package_of(point), error) from error


def package_of(point: EntryPoint) -> str:
    """Return the name of the package that declares an entry point."""
    if isinstance(point, Component):
        return point.distribution
    return point.dist.name if point.dist is not None else point.module
