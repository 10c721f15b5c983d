"""robo-rl reward compare: one recipe trained with several reward programs and seeds, and with its own reward."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from robo_app.arguments.free_settings import OtherRecipes, Programs, RecipeKeys
from robo_app.arguments.options import options
from robo_app.display.markdown_tables import listed, table_lines
from robo_app.jobs.trainings import EVALUATION, Training, keep_settings, publish, train_all
from robo_app.recipes.recipe import Recipe, RewardSettings, require_at_least, to_yaml
from robo_app.recipes.reward_file import program_file
from robo_app.training.train_options import recipe_of
from robo_rl.errors import InvalidSetting
from robo_rl.evaluation.evaluation import Evaluation, compare
from robo_rl.rewards.programs.program import RewardProgram

OWN = "own"
"""Name of the recipe with its own reward."""


@dataclass(frozen=True)
class CompareRewards:
    """Train a recipe with several reward programs and seeds, and compare declared success with that of its own reward."""

    recipe: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RECIPE")]
    out: Path
    """Folder of the runs; the same command resumes there."""
    programs: Programs = field(default_factory=dict)
    """Path of the program that is called KEY."""
    beside: OtherRecipes = field(default_factory=dict)
    """Another recipe, called KEY, that is trained as it is."""
    settings: RecipeKeys = field(default_factory=dict)
    """Key of all recipes, such as --recipe.steps 4000"""
    seeds: tuple[int, ...] = (0, 1, 2)
    jobs: int = 1
    """Trainings at once."""

    def __post_init__(self) -> None:
        if not self.seeds or len({*self.seeds}) < len(self.seeds):
            raise InvalidSetting("Seeds are one or more different numbers.", got=self.seeds)
        require_at_least(self, {"jobs": 1})


def compare_rewards(arguments: CompareRewards) -> int:
    """Train the missing runs; write and print the table, and one page with all curves."""
    trainings: dict[str, list[Training]] = {}
    for name, recipe in _recipes(arguments).items():
        file, places = arguments.out / "recipes" / f"{name}.yaml", arguments.out / "runs"
        is_used = any(places.glob(f"{name}-*/*"))
        keep_settings(file, to_yaml(replace(recipe, name=name, seed=0)), is_used=is_used)
        trainings[name] = [
            Training(name, seed, [str(file), "--seed", str(seed)], places / f"{name}-{seed}") for seed in arguments.seeds
        ]
    one_by_one = [training for same_seed in zip(*trainings.values(), strict=True) for training in same_seed]
    train_all("reward compare", one_by_one, arguments.out, at_once=arguments.jobs)
    runs = {name: [run for each in of_name if (run := each.finished)] for name, of_name in trainings.items()}
    found = {name: [Evaluation.read(run / EVALUATION) for run in of_name] for name, of_name in runs.items()}
    publish(_table(found), runs, arguments.out)
    return 0


def _recipes(arguments: CompareRewards) -> dict[str, Recipe[Any]]:
    """Return the trainings by name; raises InvalidProgram, UnknownName and InvalidSetting before any training."""
    words = options(arguments.settings)
    own = recipe_of([arguments.recipe, *words])
    found = {OWN: own}
    for name, path in arguments.programs.items():
        file = program_file(str(path))
        RewardProgram.read(file)
        found[name] = replace(own, reward=RewardSettings(name="program", settings={"path": str(file)}))
    return found | {name: recipe_of([str(other), *words]) for name, other in arguments.beside.items()}


def _table(found: Mapping[str, list[Evaluation]]) -> str:
    """Return a row for each reward: success of each seed, their mean, the difference to the recipe's own reward."""
    rows = []
    for name, evaluations in found.items():
        rates = [each.success_rate.estimate for each in evaluations if each.success_rate is not None]
        mean = f"{np.mean(rates):.0%}" if rates else "–"
        difference = _difference(evaluations, found[OWN]) if name != OWN else "–"
        rows.append([name, listed(rates, ".0%") or "not declared", mean, difference])
    lines = table_lines(["reward", "success, each seed", "mean", "difference to own, 95 %"], rows)
    return "\n".join([*lines, "", f"{len(found[OWN][0])} episodes a seed, none of them trained on."]) + "\n"


def _difference(evaluations: list[Evaluation], own: list[Evaluation]) -> str:
    compared, _ = compare(own, evaluations)
    return f"{compared['success'].mean_difference:+.0%}" if "success" in compared else "–"
