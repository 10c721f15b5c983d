"""A reward model by its name, or from a file that names it with its settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from robo_rl.discovery import load
from robo_rl.errors import InvalidSetting
from robo_rl.protocols import RewardModel
from robo_rl.settings import settings_as


def read_reward(name: str, settings: Mapping[str, Any]) -> RewardModel:
    """Returns a reward model by its name or from a YAML file with `reward` and `settings`, to which `settings` are added.

    Raises UnknownName, and InvalidSetting naming the setting.
    """
    if name.endswith((".yaml", ".yml")):
        found = _read(Path(name))
        name, settings = str(found["reward"]), {**found.get("settings", {}), **settings}
    model: RewardModel = settings_as(load("rewards", name), settings, source=f"the reward {name}")
    return model


def _read(path: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise InvalidSetting(f"{path} cannot be read.", got=error, allowed="a YAML file") from None
    if not isinstance(found, dict) or "reward" not in found or found.keys() - {"reward", "settings"}:
        got = sorted(map(str, found)) if isinstance(found, dict) else type(found).__name__
        raise InvalidSetting(f"{path} is no reward.", got=got, allowed="the keys reward and settings")
    return found
