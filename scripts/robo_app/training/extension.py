"""Extension of a run beyond the steps of its recipe: the same learner continues."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from robo_app.jobs.trainings import EVALUATION
from robo_app.recipes.recipe import Recipe, to_yaml
from robo_rl.errors import InvalidSetting
from robo_rl.runs.run import Run, write_text

ENDED, FIRST_RECIPE = "ended", "first_recipe"
"""Keys of run.json: for the last step and the requested steps, and for the first recipe of the run."""


def is_finished(run: Run, recipe: Recipe[Any], step: int) -> bool:
    """Return whether a run with its newest checkpoint at `step` has completed the recipe's steps and was evaluated.

    Vector environments may leave a remainder of the steps.
    """
    has_ended = run.description.get(ENDED) == {"step": step, "asked": recipe.total_steps}
    return (step >= recipe.total_steps or has_ended) and (run.path / EVALUATION).exists()


def extended(run: Run, recipe: Recipe[Any], steps: int, step: int) -> Recipe[Any]:
    """Return the recipe with `steps` as its total, and store it in the run, whose final evaluation becomes an intermediate one.

    In an online phase after updates, `steps` counts both phases. step: step of the newest checkpoint.
    Raises InvalidSetting if the run has taken the steps already.
    """
    least = max(step, recipe.steps if recipe.online.steps else 0) + 1
    if steps < least:
        raise InvalidSetting(
            f"The run {run.path.name} has taken {step} steps already.",
            got=f"--steps {steps}, counted from its beginning",
            allowed=f"{least} or more",
        )
    evaluation = run.path / EVALUATION
    if evaluation.exists():
        (run.path / "evaluations").mkdir(exist_ok=True)
        write_text(run.path / "evaluations" / f"{step:010d}.json", evaluation.read_text())
    _keep_first_recipe(run)
    if recipe.online.steps:
        longer = replace(recipe, online=replace(recipe.online, steps=steps - recipe.steps))
    else:
        longer = replace(recipe, steps=steps)
    write_text(run.path / "recipe.yaml", to_yaml(longer))
    evaluation.unlink(missing_ok=True)
    return longer


def first_recipe(run: Run) -> str:
    """Return the text of a run's recipe before any extension, which determines the identities of its episodes."""
    return str(run.description.get(FIRST_RECIPE) or _recipe_file(run).read_text())


def _keep_first_recipe(run: Run) -> None:
    if FIRST_RECIPE not in run.description:
        run.describe(**{FIRST_RECIPE: _recipe_file(run).read_text()})


def _recipe_file(run: Run) -> Path:
    return run.path / "recipe.yaml"
