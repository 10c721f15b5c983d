"""The folder of a sweep: what was asked, the recipes of its trials, their runs; and who may write it.

OUT/NAME-sweep/  sweep.yaml  what is searched     journal.log  of Optuna     trials/  recipes     runs/     logs/
                 report.html, table.md, sweep.json, best.yaml
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from robo_cli.jobs import Job
from robo_cli.recipe import Recipe, to_yaml
from robo_cli.sweep_stopping import Course, Score, score
from robo_cli.trainings import EVALUATION, begun, finished, training
from robo_rl.durable_files import exclusive_lock
from robo_rl.errors import RunError
from robo_rl.evaluation import Evaluation
from robo_rl.plain_files import read_yaml
from robo_rl.runs import write_text


class SweepFolder:
    """Where a sweep lies."""

    def __init__(self, path: Path, name: str, seeds: Sequence[int], every: int) -> None:
        """every: steps between evaluations."""
        self.path, self._name, self._seeds, self._every = path, name, seeds, every
        self._scores: dict[Path, Score] = {}

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keeps other sweeps out of the folder; raises RunError where one is in it."""
        (self.path / "trials").mkdir(parents=True, exist_ok=True)
        fix = "wait for it, or stop it, then give the command again"
        with exclusive_lock(self.path / "lock", RunError(f"Another process runs the sweep in {self.path}.", fix=fix)):
            yield

    def keep(self, asked: Mapping[str, Any]) -> None:
        """Writes down what is asked; raises RunError where the folder was begun with something else."""
        path = self.path / "sweep.yaml"
        if path.exists():
            before = read_yaml(path)
            if not isinstance(before, dict):
                raise RunError(
                    f"{path} is damaged.", got=type(before).__name__, fix="take it from a copy, or name another --out"
                )
            now = json.loads(json.dumps(asked))
            if changed := [key for key in now if before.get(key) != now[key]]:
                raise RunError(
                    f"The sweep in {self.path} was begun with other settings.",
                    got=f"other: {', '.join(changed)}",
                    allowed="the same, with as many or more --trials",
                    fix="another --out or --name, or remove the folder",
                )
            return
        write_text(path, yaml.safe_dump(json.loads(json.dumps(asked)), sort_keys=False, width=120))

    def name_of(self, trial: int) -> str:
        """Returns the name of the recipe of a trial."""
        return f"{self._name}-t{trial:03}"

    def write(self, trial: int, recipe: Recipe[Any]) -> None:
        """Writes the recipe of a trial."""
        write_text(self.path / "trials" / f"{self.name_of(trial)}.yaml", to_yaml(recipe))

    def job_name(self, trial: int, seed: int) -> str:
        """Returns the name of a training."""
        return f"t{trial:03}-seed-{seed}"

    def job(self, trial: int, seed: int) -> Job:
        """Returns the training of a trial with a seed, from where it is."""
        name = self.name_of(trial)
        return training(self.job_name(trial, seed), self.path / "trials" / f"{name}.yaml", name, seed, self.path / "runs")

    def run(self, trial: int, seed: int) -> Path | None:
        """Returns the run of a trial with a seed, finished or not."""
        return begun(self.name_of(trial), seed, self.path / "runs")

    def missing(self, trial: int) -> list[int]:
        """Returns the seeds of a trial that are not trained and evaluated yet."""
        return [seed for seed in self._seeds if finished(self.name_of(trial), seed, self.path / "runs") is None]

    def final(self, trial: int) -> dict[int, Score]:
        """Returns what the final evaluations of a trial found, by seed."""
        runs = {seed: finished(self.name_of(trial), seed, self.path / "runs") for seed in self._seeds}
        return {seed: self._score(run / EVALUATION) for seed, run in runs.items() if run is not None}

    def course(self, trial: int) -> Course:
        """Returns what the evaluations on the way found.

        A step is that at which an evaluation was due: trials whose steps come in batches of other sizes are compared there.
        """
        course: dict[int, dict[int, Score]] = {}
        for seed in self._seeds if self._every else ():
            if (run := self.run(trial, seed)) is not None:
                for file in sorted((run / "evaluations").glob("*.json")):
                    course.setdefault(int(file.stem) // self._every * self._every, {})[seed] = self._score(file)
        return course

    def _score(self, file: Path) -> Score:
        if file not in self._scores:
            self._scores[file] = score(Evaluation.read(file))
        return self._scores[file]
