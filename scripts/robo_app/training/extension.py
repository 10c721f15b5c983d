"""Train a run longer than its recipe said: the same learner goes on from where it ended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from robo_app.jobs.trainings import EVALUATION
from robo_app.recipes.recipe import Recipe, to_yaml
from robo_rl.errors import InvalidSetting
from robo_rl.runs.run import Run, write_text

ENDED, FIRST_RECIPE = "ended", "first_recipe"
"""Keys of run.json: where the training ended and what was asked for; the recipe that the run began with."""


def is_finished(run: Run, recipe: Recipe[Any], step: int) -> bool:
    """Returns whether a run whose newest checkpoint is of `step` took the recipe's steps and was evaluated.

    Environments that step together may leave some of the steps over.
    """
    has_ended = run.description.get(ENDED) == {"step": step, "asked": recipe.total_steps}
    return (step >= recipe.total_steps or has_ended) and (run.path / EVALUATION).exists()


def extended(run: Run, recipe: Recipe[Any], steps: int, step: int) -> Recipe[Any]:
    """Returns the recipe with `steps` in all, and keeps it in the run; its final evaluation becomes one on the way.

    A run that goes on online has its updates behind it: the steps are those of both phases. step: of the newest checkpoint.
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
    online = replace(recipe.online, steps=steps - recipe.steps)
    longer = replace(recipe, online=online) if recipe.online.steps else replace(recipe, steps=steps)
    write_text(run.path / "recipe.yaml", to_yaml(longer))
    evaluation.unlink(missing_ok=True)
    return longer


def first_recipe(run: Run) -> str:
    """Returns the text of the recipe that a run began with, from which the identities of its episodes follow."""
    return str(run.description.get(FIRST_RECIPE) or _recipe_file(run).read_text())


def _keep_first_recipe(run: Run) -> None:
    if FIRST_RECIPE not in run.description:
        run.describe(**{FIRST_RECIPE: _recipe_file(run).read_text()})


def _recipe_file(run: Run) -> Path:
    return run.path / "recipe.yaml"
