"""Resumable trainings: the units of seeds, experiments, comparisons of rewards and sweeps."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robo_app.arguments.options import Words
from robo_app.arguments.run_selection import runs_of
from robo_app.display.learning_curves import draw_curves
from robo_app.jobs.jobs import Begin, Job, run_jobs
from robo_rl.errors import RunError
from robo_rl.report import write_report
from robo_rl.runs.run import Run, write_text
from robo_rl.system.plain_files import parse_yaml, read_yaml

EVALUATION = "evaluation.json"
PATIENCE = 60.0
"""[s] that a run may still be written by a training of a command that was killed: it saves itself."""


@dataclass(frozen=True)
class Training:
    """Training of a recipe with a seed, and the folder of its run."""

    name: str
    """Name of the recipe; the names of its runs end with it and the seed."""
    seed: int
    words: Words
    """Recipe and options, as after `robo-rl train`."""
    runs: Path
    title: str = ""
    """Name of its job, NAME-SEED if empty."""
    counts: Callable[[Path], bool] = field(default=lambda run: True, repr=False)
    """False for a run that was made with other settings, or from other data."""

    @property
    def run(self) -> Path | None:
        """The newest run that counts."""
        return next(filter(self.counts, runs_of(self.name, self.seed, self.runs)), None)

    @property
    def finished(self) -> Path | None:
        """The run, if it has been evaluated."""
        run = self.run
        return run if run is not None and (run / EVALUATION).exists() else None

    def job(self) -> TrainingJob:
        """Return the job that starts the training, or resumes it once no other process writes its run."""
        run = self.run
        if run is None:
            words = ["train", *self.words, "--out", str(self.runs)]
        else:
            _wait_until_free(run)
            words = ["resume", str(run)]
        return TrainingJob(self.title or f"{self.name}-{self.seed}", [words], self)


@dataclass(frozen=True)
class TrainingJob(Job):
    """The job of a training."""

    training: Training


def train_all(what: str, trainings: Iterable[Training], folder: Path, *, at_once: int = 1, begin: Begin | None = None) -> None:
    """Run the unfinished trainings as `run_jobs`, with logs in FOLDER/logs."""
    missing = [training.job() for training in trainings if training.finished is None]
    run_jobs(what, missing, folder / "logs", at_once=at_once, begin=begin)


def publish(table: str, runs: Mapping[str, Sequence[Path]], folder: Path) -> None:
    """Write table.md, curves.png and report.html about runs, by method, into a folder; print the table."""
    write_text(folder / "table.md", table)
    draw_curves(runs, folder / "curves.png")
    page = write_report([run for found in runs.values() for run in found], folder / "report.html")
    print(f"{table}\nreport   {page}")


def keep_settings(path: Path, text: str, *, is_used: bool = True, fix: str = "") -> None:
    """Write the settings of a result before it is made; raises RunError if it was made with others.

    text: YAML or JSON. is_used: False until there is a result with the settings of the file.
    """
    if path.exists() and is_used:
        before, now = read_yaml(path), parse_yaml(text, str(path))
        if not isinstance(before, Mapping):
            raise RunError(f"{path} is damaged.", got=type(before).__name__, fix="take it from a copy, or name another --out")
        if before != now:
            raise other_settings(path, changed_settings(before, now), fix)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)


def changed_settings(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the leaves in which two trees differ, as dotted path -> (before, now); None stands for one that is not there."""
    old, new = flat(before), flat(now)
    return {name: (old.get(name), new.get(name)) for name in {**old, **new} if old.get(name) != new.get(name)}


def flat(tree: Mapping[str, Any], whole: Collection[str] = (), above: str = "") -> dict[str, Any]:
    """Return the leaves of a tree by dotted path, and the mappings at the paths `whole` as they are."""
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        path = f"{above}{key}"
        is_branch = isinstance(value, Mapping) and value and path not in whole
        leaves |= flat(value, whole, f"{path}.") if is_branch else {path: value}
    return leaves


def other_settings(path: Path, changed: Mapping[str, tuple[Any, Any]], fix: str = "") -> RunError:
    """Return the error for a result that was made with other settings."""
    differences = "; ".join(f"{name}: {before}, now {now}" for name, (before, now) in changed.items())
    fix = fix or f"another --out, or remove {path} and what rests on it"
    return RunError(f"{path} was made with other settings.", got=differences, fix=fix)


def _wait_until_free(run: Path) -> None:
    """Wait until no process writes the run; raise RunError after `PATIENCE`."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with Run(run):
                return
        except RunError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
