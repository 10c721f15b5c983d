"""robo-rl reward: which reward models there are, and what they can be told."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
import yaml

from robo_cli.recipe import settings_as
from robo_rl.discovery import known, load
from robo_rl.errors import InvalidSetting
from robo_rl.protocols import RewardModel

EXAMPLES = "robo-rl reward list\nrobo-rl reward show noisy-oracle"


@dataclass(frozen=True)
class RewardOrder:
    """List reward models, or show the settings of one."""

    what: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="list|show")]
    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="REWARD")] = ""
    """Of a model to show."""

    def __post_init__(self) -> None:
        if self.what not in ("list", "show") or (self.what == "show") != bool(self.name):
            raise InvalidSetting("There is no such order.", got=f"{self.what} {self.name}", allowed="list, or show REWARD")


def run(arguments: RewardOrder) -> int:
    """Prints names with what they do, or the settings of one."""
    if arguments.what == "show":
        with suppress(SystemExit):  # tyro ends the program after its help
            tyro.cli(load("rewards", arguments.name), args=["--help"], prog=f"--reward {arguments.name} --settings")
        return 0
    for name in known("rewards"):
        print(f"{name:24} {(inspect.getdoc(load('rewards', name)) or '').splitlines()[0]}")
    return 0


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
