"""Comparison of evaluations of runs, or of evaluation files, on shared seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robo_app.arguments.recipe_settings import MAPPINGS
from robo_app.arguments.run_selection import find_files, find_runs
from robo_app.jobs.trainings import flat
from robo_rl.errors import InvalidSetting, RunError, SpecMismatch
from robo_rl.evaluation.evaluation import Evaluation, compare
from robo_rl.evaluation.statistics import Comparison
from robo_rl.runs.run import Run
from robo_rl.spec.environment import EnvironmentSpec

SUFFIX = ".json"
NAMES = ("name", "summary", "seed")
"""Entries of a recipe that tell trainings of one method apart."""


@dataclass(frozen=True)
class Judged:
    """Evaluation of a training, and the spec of its environment and its recipe if known."""

    name: str
    evaluation: Evaluation
    spec: EnvironmentSpec | None = None
    recipe: Mapping[str, Any] | None = None


def judged(name: str, runs: Path) -> list[Judged]:
    """Return the final evaluations to compare: of the runs that match a name or pattern, or of evaluation files.

    A name that ends in .json, and is no folder, is a file or a pattern of files. Raises InvalidSetting if two of the files come
    from one training.
    """
    if not name.endswith(SUFFIX) or Path(name).is_dir():
        return [_of_run(each) for each in find_runs(name, runs)]
    found = [_from_file(path) for path in find_files(name)]
    seeds = [each.evaluation.training_seed for each in found]
    if any(seeds.count(seed) > 1 for seed in {*seeds} - {None}):
        raise InvalidSetting(
            "Several evaluations of one training tell nothing of the chance of training.",
            got=", ".join(f"{each.name} of training seed {each.evaluation.training_seed}" for each in found),
            allowed="one file for each training seed of a side",
            fix=f"choose among those that match {name}",
        )
    return found


def compare_judged(first: Sequence[Judged], second: Sequence[Judged]) -> tuple[dict[str, Comparison], list[int]]:
    """Compare the final evaluations of two groups of runs, metric by metric.

    Returns:
        Metric -> comparison, second minus first; and the evaluation seeds that all of them share.

    Raises:
        SpecMismatch: They were evaluated in different environments.
    """
    a = first[0]
    for b in [*first[1:], *second]:
        what = f"{a.name} and {b.name} cannot be compared"
        if a.spec is not None and b.spec is not None:
            a.spec.require(b.spec, what=what)
        elif a.evaluation.spec_fingerprint != b.evaluation.spec_fingerprint:
            compared = [f"{each.evaluation.environment}, spec {each.evaluation.spec_fingerprint}" for each in (a, b)]
            raise SpecMismatch(what, [f"spec: {compared[0]} here, {compared[1]} there"])
    return compare([each.evaluation for each in first], [each.evaluation for each in second])


def recipe_differences(first: Sequence[Judged], second: Sequence[Judged]) -> dict[str, tuple[list[Any], list[Any]]]:
    """Return the settings that are not the same in all recipes: dotted path -> values of the first and of the second side.

    Seeds and names are left out, settings that not all recipes have, and evaluation files, which have no recipe. Free
    mappings, such as the arguments of an environment, are one value.
    """
    sides = [[flat(each.recipe, MAPPINGS) for each in side if each.recipe is not None] for side in (first, second)]
    recipes = [*sides[0], *sides[1]]
    shared = [path for path in next(iter(recipes), {}) if path not in NAMES and all(path in each for each in recipes)]
    unlike = [path for path in shared if any(each[path] != recipes[0][path] for each in recipes)]
    return {path: (_distinct(path, sides[0]), _distinct(path, sides[1])) for path in unlike}


def _distinct(path: str, recipes: Sequence[Mapping[str, Any]]) -> list[Any]:
    values = [each[path] for each in recipes]
    return [value for place, value in enumerate(values) if value not in values[:place]]


def _of_run(run: Run) -> Judged:
    try:
        found = Evaluation.read(run.path / "evaluation.json")
    except FileNotFoundError:
        raise RunError(f"{run.path.name} has no final evaluation.", fix=f"finish it: robo-rl resume {run.path.name}") from None
    return Judged(run.path.name, found, run.spec, run.recipe)


def _from_file(path: Path) -> Judged:
    try:
        found = Evaluation.read(path)
        compared = (found.returns, found.successes, *found.measured.values())
        if not found.seeds or any(len(values) != len(found.seeds) for values in compared):
            raise ValueError("not as many outcomes as seeds")
        return Judged(str(path), found)
    except (ValueError, TypeError, AttributeError, RunError, OSError) as error:
        raise RunError(
            f"{path} holds no evaluation.",
            got=f"{type(error).__name__}: {error}",
            allowed="what robo-rl evaluate RUN --json printed",
        ) from None
