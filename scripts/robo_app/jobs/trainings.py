"""Resumable trainings: the parts of several seeds, experiments, comparisons of rewards and sweeps."""

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
"""Time to wait for a run that another process still writes [s]: the training of a killed command saves itself first."""


@dataclass(frozen=True)
class Training:
    """Training of one recipe with one seed, and the folder that holds its run."""

    name: str
    """Name of the recipe; the name of a run ends with it and with the seed."""
    seed: int
    words: Words
    """Recipe and options, as one writes them after `robo-rl train`."""
    runs: Path
    """Folder in which the training makes its run folder."""
    title: str = ""
    """Name of its job; NAME-SEED if empty."""
    counts: Callable[[Path], bool] = field(default=lambda run: True, repr=False)
    """Function of a run's folder: False for a run that is not this training, having other settings or data."""

    @property
    def run(self) -> Path | None:
        """Folder of the newest run for which `counts` is True; None if there is none."""
        return next(filter(self.counts, runs_of(self.name, self.seed, self.runs)), None)

    @property
    def finished(self) -> Path | None:
        """Folder of that run if it has been evaluated, else None."""
        run = self.run
        return run if run is not None and (run / EVALUATION).exists() else None

    def job(self) -> TrainingJob:
        """Return the job that starts the training, or resumes it.

        Before a resume it waits until no other process writes the run; raises RunError after `PATIENCE`.
        """
        run = self.run
        if run is None:
            words = ["train", *self.words, "--out", str(self.runs)]
        else:
            _wait_until_free(run)
            words = ["resume", str(run)]
        return TrainingJob(self.title or f"{self.name}-{self.seed}", [words], self)


@dataclass(frozen=True)
class TrainingJob(Job):
    """Job that carries out a training."""

    training: Training


def train_all(what: str, trainings: Iterable[Training], folder: Path, *, at_once: int = 1, begin: Begin | None = None) -> None:
    """Run the trainings that are not finished, at most `at_once` of them concurrently.

    Args:
        what: Name of the whole in messages, such as "study offline".
        trainings: The trainings; those that are evaluated already are left out.
        folder: Folder whose `logs` gets one file for each training.
        at_once: Number of trainings that run at a time.
        begin: Function that starts a job, such as on a cluster; None starts a process on this machine.

    Raises:
        RunError: A training failed (raised after all of them have ended), or another process keeps writing its run.
    """
    missing = [training.job() for training in trainings if training.finished is None]
    run_jobs(what, missing, folder / "logs", at_once=at_once, begin=begin)


def publish(table: str, runs: Mapping[str, Sequence[Path]], folder: Path) -> None:
    """Write table.md, curves.png and report.html about runs into a folder, and print the table.

    table: Markdown. runs: name of a method -> the folders of its runs.
    """
    write_text(folder / "table.md", table)
    draw_curves(runs, folder / "curves.png")
    page = write_report([run for found in runs.values() for run in found], folder / "report.html")
    print(f"{table}\nreport   {page}")


def keep_settings(path: Path, text: str, *, is_used: bool = True, fix: str = "") -> None:
    """Write the settings of a result into a file before the result is made.

    Args:
        path: The file.
        text: The settings, YAML or JSON.
        is_used: Whether a result was made with the settings in the file already; if not, the file is written anew.
        fix: Remedy in the error; empty for the usual one.

    Raises:
        RunError: The file holds other settings, with which a result was made, or it is damaged.
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
    """Return the values that differ between two nested mappings: dotted path -> (before, now), None for a missing one."""
    old, new = flat(before), flat(now)
    return {name: (old.get(name), new.get(name)) for name in {**old, **new} if old.get(name) != new.get(name)}


def flat(tree: Mapping[str, Any], whole: Collection[str] = (), above: str = "") -> dict[str, Any]:
    """Return the values of a nested mapping by dotted path. Mappings at the paths in `whole` are kept as they are."""
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
