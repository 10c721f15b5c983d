"""Environments of datasets from before wrappers were a list: their names and arguments with the spelling of today.

Then "constrained:NAME" was NAME in the wrapper `constrained`, and `frame_stack`, `stacks` and `objective` were arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from robo_rl.entry_points import load

PREFIXES = (
    "adversary",
    "constrained",
    "encoded",
    "filtered",
    "personal",
    "perturbed",
    "planned",
    "prior",
    "residual",
    "shielded",
    "steered",
)
Settings = dict[str, Any]


def environment_as_recorded(name: str, arguments: Mapping[str, Any]) -> tuple[str, Settings]:
    """Return a name and its arguments, in which wrappers are a list under the key `wrappers`."""
    around, rest = list[str](), dict(arguments)
    while (prefix := name.partition(":")[0]) in PREFIXES:
        around, name = [prefix, *around], name.partition(":")[2]
    wrappers = [_moved(prefix, rest) for prefix in around]
    if "planned" in around and name.startswith("carla/"):
        rest = {"birdseye": 0, **rest}
    wrappers += [*_of_arguments(rest)]
    return name, {**rest, **({"wrappers": [*rest.get("wrappers", ()), *wrappers]} if wrappers else {})}


def _moved(name: str, arguments: Settings) -> Settings:
    """Return a wrapper with its settings, which are taken out of the arguments of before."""
    own = arguments.pop("perturbation", None) or {} if name == "perturbed" else {}
    names = [each.name for each in fields(load("wrappers", name))]
    return {"name": name, **own, **{key: arguments.pop(key) for key in names if key in arguments}}


def _of_arguments(arguments: Settings) -> Iterator[Settings]:
    """Yield the wrappers that were arguments of every environment, and take them out of the arguments."""
    objective = arguments.pop("objective", None) or {}
    if objective.get("name"):  # none stands for the sum of rewards
        yield {"name": str(objective["name"]).replace("-", "_"), **(objective.get("settings") or {})}
    count, more = arguments.pop("frame_stack", 1), {"stacks": arguments.pop("stacks")} if "stacks" in arguments else {}
    if count != 1:
        yield {"name": "frame_stack", "count": count, **more}
