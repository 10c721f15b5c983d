"""robo-rl evaluate: judge a run's policy again, on more seeds or in another environment of the same spec."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import torch
import tyro

from robo_cli.assembly import environment_of, policy_of, recipe_of
from robo_cli.recipe import EnvironmentSettings, require_at_least
from robo_rl.evaluation import FIRST_SEED, evaluate
from robo_rl.runs import find_run

EXAMPLES = """robo-rl evaluate latest
robo-rl evaluate latest --episodes 200 --json
robo-rl evaluate RUN --environment my_lab/Cell-v0     (refused unless units, frames, action mode and rate agree)"""


@dataclass(frozen=True)
class Evaluate:
    """Evaluate the policy of a run's newest checkpoint."""

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """Path or name of a run folder, or "latest"."""
    episodes: int = 50
    """Episodes, one per seed."""
    seed: int = FIRST_SEED
    """Reset seed of the first episode; the others follow."""
    environment: str = ""
    """Another environment than the one trained on; one of the same family is made with the same arguments."""
    stochastic: bool = False
    """Sample actions instead of taking the most likely one, as where the recipe says so (evaluation.stochastic)."""
    json: bool = False
    """Print JSON."""
    runs: Path = Path("runs")
    """Folder that holds the runs."""

    def __post_init__(self) -> None:
        require_at_least(self, {"episodes": 1, "seed": 0})


def run(arguments: Evaluate) -> int:
    """Prints n, the success rule, seeds and intervals."""
    trained = find_run(arguments.run, arguments.runs)
    recipe = recipe_of(trained)
    torch.set_num_threads(recipe.threads)
    policy = policy_of(trained, recipe)
    if arguments.environment:
        recipe = replace(recipe, environment=_elsewhere(recipe.environment, arguments.environment))
    evaluation = evaluate(
        policy,
        environment_of(recipe),
        seeds=range(arguments.seed, arguments.seed + arguments.episodes),
        deterministic=not (arguments.stochastic or recipe.evaluation.stochastic),
        training_seed=recipe.seed,
    )
    print(json.dumps(evaluation.to_json()) if arguments.json else evaluation)
    return 0


def _elsewhere(trained_on: EnvironmentSettings, name: str) -> EnvironmentSettings:
    is_related = name.partition("/")[0] == trained_on.name.partition("/")[0]
    return EnvironmentSettings(name, trained_on.arguments if is_related else {})
