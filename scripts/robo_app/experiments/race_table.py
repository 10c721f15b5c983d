"""The table of a race: at how many steps each training first succeeded often enough, and how often in the end."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from robo_app.display.markdown_tables import table_lines
from robo_app.experiments.race import Race
from robo_app.experiments.study import Cell
from robo_app.jobs.trainings import EVALUATION
from robo_rl.evaluation.evaluation import Evaluation
from robo_rl.runs.run import Run

Facts = dict[str, Any]


def race_facts(race: Race, runs: Mapping[Cell, Path]) -> Facts:
    """Return the results of the finished trainings, by task and method, as plain values."""
    rows = []
    for task in race.tasks:
        for method in race.methods:
            found = {seed: runs[method, task, seed] for seed in race.seeds if (method, task, seed) in runs}
            trainings = [_facts(run, race.success, seed) for seed, run in found.items()]
            rows.append({"task": task, "method": method, "trainings": trainings})
    return {"race": race.name, "success": race.success, "seeds": list(race.seeds), "rows": rows}


def race_page(facts: Facts) -> str:
    """Return the table, a row for each task and method; a training that never solved its task is a dash."""
    heads = ["task", "method", "steps to success", "success at the end", "minutes"]
    has_person = any(each.get("human_seconds") is not None for row in facts["rows"] for each in row["trainings"])
    if has_person:
        heads += ["person's seconds to success", "cycle time [s]"]
    rows = []
    for row in facts["rows"]:
        cells = zip(*(_cells(each)[: len(heads) - 2] for each in row["trainings"]), strict=True)
        shown = [", ".join(cell) for cell in cells] or ["not yet run", *[""] * (len(heads) - 3)]
        rows.append([row["task"], row["method"], *shown])
    title = f"Steps to {facts['success']:.0%} success in evaluation, seeds {', '.join(map(str, facts['seeds']))}"
    return "\n".join([f"{title}; success at the end.", "", *table_lines(heads, rows)]) + "\n"


def solved_at(run: Path, success: float) -> int | None:
    """Return the step of the first evaluation in training with that success rate or a higher one; None without one."""
    evaluations = Run(run).evaluation_files.items()
    return next((step for step, file in evaluations if _rate(Evaluation.read(file)) >= success), None)


def cycle_seconds(run: Path, evaluation: Evaluation) -> float | None:
    """Return the mean seconds of the successful episodes; None without one, or if time has no meaning."""
    period = Run(run).spec.action.control_period
    lengths = [length for length, success in zip(evaluation.lengths, evaluation.successes, strict=True) if success]
    return None if period is None or not lengths else float(np.mean(lengths)) * period


def human_seconds(run: Path, step: int | None) -> float | None:
    """Return for how long a person was busy until a step, in demonstrations and corrections; None without step or person.

    Corrections are counted at the end of each training episode.
    """
    demonstrated = Run(run).description.get("demonstrated_seconds")
    if step is None or demonstrated is None:
        return None
    corrected = [line["human/seconds"] for line in Run(run).metrics() if line["step"] <= step and "human/seconds" in line]
    return float(demonstrated + (corrected[-1] if corrected else 0.0))


def _facts(run: Path, success: float, seed: int) -> Facts:
    final, step = Evaluation.read(run / EVALUATION), solved_at(run, success)
    return {
        "run": run.name,
        "seed": seed,
        "solved_at": step,
        "final_success": _rate(final),
        "episodes": len(final),
        "seconds": Run(run).description.get("training_seconds"),
        "cycle_seconds": cycle_seconds(run, final),
        "human_seconds": human_seconds(run, step),
    }


def _rate(evaluation: Evaluation) -> float:
    return float(np.mean([bool(success) for success in evaluation.successes]))


def _cells(training: Facts) -> list[str]:
    """Return the columns of a training."""
    return [
        _or_dash(training["solved_at"], "{:,}"),
        f"{training['final_success']:.0%}",
        "?" if training["seconds"] is None else f"{training['seconds'] / 60:.1f}",
        _or_dash(training.get("human_seconds"), "{:.0f}"),
        _or_dash(training.get("cycle_seconds"), "{:.2f}"),
    ]


def _or_dash(value: float | None, words: str) -> str:
    return "—" if value is None else words.format(value)
