"""A reward model by its name, from a file that names it with its settings, or from a file that is a reward program."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from robo_rl.discovery import load
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.protocols import RewardModel
from robo_rl.settings import settings_as

PROGRAM = "program:"
SHIPPED = Path(str(files("robo_cli") / "programs"))
"""Folder of the programs that come with the package."""


def read_reward(name: str, settings: Mapping[str, Any]) -> RewardModel:
    """Returns a reward model by its name or from a YAML file with `reward` and `settings`, to which `settings` are added.

    "program:PATH" is short for the reward `program` with that path. Raises UnknownName, and InvalidSetting naming the setting.
    """
    if name.startswith(PROGRAM):
        name, settings = "program", {**settings, "path": str(program_file(name.removeprefix(PROGRAM)))}
    if name.endswith((".yaml", ".yml")):
        found = _read(Path(name))
        name, settings = str(found["reward"]), {**found.get("settings", {}), **settings}
    model: RewardModel = settings_as(load("rewards", name), settings, source=f"the reward {name}")
    return model


def program_file(name: str) -> Path:
    """Returns the file of a reward program, which may be one of those that come with the package, such as arm_push.

    Raises UnknownName for a bare word that is neither; a path may be missing, which is told where it is read.
    """
    path = Path(name)
    if path.exists() or path.suffix or len(path.parts) != 1:
        return path
    if name not in shipped_programs():
        raise UnknownName("reward program", name, shipped_programs(), fix="or the path of a .py file")
    return SHIPPED / f"{name}.py"


def shipped_programs() -> list[str]:
    """Returns the names of the programs that come with the package."""
    return sorted(path.stem for path in SHIPPED.glob("*.py") if path.stem != "__init__")


def _read(path: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise InvalidSetting(f"{path} cannot be read.", got=error, allowed="a YAML file") from None
    if not isinstance(found, dict) or "reward" not in found or found.keys() - {"reward", "settings"}:
        got = sorted(map(str, found)) if isinstance(found, dict) else type(found).__name__
        raise InvalidSetting(f"{path} is no reward.", got=got, allowed="the keys reward and settings")
    return found
