"""robo-rl study: make datasets, train methods on them with several seeds, and write the table; goes on where it stopped.

A training whose settings or episodes are others now counts no more and is done anew; a source or a dataset is never replaced.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import tyro

from robo_cli.curves import draw_curves
from robo_cli.jobs import Job, run_jobs
from robo_cli.online_study import STAGES, OnlineStudy, finished, online_markdown, online_table, read_online_study
from robo_cli.recipe import require_at_least
from robo_cli.study_labels import is_labelled, is_made, require_as_made
from robo_cli.study_options import Words
from robo_cli.study_phases import Phase, phase_of
from robo_cli.study_plan import Study, has_datasets, read_study, study_file
from robo_cli.study_runs import (
    dataset_words,
    made_dataset,
    source_run,
    source_words,
    training_run,
    training_words,
)
from robo_cli.study_table import markdown, table
from robo_datasets.dataset import DESCRIPTION, Dataset
from robo_rl.evaluation import Evaluation
from robo_rl.runs import write_text

EXAMPLES = """robo-rl study offline --out studies/offline
robo-rl study offline --out studies/offline --jobs 2
robo-rl study my-study.yaml --out studies/mine --table"""
EVALUATION = "evaluation.json"


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


def run(arguments: StudyOrder) -> int:
    """Makes what is missing, in the order sources, datasets, models, labels, trainings; prints the table."""
    out = arguments.out
    if not has_datasets(study_file(arguments.study)):
        return _run_online(read_online_study(study_file(arguments.study)), arguments)
    study = read_study(arguments.study)
    out.mkdir(parents=True, exist_ok=True)
    if not arguments.table:
        for make in (_sources, _datasets, _models, *_label_stages(study), _trainings):
            _run_all(study, out, arguments.jobs, make)
    datasets = {name: made for name in study.datasets if (made := made_dataset(study, name, out)) is not None}
    runs = _finished(study, datasets, out)
    evaluations = {cell: _evaluations(each) for cell, each in runs.items()}
    phases = {(method, name): _phases(each, datasets[name].card["reference"]) for (method, name), each in runs.items()}
    facts = table(study, datasets, evaluations, phases)
    _write(out, facts, markdown(facts, list(study.methods)))
    return 0


def _run_online(study: OnlineStudy, arguments: StudyOrder) -> int:
    """Does the same for a study that learns in environments."""
    out = arguments.out
    if not arguments.table:
        for stage in STAGES:
            wanted = [Job(name, [words]) for name, words in stage(study, out).items()]
            run_jobs(f"study {study.name}", wanted, out / "logs", at_once=arguments.jobs)
    runs = finished(study, out)
    facts = online_table(study, runs)
    _write(out, facts, online_markdown(facts))
    draw_curves({method: [*found.values()] for method, found in runs.items()}, out / "curves.png")
    return 0


def _write(out: Path, facts: Mapping[str, Any], page: str) -> None:
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "table.json", json.dumps(facts, indent=1))
    write_text(out / "table.md", page)
    print(page)


def _run_all(study: Study, out: Path, jobs: int, make: Callable[[Study, Path], list[Job]]) -> None:
    """Runs the jobs of one stage."""
    run_jobs(f"study {study.name}", make(study, out), out / "logs", at_once=jobs)


def _sources(study: Study, out: Path) -> list[Job]:
    jobs = []
    for name, source in study.sources.items():
        found = source_run(study, name, out)
        jobs += _training(f"{name}-{source.seed}", source_words(study, name), out / "sources", found)
    return jobs


def _datasets(study: Study, out: Path) -> list[Job]:
    jobs = []
    for name in study.datasets:
        if made_dataset(study, name, out) is None:
            begun = ["--append"] if (out / "data" / name / DESCRIPTION).exists() else []
            jobs += [Job(name, [["record", *dataset_words(study, name, out), *begun]])]
    return jobs


def _models(study: Study, out: Path) -> list[Job]:
    folders = {name: out / "models" / name for name in study.models}
    for name, folder in folders.items():
        require_as_made(folder.with_suffix(".json"), study.models[name])
    return [Job(name, [study.models[name].command(folder)]) for name, folder in folders.items() if not is_made(folder)]


def _label_stages(study: Study) -> list[Callable[[Study, Path], list[Job]]]:
    """Returns a stage for each label set, since one may rest on another."""
    return [partial(_labels, name) for name in study.labels]


def _labels(name: str, study: Study, out: Path) -> list[Job]:
    paths = [out / "data" / dataset for dataset in study.datasets]
    for path in paths:
        require_as_made(out / "labels" / f"{path.name}--{name}.json", study.labels[name])
    missing = [path for path in paths if not is_labelled(Dataset(path), name)]
    return [Job(f"{name}--{path.name}", study.labels[name].commands(name, path, out)) for path in missing]


def _trainings(study: Study, out: Path) -> list[Job]:
    jobs = []
    for method, name, seed in study.trainings():
        dataset = Dataset(out / "data" / name)
        words, found = training_words(study, method, dataset, seed), training_run(study, method, dataset, seed, out)
        jobs += _training(f"{method}--{name}-{seed}", words, out / "runs", found)
    return jobs


def _training(name: str, words: Words, runs: Path, found: Path | None) -> list[Job]:
    """Returns what has to be done for a training: nothing, to resume the run that was found, or to begin one."""
    if found is None:
        return [Job(name, [["train", *words, "--out", str(runs)]])]
    return [] if (found / EVALUATION).exists() else [Job(name, [["resume", str(found)]])]


def _finished(study: Study, datasets: Mapping[str, Dataset], out: Path) -> Mapping[tuple[str, str], Mapping[int, Path]]:
    """Returns (method, dataset) -> seed -> run that is finished."""
    runs: dict[tuple[str, str], dict[int, Path]] = defaultdict(dict)
    for method, name, seed in study.trainings():
        found = training_run(study, method, datasets[name], seed, out) if name in datasets else None
        if found is not None and (found / EVALUATION).exists():
            runs[method, name][seed] = found
    return runs


def _evaluations(runs: Mapping[int, Path]) -> dict[int, Evaluation]:
    return {seed: Evaluation.read(run / EVALUATION) for seed, run in runs.items()}


def _phases(runs: Mapping[int, Path], reference: Mapping[str, Any]) -> dict[int, Phase]:
    return {seed: phase for seed, run in runs.items() if (phase := phase_of(run, reference)) is not None}
