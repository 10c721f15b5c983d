"""robo-rl reward compare: one recipe trained with several reward programs and seeds, beside its own reward."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from robo_cli.curves import draw_curves
from robo_cli.recipe import Recipe, RewardSettings
from robo_cli.reward_file import program_file
from robo_cli.reward_trainer import trained
from robo_cli.study_options import options
from robo_cli.train import recipe_of
from robo_cli.typed_settings import settings_of
from robo_rl.errors import InvalidSetting
from robo_rl.evaluation import Evaluation, compare
from robo_rl.report import write_report
from robo_rl.rewards.programs.program import RewardProgram
from robo_rl.runs import Run, write_text
from robo_rl.threads import use_threads

OWN = "own"
"""Name of the recipe with its own reward."""


@dataclass(frozen=True)
class CompareRewards:
    """Train a recipe with several reward programs and seeds, and compare declared success with that of its own reward."""

    recipe: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RECIPE")]
    out: Path
    """Folder of the runs; the same command goes on there."""
    programs: tuple[str, ...] = ()
    """NAME=PATH of each program."""
    beside: tuple[str, ...] = ()
    """NAME=RECIPE of other recipes that are trained as they are."""
    settings: tuple[str, ...] = ()
    """Settings of all recipes, such as steps=4000."""
    seeds: tuple[int, ...] = (0, 1, 2)

    def __post_init__(self) -> None:
        if not self.seeds or len({*self.seeds}) < len(self.seeds):
            raise InvalidSetting("Seeds are one or more different numbers.", got=self.seeds)


def compare_rewards(arguments: CompareRewards) -> int:
    """Trains what is missing; writes and prints the table, and one page with all curves."""
    found: dict[str, list[Run]] = {}
    for name, recipe in _recipes(arguments).items():
        use_threads(recipe.threads)
        for seed in arguments.seeds:
            run = trained(replace(recipe, name=name, seed=seed), arguments.out / "runs" / f"{name}-{seed}")
            found.setdefault(name, []).append(run)
            print(f"{name}, seed {seed}: {_final(run).success_rate}", flush=True)
    text = _table({name: [_final(run) for run in runs] for name, runs in found.items()})
    write_text(arguments.out / "table.md", text)
    draw_curves({name: [run.path for run in runs] for name, runs in found.items()}, arguments.out / "curves.png")
    page = write_report([run.path for runs in found.values() for run in runs], arguments.out / "report.html")
    print(f"{text}\nreport   {page}")
    return 0


def _recipes(arguments: CompareRewards) -> dict[str, Recipe[Any]]:
    """Returns what is trained, by name; raises InvalidProgram, UnknownName and InvalidSetting before anything is."""
    words = options(settings_of(arguments.settings))
    own = recipe_of([arguments.recipe, *words])
    found = {OWN: own}
    for name, path in settings_of(arguments.programs).items():
        file = program_file(str(path))
        RewardProgram.read(file)
        found[name] = replace(own, reward=RewardSettings(name="program", settings={"path": str(file)}))
    return found | {name: recipe_of([str(other), *words]) for name, other in settings_of(arguments.beside).items()}


def _final(run: Run) -> Evaluation:
    return Evaluation.read(run.path / "evaluation.json")


def _table(found: Mapping[str, list[Evaluation]]) -> str:
    """Returns a row for each reward: success of each seed, their mean, the difference to the recipe's own reward."""
    lines = ["| reward | success, each seed | mean | difference to own, 95 % |", "|---|---|---|---|"]
    for name, evaluations in found.items():
        rates = [each.success_rate.estimate for each in evaluations if each.success_rate is not None]
        told = ", ".join(f"{rate:.0%}" for rate in rates) or "not declared"
        mean = f"{np.mean(rates):.0%}" if rates else "–"
        lines.append(f"| {name} | {told} | {mean} | {_difference(evaluations, found[OWN]) if name != OWN else '–'} |")
    episodes = len(found[OWN][0])
    return "\n".join([*lines, "", f"{episodes} episodes a seed, none of them trained on."]) + "\n"


def _difference(evaluations: list[Evaluation], own: list[Evaluation]) -> str:
    compared, _ = compare(own, evaluations)
    return f"{compared['success'].mean_difference:+.0%}" if "success" in compared else "–"
