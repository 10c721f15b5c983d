"""Policies of runs and their evaluations: implements `Run.policy` and `Run.evaluate`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from robo_app.jobs.interruption import gentle_interruption
from robo_app.recipes.environments import environment_of
from robo_app.recipes.overrides import plain_value
from robo_app.recipes.recipe import EnvironmentSettings, Recipe
from robo_app.training.assembly import policy_of, recipe_of
from robo_app.training.finalisation import judge
from robo_datasets.dataset import Dataset
from robo_rl.entry_points import load
from robo_rl.environments.levels import Split, as_split, level_seed, split_of, training_levels
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.evaluation.evaluation import FIRST_SEED, Evaluation
from robo_rl.evaluation.statistics import difference
from robo_rl.protocols.components import Policy
from robo_rl.report import write_report
from robo_rl.runs.run import Run, Step, write_text
from robo_rl.system.threads import tensor_threads


def load_policy(run: Run, step: Step = None) -> Policy:
    """Load the policy of a run, by default the newest one; implements `Run.policy`."""
    return policy_of(run, recipe_of(run), step)


def evaluate(  # noqa: PLR0913 (keyword settings)
    run: Run,
    episodes: int = 50,
    *,
    seed: int = FIRST_SEED,
    environment: str = "",
    routes: str = "",
    arguments: Mapping[str, Any],
    videos: int | None = None,
    stochastic: bool = False,
    attempts: int = 1,
    split: str = "",
    step: Step = None,
    on_incomplete: Callable[[Evaluation], object] | None = None,
) -> Evaluation:
    """Implement `Run.evaluate`; an evaluation that differs from the recipe's, or ends early, is kept in RUN/evaluations."""
    counts = {"episodes": (episodes, 1), "seed": (seed, 0), "attempts": (attempts, 1)}
    _require_counts(**counts, videos=(0 if videos is None else videos, 0))
    recipe = recipe_of(run)
    own: dict[str, Any] = plain_value(arguments)
    place = name = _name(environment, routes, own)
    seeds: Sequence[int] = range(seed, seed + episodes)
    if split:
        seeds = seeds_of(recipe, as_split(split), episodes)
        name = "-".join(filter(None, (f"levels-{split}", name)))
    if attempts > 1:
        name = "-".join(filter(None, (f"attempts-{attempts}", name)))
    if step is not None:
        step = run.numbered(step)
        name = "-".join(filter(None, (f"step-{step}", name)))
    how = replace(
        recipe.evaluation,
        arguments={} if place else recipe.evaluation.arguments,
        wrappers=() if place else recipe.evaluation.wrappers,
        videos=(2 if name and attempts == 1 else 0) if videos is None else videos,
        stochastic=stochastic or attempts > 1 or recipe.evaluation.stochastic,
    )
    there = elsewhere(recipe.environment, environment, routes, own)
    with tensor_threads(recipe.threads), gentle_interruption(_interrupt):
        judged = replace(recipe, environment=there, evaluation=how)
        policy, title = policy_of(run, recipe, step), name or "evaluation"
        evaluation = judge(run, judged, policy, seeds, title, attempts=attempts, on_incomplete=on_incomplete)
    if split == "train" and not place and (file := run.path / "evaluation.json").exists():
        evaluation = replace(evaluation, notes=(*evaluation.notes, *gap(evaluation, Evaluation.read(file))))
    if name:
        (run.path / "evaluations").mkdir(exist_ok=True)
        write_text(run.path / "evaluations" / f"{name}.json", json.dumps(evaluation.to_json()))
    if name or how.videos:
        write_report([run.path], run.report)
    return evaluation


def _interrupt() -> NoReturn:
    raise KeyboardInterrupt  # at SIGTERM, too, which would end the program at once


def gap(trained: Evaluation, tested: Evaluation) -> list[str]:
    """Return a line with the generalisation gap: outcomes on levels of the training minus those on levels of the test.

    Empty if `tested` is not on levels of the test, or if actions are sampled in only one of the evaluations.
    """
    if trained.deterministic != tested.deterministic or {split_of(seed) for seed in tested.seeds} != {"test"}:
        return []
    figures = {"return": (trained.mean_return, tested.mean_return)}
    if trained.success_rate is not None and tested.success_rate is not None:
        figures = {"success": (trained.success_rate, tested.success_rate), **figures}
    differences = (f"{name} {difference(*both):+.3g}" for name, both in figures.items())
    return [f"gap to the {len(set(tested.seeds))} levels of the test: {', '.join(differences)}"]


def seeds_of(recipe: Recipe[Any], split: Split, most: int) -> Sequence[int]:
    """Return the seeds of at most `most` levels of a split; of split "train" only levels that the training had.

    Raises InvalidSetting for a training without levels.
    """
    found: Sequence[int] = [level_seed(split, level) for level in range(most)]
    if split == "train" and recipe.curriculum.levels:
        environment = environment_of(recipe)
        levels = training_levels(environment, recipe.curriculum.levels)
        environment.close()
        return [level_seed(split, level) for level in levels[:most]]
    if split == "train":
        settings = recipe.demonstrations
        entries = Dataset(Path(settings.dataset)).entries()[: settings.episodes or None] if settings.dataset else []
        found = sorted({entry.seed for entry in entries if entry.seed is not None and split_of(entry.seed) == split})
    if not found:
        raise InvalidSetting(
            "The training had no levels of its own: each of its episodes had another seed.",
            got="split train",
            allowed="validation or test",
            fix="train with curriculum.levels, or on a dataset recorded with --levels",
        )
    return found[:most]


def _require_counts(**counts: tuple[int, int]) -> None:
    for name, (value, least) in counts.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise InvalidSetting(f"Setting {name!r} is out of range.", got=repr(value), allowed=f"an integer from {least}")


def _name(environment: str, routes: str, arguments: Mapping[str, Any]) -> str:
    """Return a name for the differences of an evaluation's environment from the training's; "" if there are none."""
    written = {key: value if isinstance(value, str) else json.dumps(value) for key, value in arguments.items()}
    server = []
    if isinstance(arguments.get("host"), str):
        server = [f"at-{written.pop('host')}"]
        written.pop("port", None)
    parts = [environment, routes, *(f"{key}={value}" for key, value in written.items()), *server]
    return re.sub(r"[^A-Za-z0-9._=-]+", "-", "-".join(filter(None, parts)))


def elsewhere(
    trained_on: EnvironmentSettings, environment: str, routes: str, arguments: Mapping[str, Any]
) -> EnvironmentSettings:
    """Return the settings of another environment, or of a set of routes, with the training's wrappers.

    An environment of the same family keeps the training's other arguments.

    Raises InvalidSetting for a name and routes, UnknownName for unknown routes.
    """
    if environment and routes:
        raise InvalidSetting("A set of routes is an environment.", got="an environment and routes", allowed="one of the two")
    family = trained_on.name.partition("/")[0]
    name, own = environment or trained_on.name, dict(trained_on.arguments)
    if routes:
        known: dict[str, str] = dict(getattr(load("environments", family), "routes", {}))
        if routes not in known:
            raise UnknownName(f"set of routes of {family}", routes, known, fix="`environment` takes any environment")
        name = f"{family}/{known[routes]}"
        own = {key: value for key, value in own.items() if key not in {"map", "routes"}}
    elif name.partition("/")[0] != family:
        own = {}
    return replace(trained_on, name=name, arguments=own).with_more(arguments)
