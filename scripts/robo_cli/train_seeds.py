"""robo-rl train --seeds: one recipe with several seeds side by side, each in a process of its own; goes on where it stopped.

OUT/NAME-seeds/  recipe.yaml  what is trained      logs/  what each seed printed      runs/  report.html, table.md, curves.png
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from robo_cli.cluster_training import trainings_at
from robo_cli.curves import draw_curves
from robo_cli.jobs import run_jobs
from robo_cli.needs import require_needs
from robo_cli.recipe import Recipe, to_yaml
from robo_cli.trainings import EVALUATION, finished, training
from robo_rl.errors import InvalidSetting, RunError
from robo_rl.evaluation import Evaluation
from robo_rl.report import write_report
from robo_rl.runs import write_text
from robo_rl.statistics import student_interval

PART = re.compile(r"(\d+)(?:-(\d+))?")
MOST = 1000


def seeds_of(text: str) -> tuple[int, ...]:
    """Returns the seeds of "0-9" or "0,3,7-9"; raises InvalidSetting."""
    seeds: list[int] = []
    for part in text.split(","):
        found = PART.fullmatch(part.strip())
        if not found:
            raise _wrong_seeds(f"{part.strip()!r} is not a seed or a range of seeds", text)
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first:
            raise _wrong_seeds(f"the range {part.strip()} goes downwards", text, f"{last}-{first}")
        if last - first >= MOST or len(seeds) + last - first >= MOST:
            raise _wrong_seeds(f"{text} is too many", text)
        seeds += range(first, last + 1)
    if twice := [seed for seed, count in Counter(seeds).items() if count > 1]:
        raise _wrong_seeds(f"the seed {twice[0]} is named twice", text)
    return tuple(seeds)


def _wrong_seeds(why: str, text: str, instead: str = "0-9") -> InvalidSetting:
    allowed = f"numbers from 0 and ranges upwards, such as 0-9 or 0,3,7-9, {MOST} at most, each once"
    return InvalidSetting(f"--seeds cannot be read: {why}.", got=repr(text), allowed=allowed, fix=f"--seeds {instead}")


def train_seeds(recipe: Recipe[Any], seeds: Sequence[int], out: Path, at_once: int = 0, cluster: str = "") -> int:
    """Trains what is missing, then prints one table and writes one report.

    at_once: trainings side by side; 0 for as many as there are cores for. cluster: where, "" for processes here.
    """
    require_needs(recipe)
    folder = out / f"{recipe.name}-seeds"
    _keep(recipe, folder)
    name, file, kept = recipe.name, folder / "recipe.yaml", folder / "runs"
    missing = [training(f"seed-{seed}", file, name, seed, kept) for seed in seeds if finished(name, seed, kept) is None]
    try:
        with trainings_at(cluster, recipe.threads, at_once) as (begin, room):
            run_jobs(recipe.name, missing, folder / "logs", at_once=room, begin=begin)
    finally:  # what is finished counts, whatever else failed
        runs = {seed: run for seed in seeds if (run := finished(name, seed, kept)) is not None}
        if runs:
            _conclude(recipe, runs, folder)
    return 0


def _keep(recipe: Recipe[Any], folder: Path) -> None:
    """Writes down what is trained; raises RunError where other seeds of the folder were trained with other settings."""
    path, words = folder / "recipe.yaml", to_yaml(replace(recipe, seed=0))
    if path.exists() and path.read_text() != words and any((folder / "runs").glob("*")):
        raise RunError(
            f"The seeds in {folder} were trained with other settings.", got=path, fix="another --out or --name, or remove it"
        )
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    write_text(path, words)


def _conclude(recipe: Recipe[Any], runs: dict[int, Path], folder: Path) -> None:
    evaluations = {seed: Evaluation.read(run / EVALUATION) for seed, run in runs.items()}
    text = table(evaluations)
    write_text(folder / "table.md", text)
    draw_curves({recipe.name: [*runs.values()]}, folder / "curves.png")
    page = write_report([*runs.values()], folder / "report.html")
    print(f"{text}\nreport   {page}")


def table(evaluations: dict[int, Evaluation]) -> str:
    """Returns a row for each seed, and the means over seeds with intervals that cover training."""
    lines = ["| seed | success | return | length |", "|---|---|---|---|"]
    for seed, each in evaluations.items():
        rate = "–" if each.success_rate is None else f"{each.success_rate.estimate:.0%}"
        lines.append(f"| {seed} | {rate} | {each.mean_return.estimate:.4g} | {np.mean(each.lengths):.4g} |")
    found = [*evaluations.values()]
    rates = [each.success_rate.estimate for each in found if each.success_rate is not None]
    success = f"{student_interval(rates).within(0.0, 1.0):.0%}" if len(rates) == len(found) else "–"
    returns = student_interval([each.mean_return.estimate for each in found])
    lines.append(f"| mean [95 %] | {success} | {returns:.4g} | |")
    lines += ["", f"{len(found)} training seeds, {sum(map(len, found))} episodes; Student's intervals over training seeds."]
    return "\n".join(lines) + "\n"
