"""robo-rl spo evaluate: evaluate the average of the policies that a run has kept."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

import robo_rl
from robo_app.display.display import show_result
from robo_app.recipes.recipe import require_at_least
from robo_app.training.assembly import policy_of, recipe_of
from robo_app.training.finalisation import judge
from robo_papers.spo.mixture import MixturePolicy
from robo_rl.evaluation.evaluation import FIRST_SEED
from robo_rl.runs.run import write_text
from robo_rl.system.threads import tensor_threads

EXAMPLES = "robo-rl spo evaluate latest --episodes 100"


@dataclass(frozen=True)
class EvaluateAverage:
    """Evaluate the average of a run's policies: one of those that it has kept is drawn for each episode."""

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """Path or name of a run folder, or "latest"."""
    episodes: int = 50
    """Episodes, one per seed."""
    seed: int = FIRST_SEED
    """Reset seed of the first episode; the others follow."""
    json: bool = False
    """Print JSON."""
    runs: Path = Path("runs")
    """Folder that holds the runs."""

    def __post_init__(self) -> None:
        require_at_least(self, {"episodes": 1, "seed": 0})


def run(arguments: EvaluateAverage) -> int:
    """Print success, return and intervals, and keep them in RUN/evaluations/mixture.json."""
    trained = robo_rl.open_run(arguments.run, runs=arguments.runs)
    recipe = recipe_of(trained)
    recipe = replace(recipe, evaluation=replace(recipe.evaluation, videos=0))
    show = partial(show_result, arguments.json, f"run      {trained.path}\n")
    seeds = range(arguments.seed, arguments.seed + arguments.episodes)
    with tensor_threads(recipe.threads):
        policy = MixturePolicy([policy_of(trained, recipe, step) for step in trained.checkpoints])
        found = judge(trained, recipe, policy, seeds, "mixture", on_incomplete=show)
    file = trained.path / "evaluations" / "mixture.json"
    file.parent.mkdir(exist_ok=True)
    write_text(file, json.dumps(found.to_json()))
    return show(found, "")
