"""robo-rl study: make datasets, train methods on them with several seeds, and write the table; goes on where it stopped."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from robo_cli.display import display
from robo_cli.recipe import read_recipe, require_at_least
from robo_cli.study_plan import Study, options, read_study
from robo_cli.study_table import finished, has_learnt_from, markdown, table
from robo_datasets.dataset import DESCRIPTION, Dataset
from robo_rl.errors import RunError
from robo_rl.runs import Run, write_text

EXAMPLES = """robo-rl study offline --out studies/offline
robo-rl study offline --out studies/offline --jobs 2
robo-rl study my-study.yaml --out studies/mine --table"""
PYTHON = [sys.executable, "-m", "robo_cli.main"]


@dataclass(frozen=True)
class StudyOrder:
    """Train several methods on several datasets with several seeds, and compare them; stop it at any time and go on."""

    study: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="STUDY")]
    """Name of a study that comes with the package, or a YAML file."""
    out: Path
    """Folder for everything it makes; what is there already is not made again."""
    jobs: int = 1
    """Trainings at once, one thread each."""
    table: bool = False
    """Only write the table of what is finished."""

    def __post_init__(self) -> None:
        require_at_least(self, {"jobs": 1})


@dataclass(frozen=True)
class Job:
    """A command that makes one thing."""

    name: str
    command: Sequence[str]


def run(arguments: StudyOrder) -> int:
    """Makes what is missing, in the order sources, datasets, trainings; prints the table."""
    study, out = read_study(arguments.study), arguments.out
    out.mkdir(parents=True, exist_ok=True)
    if not arguments.table:
        for make in (_sources, _datasets, _trainings):
            _run_all(study, out, arguments.jobs, make)
    datasets = {name: Dataset(out / "data" / name) for name in study.datasets if _is_made(out, name)}
    facts = table(study, datasets, finished(out / "runs", datasets))
    write_text(out / "table.json", json.dumps(facts, indent=1))
    write_text(out / "table.md", markdown(facts, list(study.methods)))
    print((out / "table.md").read_text())
    return 0


def _run_all(study: Study, out: Path, jobs: int, make: Callable[[Study, Path], list[Job]]) -> None:
    """Runs the jobs of one stage side by side; raises RunError, after all others, where one failed."""
    wanted = make(study, out)
    (out / "logs").mkdir(parents=True, exist_ok=True)
    failed: list[str] = []
    with display(f"study {study.name}", len(wanted), "jobs") as shown, ThreadPoolExecutor(jobs) as pool:
        for done, (job, status) in enumerate(pool.map(lambda job: (job, _run(job, out / "logs")), wanted), 1):
            failed += [job.name] if status else []
            shown.say(f"{job.name}: {'failed' if status else 'done'}")
            shown.update(done, {})
    if failed:
        logs = ", ".join(str(out / "logs" / f"{name}.log") for name in failed)
        raise RunError(
            f"{len(failed)} of {len(wanted)} jobs failed.", got=logs, fix="read these logs, then run the study again"
        )


def _run(job: Job, logs: Path) -> int:
    with (logs / f"{job.name}.log").open("w") as log:
        return subprocess.run([*PYTHON, *job.command], stdout=log, stderr=log, stdin=subprocess.DEVNULL, check=False).returncode


def _sources(study: Study, out: Path) -> list[Job]:
    jobs = []
    for name, source in study.sources.items():
        command = ["train", source.recipe, "--seed", str(source.seed), "--record-episodes", *options(source.settings)]
        jobs += _training(name, source.seed, command, out / "sources", _run_of(name, source.seed, out / "sources"))
    return jobs


def _datasets(study: Study, out: Path) -> list[Job]:
    jobs = []
    for name, data in study.datasets.items():
        source = study.sources[data.source]
        trained, path = _run_of(data.source, source.seed, out / "sources"), out / "data" / name
        settings = {"family": data.family, "run": str(trained), "out": str(path)}
        settings |= {"episodes": data.episodes} if data.episodes else {}
        settings |= {"expert": data.expert} if data.expert else {}
        begun = ["--append"] if (path / DESCRIPTION).exists() else []
        command = ["record", read_recipe(source.recipe).environment.name, *options(settings), *begun]
        jobs += [] if _is_made(out, name) else [Job(name, command)]
    return jobs


def _trainings(study: Study, out: Path) -> list[Job]:
    jobs = []
    datasets = {name: Dataset(out / "data" / name) for name in study.datasets}
    for method, name, seed in study.trainings():
        settings = study.settings_of(method, name, datasets[name].card)
        command = ["train", study.methods[method].recipe, "--dataset", str(out / "data" / name), "--seed", str(seed)]
        found = _run_of(f"{method}--{name}", seed, out / "runs")
        if found is not None and not has_learnt_from(Run(found), datasets[name]):
            found = None  # from other episodes, before the dataset was made again
        jobs += _training(f"{method}--{name}", seed, command + options(settings), out / "runs", found)
    return jobs


def _training(name: str, seed: int, command: list[str], runs: Path, path: Path | None) -> list[Job]:
    """Returns what has to be done for a training: nothing, to resume the run at `path`, or to begin one."""
    if path is None:
        return [Job(f"{name}-{seed}", [*command, "--name", name, "--out", str(runs)])]
    return [] if (path / "evaluation.json").exists() else [Job(f"{name}-{seed}", ["resume", str(path)])]


def _run_of(name: str, seed: int, runs: Path) -> Path | None:
    """Returns the newest run of that name and seed."""
    found = sorted(runs.glob(f"*-*-{name}-{seed}/recipe.yaml"))
    return found[-1].parent if found else None


def _is_made(out: Path, name: str) -> bool:
    """Returns whether a dataset is there and complete: its card then says what came of it."""
    return (out / "data" / name / DESCRIPTION).exists() and "content" in Dataset(out / "data" / name).card
