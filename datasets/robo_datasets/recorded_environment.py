"""Convert the environment of an old dataset to the present format, in which wrappers are a list.

In old datasets, "constrained:NAME" is the environment NAME in the wrapper `constrained`, and `frame_stack`, `stacks` and
`objective` are arguments of the environment.
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
    """Convert a recorded name and its arguments to the present format, with which the environment can be made.

    A name and arguments that are in the present format already are returned as they are.

    Args:
        name: Name of the environment, as recorded, such as "constrained:NAME".
        arguments: Its arguments, as recorded.

    Returns:
        The name without prefixes, and the arguments, in which wrappers are a list under the key `wrappers`.
    """
    around, rest = list[str](), dict(arguments)
    while (prefix := name.partition(":")[0]) in PREFIXES:
        around, name = [prefix, *around], name.partition(":")[2]
    wrappers = [_moved(prefix, rest) for prefix in around]
    if "planned" in around and name.startswith("carla/"):
        rest = {"birdseye": 0, **rest}
    wrappers += [*_of_arguments(rest)]
    return name, {**rest, **({"wrappers": [*rest.get("wrappers", ()), *wrappers]} if wrappers else {})}


def _moved(name: str, arguments: Settings) -> Settings:
    """Return the entry of the wrapper `name` with its settings, which are removed from the old arguments."""
    own = arguments.pop("perturbation", None) or {} if name == "perturbed" else {}
    names = [each.name for each in fields(load("wrappers", name))]
    return {"name": name, **own, **{key: arguments.pop(key) for key in names if key in arguments}}


def _of_arguments(arguments: Settings) -> Iterator[Settings]:
    """Yield the entries of the wrappers that were arguments of every environment, and remove these from the arguments."""
    objective = arguments.pop("objective", None) or {}
    if objective.get("name"):  # none stands for the sum of rewards
        yield {"name": str(objective["name"]).replace("-", "_"), **(objective.get("settings") or {})}
    count, more = arguments.pop("frame_stack", 1), {"stacks": arguments.pop("stacks")} if "stacks" in arguments else {}
    if count != 1:
        yield {"name": "frame_stack", "count": count, **more}
