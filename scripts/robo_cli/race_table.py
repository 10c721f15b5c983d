"""The table of a race: at how many steps each training first succeeded often enough, and how often in the end."""

from __future__ import annotations

import json
from collections.abc import Mapping
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
    final = Evaluation.from_json(json.loads((run / "evaluation.json").read_text()))
    return {
        "run": run.name,
        "seed": seed,
        "solved_at": solved_at(run, success),
        "final_success": _rate(final),
        "episodes": len(final),
        "seconds": Run(run).description.get("training_seconds"),
    }


def solved_at(run: Path, success: float) -> int | None:
    """Returns the step of the first evaluation in training with that success rate or a higher one; None where none had it."""
    for path in sorted((run / "evaluations").glob("*.json")):
        if _rate(Evaluation.from_json(json.loads(path.read_text()))) >= success:
            return int(path.stem)
    return None


def _rate(evaluation: Evaluation) -> float:
    return float(np.mean([bool(success) for success in evaluation.successes]))


def markdown(facts: Facts) -> str:
    """Returns the table, a row for each task and method; a training that never solved its task is a dash."""
    seeds = ", ".join(map(str, facts["seeds"]))
    lines = [f"Steps to {facts['success']:.0%} success in evaluation, seeds {seeds}; success at the end.", ""]
    lines += ["| task | method | steps to success | success at the end | minutes |", "|---|---|---|---|---|"]
    return "\n".join([*lines, *(_line(row) for row in facts["rows"])]) + "\n"


def _line(row: Facts) -> str:
    found = row["trainings"]
    steps = ", ".join("—" if each["solved_at"] is None else f"{each['solved_at']:,}" for each in found)
    final = ", ".join(f"{each['final_success']:.0%}" for each in found)
    minutes = ", ".join("?" if each["seconds"] is None else f"{each['seconds'] / 60:.1f}" for each in found)
    return f"| {row['task']} | {row['method']} | {steps or 'not yet run'} | {final} | {minutes} |"
