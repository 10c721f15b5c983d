"""robo-rl reward: which reward models there are, what they can be told, and learning one from data."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Annotated, Any

import tyro

from robo_cli.actions import run_action
from robo_cli.reward_bench import BenchReward, bench_reward
from robo_cli.reward_calibrate import Calibrate, calibrate
from robo_cli.reward_file import read_reward
from robo_cli.reward_fit import Fit, fit_reward
from robo_rl.discovery import known, load

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
    kind = load("rewards", arguments.name)
    with suppress(SystemExit):  # tyro ends the program after its help
        tyro.cli(kind, args=["--help"], prog=f"--reward {arguments.name} --settings")
    mappings = [item.name for item in fields(kind) if "Mapping" in str(item.type)]  # which tyro leaves out
    print("".join(f"also {name}, a mapping: {name}='{{NAME: VALUE, ...}}'\n" for name in mappings) + "typed as NAME=VALUE")
    return 0


ACTIONS: dict[str, tuple[type, Callable[[Any], int]]] = {
    "list": (List, list_rewards),
    "show": (Show, show),
    "fit": (Fit, fit_reward),
    "calibrate": (Calibrate, lambda arguments: calibrate(read_reward(arguments.reward, {}), arguments)),
    "bench": (BenchReward, bench_reward),
}
