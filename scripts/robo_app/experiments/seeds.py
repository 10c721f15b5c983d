"""robo-rl train --seeds: one recipe with several concurrent seeds, each in its own process; resumable.

OUT/NAME-seeds/  recipe.yaml      logs/  output of each seed      runs/  report.html, table.md, curves.png
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from robo_app.cluster.cluster_training import trainings_at
from robo_app.display.markdown_tables import table_lines
from robo_app.jobs.trainings import EVALUATION, Training, keep_settings, publish, train_all
from robo_app.recipes.recipe import Recipe, to_yaml
from robo_app.recipes.required_files import require_needs
from robo_rl.errors import InvalidSetting
from robo_rl.evaluation.evaluation import Evaluation
from robo_rl.evaluation.statistics import student_interval

PART = re.compile(r"(\d+)(?:-(\d+))?")
MOST = 1000


def seeds_of(text: str) -> tuple[int, ...]:
    """Return the seeds of a text such as "0-9" or "0,3,7-9"; raises InvalidSetting."""
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
    """Train the missing seeds, then print one table and write one report.

    at_once: concurrent trainings; 0 for the number that the cores allow. cluster: address, "" for local processes.
    """
    require_needs(recipe)
    folder = out / f"{recipe.name}-seeds"
    file, runs = folder / "recipe.yaml", folder / "runs"
    is_used, fix = any(runs.glob("*")), "another --out or --name, or remove it"
    keep_settings(file, to_yaml(replace(recipe, seed=0)), is_used=is_used, fix=fix)
    trainings = [Training(recipe.name, seed, [str(file), "--seed", str(seed)], runs, title=f"seed-{seed}") for seed in seeds]
    try:
        with trainings_at(cluster, recipe.threads, at_once) as (begin, room):
            train_all(recipe.name, trainings, folder, at_once=room, begin=begin)
    finally:  # finished trainings count, whatever else failed
        finished = {training.seed: run for training in trainings if (run := training.finished) is not None}
        if finished:
            text = table({seed: Evaluation.read(run / EVALUATION) for seed, run in finished.items()})
            publish(text, {recipe.name: [*finished.values()]}, folder)
    return 0


def table(evaluations: dict[int, Evaluation]) -> str:
    """Return a Markdown table with a row for each training seed, then means over the seeds.

    The intervals of the means cover the chance of training.
    """
    rows = []
    for seed, one in evaluations.items():
        rate = "–" if one.success_rate is None else f"{one.success_rate.estimate:.0%}"
        rows.append([str(seed), rate, f"{one.mean_return.estimate:.4g}", f"{np.mean(one.lengths):.4g}"])
    found = [*evaluations.values()]
    rates = [one.success_rate.estimate for one in found if one.success_rate is not None]
    success = f"{student_interval(rates).within(0.0, 1.0):.0%}" if len(rates) == len(found) else "–"
    returns = student_interval([one.mean_return.estimate for one in found])
    rows.append(["mean [95 %]", success, f"{returns:.4g}", ""])
    lines = table_lines(["seed", "success", "return", "length"], rows)
    lines += ["", f"{len(found)} training seeds, {sum(map(len, found))} episodes; Student's intervals over training seeds."]
    return "\n".join(lines) + "\n"
