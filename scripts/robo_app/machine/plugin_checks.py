"""Check of `robo-rl doctor` that all components of installed packages can be loaded and have different names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import EntryPoint
from typing import get_args

from robo_app.machine.finding import Finding
from robo_rl.entry_points import component, declared, known, package_of
from robo_rl.environments.make import tasks_of
from robo_rl.errors import BrokenPlugin, MissingExtra
from robo_rl.papers import Group


def plugins() -> Iterator[Finding]:
    """Check that every entry point can be loaded, except if an optional package is missing, and that no name is used twice."""
    found: list[Finding] = []
    count = 0
    for group in get_args(Group):
        points = declared(group)
        count += len(points)
        found += [*_broken(group, points), *_doubles(group, points)]
    if all(finding.level == "ok" for finding in found):
        found.insert(0, Finding("ok", f"all {count - len(found)} components of installed packages can be loaded"))
    yield from found


def _broken(group: Group, points: Sequence[EntryPoint]) -> Iterator[Finding]:
    for point in points:
        try:
            component(group, point)
            if group == "environments":
                tasks_of(point.name)
        except MissingExtra as error:
            yield Finding("ok", f"optional, not installed: {error.problem}", error.fix)
        except BrokenPlugin as error:
            package = package_of(point)
            text = f"{group}: {point.name!r} of the package {package} does not work: {error.reason}"
            yield Finding("problem", text, f"mend or upgrade {package}, or: pip uninstall {package}")


def _doubles(group: Group, points: Sequence[EntryPoint]) -> Iterator[Finding]:
    for name, used in known(group).items():
        packages = sorted({package_of(point) for point in points if point.name == name})
        if len(packages) > 1:
            text = f"{group}: {name!r} is declared by {' and '.join(packages)}; that of {package_of(used)} is used"
            yield Finding("warning", text, f"pip uninstall {next(each for each in packages if each != package_of(used))}")
