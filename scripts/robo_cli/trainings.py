"""Trainings of a recipe file as jobs that go on where they stopped: what seeds, races and sweeps share."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from robo_cli.jobs import Job
from robo_cli.selection import runs_of
from robo_rl.errors import RunError
from robo_rl.runs import Run

EVALUATION = "evaluation.json"
PATIENCE = 60.0
"""[s] that a run may still be written by a training of a command that was killed: it saves itself."""


@dataclass(frozen=True)
class TrainingJob(Job):
    """The training of a recipe file with a seed, whose run lies in a folder, or will."""

    recipe: Path
    recipe_name: str
    seed: int
    runs: Path


def begun(name: str, seed: int, runs: Path) -> Path | None:
    """Returns the run of that recipe name and seed, the newest where there are several."""
    return next(runs_of(name, seed, runs), None)


def finished(name: str, seed: int, runs: Path) -> Path | None:
    """Returns the run if it has been evaluated."""
    found = begun(name, seed, runs)
    return found if found is not None and (found / EVALUATION).exists() else None


def training(job: str, recipe: Path, name: str, seed: int, runs: Path) -> TrainingJob:
    """Returns the job that begins the training of a recipe file, or goes on with it."""
    found = begun(name, seed, runs)
    if found is None:
        words = ["train", str(recipe), "--seed", str(seed), "--out", str(runs)]
    else:
        _let_go(found)
        words = ["resume", str(found)]
    return TrainingJob(job, [words], recipe, name, seed, runs)


def _let_go(run: Path) -> None:
    """Waits until nobody writes the run; raises RunError."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with Run(run):
                return
        except RunError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
