"""The table of a race: at how many steps each training first succeeded often enough, and how often in the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from robo_cli.race_plan import Race
from robo_rl.evaluation import Evaluation
from robo_rl.runs import Run

Facts = dict[str, Any]


def table(race: Race, runs: Mapping[tuple[str, str, int], Path]) -> Facts:
    """Returns what is known of the trainings that are finished, by task and method."""
    rows = []
    for task in race.tasks:
        for method in race.methods:
            found = [
                _facts(runs[method, task, seed], race.success, seed) for seed in race.seeds if (method, task, seed) in runs
            ]
            rows.append({"task": task, "method": method, "trainings": found})
    return {"race": race.name, "success": race.success, "seeds": list(race.seeds), "rows": rows}


def _facts(run: Path, success: float, seed: int) -> Facts:
    final = Evaluation.read(run / "evaluation.json")
    return {
        "run": run.name,
        "seed": seed,
        "solved_at": solved_at(run, success),
        "final_success": _rate(final),
        "episodes": len(final),
        "seconds": Run(run).description.get("training_seconds"),
        "cycle_seconds": cycle_seconds(run, final),
        "human_seconds": human_seconds(run, solved_at(run, success)),
    }


def solved_at(run: Path, success: float) -> int | None:
    """Returns the step of the first evaluation in training with that success rate or a higher one; None where none had it."""
    for path in sorted((run / "evaluations").glob("*.json")):
        if _rate(Evaluation.read(path)) >= success:
            return int(path.stem)
    return None


def cycle_seconds(run: Path, evaluation: Evaluation) -> float | None:
    """Returns the mean seconds of the successful episodes; None where there are none, or time has no meaning."""
    period = Run(run).spec.action.control_period
    lengths = [length for length, success in zip(evaluation.lengths, evaluation.successes, strict=True) if success]
    return None if period is None or not lengths else float(np.mean(lengths)) * period


def human_seconds(run: Path, step: int | None) -> float | None:
    """Returns for how long a person was busy until a step, in demonstrations and corrections; None without step or person.

    Corrections are counted at the end of each training episode.
    """
    demonstrated = Run(run).description.get("demonstrated_seconds")
    if step is None or demonstrated is None:
        return None
    corrected = [line["human/seconds"] for line in Run(run).metrics() if line["step"] <= step and "human/seconds" in line]
    return float(demonstrated + (corrected[-1] if corrected else 0.0))


def _rate(evaluation: Evaluation) -> float:
    return float(np.mean([bool(success) for success in evaluation.successes]))


def markdown(facts: Facts) -> str:
    """Returns the table, a row for each task and method; a training that never solved its task is a dash."""
    seeds, columns = ", ".join(map(str, facts["seeds"])), [*COLUMNS]
    if any(each.get("human_seconds") is not None for row in facts["rows"] for each in row["trainings"]):
        columns += PERSON_COLUMNS
    heads = ["task", "method", *(head for head, _ in columns)]
    lines = [f"Steps to {facts['success']:.0%} success in evaluation, seeds {seeds}; success at the end.", ""]
    lines += [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    return "\n".join([*lines, *(_line(row, columns) for row in facts["rows"])]) + "\n"


def _line(row: Facts, columns: list[Column]) -> str:
    found = row["trainings"]
    cells = [", ".join(map(show, found)) for _, show in columns]
    return f"| {row['task']} | {row['method']} | {cells[0] or 'not yet run'} | {' | '.join(cells[1:])} |"


def _or_dash(value: float | None, words: str) -> str:
    return "—" if value is None else words.format(value)


Column = tuple[str, Callable[[Facts], str]]
"""Its head, and what it shows of a training."""
COLUMNS: tuple[Column, ...] = (
    ("steps to success", lambda each: _or_dash(each["solved_at"], "{:,}")),
    ("success at the end", lambda each: f"{each['final_success']:.0%}"),
    ("minutes", lambda each: "?" if each["seconds"] is None else f"{each['seconds'] / 60:.1f}"),
)
PERSON_COLUMNS: tuple[Column, ...] = (
    ("person's seconds to success", lambda each: _or_dash(each["human_seconds"], "{:.0f}")),
    ("cycle time [s]", lambda each: _or_dash(each["cycle_seconds"], "{:.2f}")),
)
