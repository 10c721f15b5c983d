"""What going on online cost: the mean shortfall over the evaluations of the online phase."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

from robo_cli.recipe import Recipe
from robo_datasets.dataset import Dataset
from robo_datasets.figures import normalised
from robo_rl.evaluation import Evaluation
from robo_rl.runs import Run


def regret(run: Run, recipe: Recipe[Any]) -> float | None:
    """Returns the mean of 1 - success, or of 1 - normalised score / 100, over the evaluations of the online phase.

    That of Luo et al. 2024 ("D5RL") and of the CORL benchmark, in [0, 1] for success. None where there was no such phase, no
    evaluation in it, or neither a notion of success nor reference scores in the dataset's card.
    """
    if not recipe.online.steps:
        return None
    files = sorted((run.path / "evaluations").glob("[0-9]*.json"))  # others were evaluated elsewhere
    later = [Evaluation.read(file) for file in files if int(file.stem) > recipe.steps]
    shortfalls = [_shortfall(evaluation, recipe) for evaluation in later]
    known = [value for value in shortfalls if value is not None]
    return fmean(known) if known else None


def _shortfall(evaluation: Evaluation, recipe: Recipe[Any]) -> float | None:
    if evaluation.success_rate is not None:
        return 1.0 - evaluation.success_rate.estimate
    reference = Dataset(Path(recipe.demonstrations.dataset)).card.get("reference", {})
    if not {"random", "expert"} <= set(reference):
        return None
    return 1.0 - normalised(evaluation.mean_return.estimate, reference) / 100.0
