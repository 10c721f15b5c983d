"""Names and features of the components that come with the package, known without importing torch or a simulator.

`listing.json` holds them, and a test compares it with the components; `python -m robo_cli.listing` writes it again. Tasks of a
simulator are read from it only if that simulator is installed in the version that the file was written with.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robo_rl.environments.discovery import known, load, package_of, tasks_of
from robo_rl.errors import RoboRLError
from robo_rl.protocols.contract import Feature

if TYPE_CHECKING:
    from robo_rl.training.compatibility import Capabilities

FILE = Path(__file__).with_name("listing.json")
OWN = "robo-rl"
SIMULATORS = {
    "dm_control": "dm_control",
    "gymnasium": "gymnasium",
    "gymnasium_robotics": "gymnasium-robotics",
    "metaworld": "metaworld",
    "minigrid": "minigrid",
    "residual": "",
}
"""Family whose import takes long -> package of its tasks, "" if they are of no other package."""
COLUMNS = [feature for feature in Feature if feature is not Feature.SHARED]
"""Features in the table of learners."""


def environments() -> dict[str, str | None]:
    """Return every environment as "family/task" -> None, or the reason if its family cannot be used here."""
    names: dict[str, str | None] = {}
    for family in known("environments"):
        try:
            names |= dict.fromkeys(_tasks(family))
        except RoboRLError as error:  # one family that cannot be used hides no other
            names[f"{family}/*"] = str(error)
    return names


def learners() -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield each learner that can be loaded: name, cells of the table, lines of its description."""
    for name, point in known("learners").items():
        if package_of(point) == OWN and name in (own := _listing()["learners"]):
            yield name, own[name]["cells"], own[name]["lines"]
            continue
        try:
            yield name, *_features(name)
        except (RoboRLError, TypeError):  # a broken package, or settings without defaults
            continue


def written() -> dict[str, Any]:
    """Return the content of the file, from the components themselves."""
    own = [name for name, point in known("learners").items() if package_of(point) == OWN]
    features = {name: dict(zip(("cells", "lines"), _features(name), strict=True)) for name in own}
    tasks = {family: {"version": _version(package), "tasks": tasks_of(family)} for family, package in SIMULATORS.items()}
    return {"environments": tasks, "learners": features}


def _tasks(family: str) -> list[str]:
    found = _listing()["environments"].get(family)
    is_same = found is not None and package_of(known("environments")[family]) == OWN
    return found["tasks"] if is_same and _version(SIMULATORS[family]) == found["version"] else tasks_of(family)


def _features(name: str) -> tuple[list[str], list[str]]:
    from robo_rl.training.compatibility import Capabilities  # imports gymnasium, which the file makes needless

    able = Capabilities.of(load("learners", name)())
    return _cells(able), _lines(name, able)


def _lines(name: str, able: Capabilities) -> list[str]:
    """Return the lines about one learner."""
    lines = [f"{name}: trained by {', '.join(loop.name for loop in able.loops)}; resumes {able.resume}", ""]
    for feature in Feature:
        cell = able.cell(feature)
        hint = able.excludes[feature] if cell == "set" else feature.setting
        lines.append(f"{cell:12} {feature.noun} ({hint})")
    return [*lines, f"{_device(able):12} another device than the CPU (learner.device)"]


def _cells(able: Capabilities) -> list[str]:
    """Return the cells of a learner's row."""
    return [*map(able.cell, COLUMNS), _device(able), able.resume]


def _device(able: Capabilities) -> str:
    return "yes" if able.has_device else "no"


def _version(package: str) -> str:
    """Return the version of an installed package, "" if it is not installed."""
    try:
        return version(package) if package else ""
    except PackageNotFoundError:
        return ""


@cache
def _listing() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text())
    return found


def write() -> None:
    """Write the file, a line for each family and each learner."""
    parts = [
        (json.dumps(part), [f"{json.dumps(name)}: {json.dumps(each)}" for name, each in found.items()])
        for part, found in written().items()
    ]
    FILE.write_text("{" + ",\n".join(f"{part}: {{\n" + ",\n".join(rows) + "}" for part, rows in parts) + "}\n")


if __name__ == "__main__":
    write()
