"""robo-rl reward: which reward models there are, what they can be told, and learning one from data."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
import yaml

from robo_cli.actions import run_action
from robo_cli.reward_bench import BenchReward, bench_reward
from robo_cli.reward_calibrate import Calibrate, calibrate
from robo_cli.reward_fit import Fit, fit_reward
from robo_rl.discovery import known, load
from robo_rl.errors import InvalidSetting
from robo_rl.protocols import RewardModel
from robo_rl.settings import settings_as

EXAMPLES = """robo-rl reward list
robo-rl reward show noisy-oracle
robo-rl reward fit preference --dataset data/pick --preferences mine --out rewards/pick
robo-rl reward calibrate safe.yaml --dataset data/drive --out safe-calibrated.yaml
robo-rl reward fit embedded --environment robo/ArmPick-v0 --out rewards/pick
robo-rl reward fit classifier --dataset data/pick --out rewards/success --settings.guard gripper_opening=0.02:0.06
robo-rl reward bench embedded-progress --settings folder=rewards/pick --environment robo/ArmPick-v0"""


@dataclass(frozen=True)
class List:
    """List reward models with what they do."""


@dataclass(frozen=True)
class Show:
    """Show the settings of a reward model."""

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="REWARD")]


def main(arguments: list[str]) -> int:
    """Runs one of the actions and returns its exit status."""
    return run_action("reward", ACTIONS, EXAMPLES, arguments)


def list_rewards(_: List) -> int:
    """Prints names with what they do."""
    for name in known("rewards"):
        print(f"{name:24} {(inspect.getdoc(load('rewards', name)) or '').splitlines()[0]}")
    return 0


def show(arguments: Show) -> int:
    """Prints the settings of one."""
    with suppress(SystemExit):  # tyro ends the program after its help
        tyro.cli(load("rewards", arguments.name), args=["--help"], prog=f"--reward {arguments.name} --settings")
    return 0


ACTIONS: dict[str, tuple[type, Callable[[Any], int]]] = {
    "list": (List, list_rewards),
    "show": (Show, show),
    "fit": (Fit, fit_reward),
    "calibrate": (Calibrate, lambda arguments: calibrate(read_reward(arguments.reward, {}), arguments)),
    "bench": (BenchReward, bench_reward),
}


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
