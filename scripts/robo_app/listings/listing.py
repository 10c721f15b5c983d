"""Names and features of the components that come with the package, known without importing torch or a simulator.

`listing.json` holds them, and a test compares it with the components; `python -m robo_app.listings.listing` writes it again.
Tasks of a simulator are read from it only if that simulator is installed in the version that the file was written with.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from robo_rl.entry_points import known, load, package_of
from robo_rl.environments.make import environment_names, tasks_of
from robo_rl.errors import RoboRLError
from robo_rl.protocols.contract import Feature

FILE = Path(__file__).with_name("listing.json")
OWN = "robo-rl"
SIMULATORS = {
    "dm_control": "dm_control",
    "gymnasium": "gymnasium",
    "gymnasium_robotics": "gymnasium-robotics",
    "metaworld": "metaworld",
    "minigrid": "minigrid",
    "hazards": "",
    "safety_gymnasium": "safety-gymnasium",
    "contact": "",
    "quadrotor": "",
    "questions": "",
    "bandits": "",
    "tabular": "",
}
"""Family whose import takes long -> package of its tasks, "" if they are of no other package."""
Features = dict[str, Any]
"""Names of loops, kind of resume, device, cell of each Feature by name, and what to change for those that are excluded."""


def environments() -> dict[str, str | None]:
    """Return every environment as "family/task" -> None, or the reason if its family cannot be used here."""
    return environment_names(_tasks)


def learners() -> Iterator[tuple[str, Features]]:
    """Yield each learner that can be loaded, by name, with its features."""
    for name, point in known("learners").items():
        if package_of(point) == OWN and name in (own := _listing()["learners"]):
            yield name, own[name]
            continue
        try:
            yield name, _features(name)
        except (RoboRLError, TypeError):  # a broken package, or settings without defaults
            continue


def written() -> dict[str, Any]:
    """Return the content of the file, from the components themselves."""
    own = [name for name, point in known("learners").items() if package_of(point) == OWN]
    tasks = {family: {"version": _version(package), "tasks": tasks_of(family)} for family, package in SIMULATORS.items()}
    return {"environments": tasks, "learners": {name: _features(name) for name in own}}


def _tasks(family: str) -> list[str]:
    found = _listing()["environments"].get(family)
    is_same = found is not None and package_of(known("environments")[family]) == OWN
    return found["tasks"] if is_same and _version(SIMULATORS[family]) == found["version"] else tasks_of(family)


def _features(name: str) -> Features:
    from robo_rl.training.compatibility import Capabilities  # imports gymnasium, which the file makes needless

    able = Capabilities.of(load("learners", name)())
    return {
        "loops": [loop.name for loop in able.loops],
        "resume": able.resume,
        "device": "yes" if able.has_device else "no",
        "cells": {feature.name: able.cell(feature) for feature in Feature},
        "excludes": {feature.name: text for feature, text in able.excludes.items()},
    }


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
