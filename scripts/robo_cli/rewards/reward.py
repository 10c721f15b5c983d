"""robo-rl reward: list reward models, show their settings, and learn one from data."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Annotated

import tyro

from robo_app.listings.levels import by_level, components
from robo_cli.actions import Actions, Fit, Later, Nested, run_action
from robo_rl.entry_points import load

PROGRAM = "program:"
EXAMPLES = """robo-rl reward list
robo-rl reward show noisy-oracle
robo-rl reward fit preference --dataset data/pick --preferences mine --out rewards/pick
robo-rl reward fit embedded --environment robo/ArmPick-v0 --out rewards/pick
robo-rl reward fit classifier --dataset data/pick --out rewards/success --settings.guard gripper_opening=0.02:0.06
robo-rl reward bench embedded-progress --reward.settings.folder rewards/pick --environment robo/ArmPick-v0
robo-rl reward check mine.py --environment robo/ArmPush-v0
robo-rl reward explain mine.py --dataset data/push --episode 3
robo-rl reward write arm-push-sac --llm pack:text2reward-push --out rewards/push
robo-rl reward write robo/ArmPush-v0 --llm endpoint --llm.settings.model qwen3 --examples 2 --out rewards/mine
robo-rl reward compare arm-push-sac --programs.mine push.py --beside.sparse arm-push-sac-sparse --out studies/push
robo-rl reward calls runs/search --show 2
robo-rl reward packs point-example"""


@dataclass(frozen=True)
class List:
    """List reward models with their descriptions."""


@dataclass(frozen=True)
class Show:
    """Show the settings of a reward model, or a reward program."""

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="REWARD")]


def main(arguments: list[str]) -> int:
    """Run one of the actions and return its exit status."""
    return run_action("reward", ACTIONS, EXAMPLES, arguments)


def list_rewards(_: List) -> int:
    """Print names with descriptions, by level of evidence."""
    print("\n".join(by_level(components("rewards"))))
    return 0


def show(arguments: Show) -> int:
    """Print the settings of one, or a program and its origin."""
    if arguments.name.startswith(PROGRAM):
        from robo_cli.rewards.check import show_program

        return show_program(arguments.name.removeprefix(PROGRAM))
    kind = load("rewards", arguments.name)
    with suppress(SystemExit):  # tyro ends the program after its help
        tyro.cli(kind, args=["--help"], prog=f"--reward {arguments.name} --reward.settings")
    mappings = [item.name for item in fields(kind) if "Mapping" in str(item.type)]  # which tyro leaves out
    print("".join(f"also {name}, a mapping: {{NAME: VALUE, ...}}\n" for name in mappings), end="")
    print("typed as --reward.settings.NAME VALUE")
    return 0


FIT = "Fit a reward, store it in a folder, and print its scores on held-out data."
FITS = {
    "preference": Fit("robo_cli.rewards.fit_preference", "FitPreference", "fit_preference"),
    "embedded": Fit("robo_cli.rewards.fit_embedded", "FitEmbedded", "fit_embedded"),
    "classifier": Fit("robo_cli.rewards.fit_classifier", "FitClassifier", "fit_classifier"),
}
ACTIONS: Actions = {
    "list": (List, list_rewards),
    "show": (Show, show),
    "fit": Nested(FIT, FITS),
    "bench": Later("robo_bench.scored_clips", "BenchReward", "bench_reward"),
    "check": Later("robo_cli.rewards.check", "Check", "check_program"),
    "explain": Later("robo_cli.rewards.explain", "Explain", "explain"),
    "references": Later("robo_cli.rewards.references", "References", "write_references"),
    "write": Later("robo_cli.rewards.write", "WriteReward", "write_reward"),
    "compare": Later("robo_cli.rewards.compare", "CompareRewards", "compare_rewards"),
    "calls": Later("robo_cli.rewards.language", "Calls", "show_calls"),
    "packs": Later("robo_cli.rewards.language", "Packs", "list_packs"),
}
