"""Folder of a sweep: its settings, the recipes and runs of its trials, and a lock.

OUT/NAME-sweep/  sweep.yaml  search space     journal.log  of Optuna     trials/  recipes     runs/     logs/
                 report.html, table.md, sweep.json, best.yaml
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from robo_app.jobs.trainings import EVALUATION, Training, keep_settings
from robo_app.recipes.recipe import Recipe, to_yaml
from robo_app.sweeps.stopping import Course, Score, score
from robo_rl.errors import RunError
from robo_rl.evaluation.evaluation import Evaluation
from robo_rl.runs.run import Run, write_text
from robo_rl.system.durable_files import exclusive_lock


class SweepFolder:
    """Reads and writes the folder of a sweep. A trial is a number; it has a recipe, and a training for each seed."""

    def __init__(self, path: Path, name: str, seeds: Sequence[int], every: int) -> None:
        """Use a folder.

        Args:
            path: The folder.
            name: Name of the recipe.
            seeds: Training seeds of each trial.
            every: Steps between evaluations; 0 for none.
        """
        self.path, self._name, self._seeds, self._every = path, name, seeds, every
        self._scores: dict[Path, Score] = {}

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the folder inside the block; raises RunError if another process has locked it."""
        (self.path / "trials").mkdir(parents=True, exist_ok=True)
        fix = "wait for it, or stop it, then give the command again"
        with exclusive_lock(self.path / "lock", RunError(f"Another process runs the sweep in {self.path}.", fix=fix)):
            yield

    def keep(self, asked: Mapping[str, Any]) -> None:
        """Write the settings of the sweep; raises RunError if the folder has other ones."""
        text = yaml.safe_dump(json.loads(json.dumps(asked)), sort_keys=False, width=120)
        keep_settings(self.path / "sweep.yaml", text, fix="another --out or --name, or remove the folder")

    def name_of(self, trial: int) -> str:
        """Return the name of the recipe of a trial."""
        return f"{self._name}-t{trial:03}"

    def write(self, trial: int, recipe: Recipe[Any]) -> None:
        """Write the recipe of a trial to its file in the folder of the sweep."""
        write_text(self._file(trial), to_yaml(recipe))

    def training(self, trial: int, seed: int) -> Training:
        """Return the training of a trial with a seed."""
        words = [str(self._file(trial)), "--seed", str(seed)]
        return Training(self.name_of(trial), seed, words, self.path / "runs", title=f"t{trial:03}-seed-{seed}")

    def missing(self, trial: int) -> list[int]:
        """Return the seeds of a trial that are not trained and evaluated yet."""
        return [seed for seed in self._seeds if self.training(trial, seed).finished is None]

    def final(self, trial: int) -> dict[int, Score]:
        """Return seed -> score of the final evaluation, for the seeds of a trial that are finished."""
        runs = {seed: self.training(trial, seed).finished for seed in self._seeds}
        return {seed: self._score(run / EVALUATION) for seed, run in runs.items() if run is not None}

    def course(self, trial: int) -> Course:
        """Return the scores of a trial's evaluations during training: step -> seed -> score.

        The step is the one at which the evaluation was due, so that trials with different batch sizes have equal steps.
        """
        course: dict[int, dict[int, Score]] = {}
        for seed in self._seeds if self._every else ():
            if (run := self.training(trial, seed).run) is not None:
                for step, file in Run(run).evaluation_files.items():
                    course.setdefault(step // self._every * self._every, {})[seed] = self._score(file)
        return course

    def _file(self, trial: int) -> Path:
        return self.path / "trials" / f"{self.name_of(trial)}.yaml"

    def _score(self, file: Path) -> Score:
        if file not in self._scores:
            self._scores[file] = score(Evaluation.read(file))
        return self._scores[file]
