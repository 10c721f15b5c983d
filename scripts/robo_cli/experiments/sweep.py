"""robo-rl sweep: search the settings of a recipe, with several seeds per trial; the same command resumes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import tyro

from robo_app.cluster.cluster_training import trainings_at
from robo_app.experiments.seeds import seeds_of
from robo_app.recipes.recipe import Learner, require_at_least
from robo_app.sweeps.folder import SweepFolder
from robo_app.sweeps.result import conclude_sweep, confirm, fresh_seeds
from robo_app.sweeps.search import Search, optuna_library
from robo_app.sweeps.space import read_space
from robo_app.sweeps.stopping import Stopping
from robo_app.sweeps.sweep import Sweep
from robo_app.training.train_options import Train, parsed, resolved
from robo_rl.errors import require_allowed
from robo_rl.settings import plain

EXAMPLES = """robo-rl sweep arm-reach-sac --space space.yaml --trials 50 --dry-run     (check the space)
robo-rl sweep arm-reach-sac --space space.yaml --trials 50
robo-rl sweep arm-reach-sac --space space.yaml --trials 80 --confirm 5     (goes on; trains the best with 5 fresh seeds)
robo-rl sweep hopper-sac --space space.yaml --trials 30 --seeds 0-4 --steps 50000 --evaluation.every 5000"""


@dataclass(frozen=True)
class SweepOrder(Train[Learner]):
    """Recipe, search space and budget. Options of the recipe apply to all trials."""

    space: Path = tyro.MISSING
    """YAML file that gives settings of the recipe ranges or choices (docs/training/sweeps.md)."""
    trials: int = tyro.MISSING
    """Number of trials; with a larger number the sweep continues."""
    seeds: str = "0-2"
    """Training seeds of every trial, such as 0-4."""
    risk: float = 0.05
    """Chance that stopping trials early stops the best of a step, over the whole sweep; 0 stops none."""
    grace: float = 0.3
    """Share of the steps in which no trial is stopped: a slow start may still win."""
    dry_run: bool = False
    """Print the search space, or its errors, and stop."""
    confirm: int = 0
    """Then train the best again, with this many unused seeds, and evaluate it in unused episodes."""

    COMMAND: ClassVar[str] = "sweep"
    EXAMPLES: ClassVar[str] = EXAMPLES

    def __post_init__(self) -> None:
        if self.trials is not tyro.MISSING:
            require_at_least(self, {"trials": 1, "confirm": 0, "jobs": 0})
        require_allowed(self, {name: (0.0 <= getattr(self, name) < 1.0, "0 or more, below 1") for name in ("risk", "grace")})


def main(arguments: list[str]) -> int:
    """Search. The first argument names the recipe, the others override its values."""
    if not arguments or arguments[0].startswith("-"):
        print(f"usage: robo-rl sweep RECIPE --space FILE --trials N [--key value ...] [--out FOLDER]\n\n{EXAMPLES}")
        return 0 if arguments[:1] in (["-h"], ["--help"]) else 2
    order = parsed(SweepOrder, arguments[0], arguments[1:])
    optuna_library()
    recipe = resolved(order)
    space, seeds = read_space(order.space, recipe), seeds_of(order.seeds)
    if order.dry_run:
        print(f"{recipe.name}: {len(space.dimensions)} settings are searched, {order.trials} trials of {len(seeds)} seeds")
        print("\n".join(f"  {path}: {dimension}" for path, dimension in space.to_json().items()))
        return 0
    folder = SweepFolder(order.out / f"{recipe.name}-sweep", recipe.name, seeds, recipe.evaluation.every)
    with folder.held():
        asked = {
            "recipe": plain(recipe),
            "space": space.to_json(),
            "seeds": list(seeds),
            "risk": order.risk,
            "grace": order.grace,
        }
        folder.keep(asked)
        search = Search(folder.path / "journal.log", space, recipe.seed)
        rule = Stopping(order.risk, order.trials, len(seeds), recipe.total_steps, recipe.evaluation.every, order.grace)
        if rule.why_never:
            print(f"No trial is stopped early: {rule.why_never}.")
        sweep = Sweep(space, folder, search, rule)
        try:
            with trainings_at(order.ray, recipe.threads, order.jobs) as (begin, room):
                sweep.run(order.trials, room, begin)
        finally:  # finished trainings count, whatever else happened
            conclude_sweep(folder, search, rule, space)
        if order.confirm:
            confirm(folder, search, space, fresh_seeds(seeds, order.confirm), order.jobs, order.ray)
            conclude_sweep(folder, search, rule, space)
    return 0
