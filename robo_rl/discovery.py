"""Find environments, learners, rewards, robots and formats by name, through package entry points.

A third party adds one by declaring an entry point in its own package; nothing here is edited.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

import gymnasium

from robo_rl.errors import MissingExtra, UnknownName

Group = Literal["environments", "learners", "rewards", "robots", "formats"]


def known(group: Group) -> dict[str, EntryPoint]:
    """Returns name -> entry point of a group, sorted by name; loads nothing."""
    return {point.name: point for point in sorted(entry_points(group=f"robo_rl.{group}"), key=lambda point: point.name)}


def load(group: Group, name: str) -> Any:
    """Returns the object that an entry point names; raises UnknownName with the close matches."""
    points = known(group)
    if name not in points:
        raise UnknownName(group.removesuffix("s"), name, points)
    return points[name].load()


def environment_names() -> dict[str, str | None]:
    """Returns every environment as "family/task" -> None, or the reason why its family cannot be used here."""
    names: dict[str, str | None] = {}
    for family, point in known("environments").items():
        try:
            found = point.load()
            names |= {name: None for name in _tasks(family, found)}
        except (MissingExtra, ImportError) as error:
            names[f"{family}/*"] = str(error)
    return names


def make_environment(name: str, **arguments: Any) -> gymnasium.Env[Any, Any]:
    """Returns a fresh environment from "family/task", or from the bare name of a family of one.

    Raises UnknownName with the close matches (of the family, where that is known), MissingExtra where a package is not
    installed.
    """
    family, _, task = name.partition("/")
    if family not in known("environments"):
        raise UnknownName("environment", name, [key for key, problem in environment_names().items() if problem is None])
    found = load("environments", family)
    if name not in (tasks := _tasks(family, found)):
        raise UnknownName("environment", name, tasks)
    environment: gymnasium.Env[Any, Any] = found.make(task, **arguments) if task else found(**arguments)
    return environment


def _tasks(family: str, found: Any) -> list[str]:
    if isinstance(found, type):  # an environment class of its own, without siblings
        return [family]
    return [f"{family}/{task}" for task in found.names()]
