"""Table of a race: the step at which each training first reached the success rate of a solved task, and its final rate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from robo_app.display.markdown_tables import listed, table_lines
from robo_app.experiments.race import Race
from robo_app.experiments.records import Record
from robo_app.experiments.study import Cell
from robo_rl.evaluation.evaluation import Evaluation

Facts = dict[str, Any]


def race_facts(race: Race, records: Mapping[Cell, Record]) -> Facts:
    """Return the results of the finished trainings, by task and method, as plain values."""
    rows = []
    for task in race.tasks:
        for method in race.methods:
            found = {seed: records[method, task, seed] for seed in race.seeds if (method, task, seed) in records}
            trainings = [_facts(record, race.success) for record in found.values()]
            rows.append({"task": task, "method": method, "trainings": trainings})
    return {"race": race.name, "success": race.success, "seeds": list(race.seeds), "rows": rows}


def race_page(facts: Facts) -> str:
    """Return the table, a row for each task and method; a training that never solved its task is a dash."""
    trainings = [each for row in facts["rows"] for each in row["trainings"]]
    if trainings and all(each["final_success"] is None for each in trainings):
        return _returns_page(facts)
    heads = ["task", "method", "steps to success", "success at the end", "minutes"]
    has_person = any(each.get("human_seconds") is not None for each in trainings)
    if has_person:
        heads += ["person's seconds to success", "cycle time [s]"]
    rows = []
    for row in facts["rows"]:
        cells = zip(*(_cells(each)[: len(heads) - 2] for each in row["trainings"]), strict=True)
        shown = [", ".join(cell) for cell in cells] or ["not yet run", *[""] * (len(heads) - 3)]
        rows.append([row["task"], row["method"], *shown])
    title = f"Steps to {facts['success']:.0%} success in evaluation, seeds {', '.join(map(str, facts['seeds']))}"
    return "\n".join([f"{title}; success at the end.", "", *table_lines(heads, rows)]) + "\n"


def _returns_page(facts: Facts) -> str:
    """Return the table of tasks without success: mean returns."""
    rows = []
    for row in facts["rows"]:
        returns = [each["final_return"] for each in row["trainings"]]
        minutes = [_minutes(each) for each in row["trainings"]]
        shown = [f"{np.mean(returns):.4g}", listed(returns, ".4g"), ", ".join(minutes)] if returns else ["not yet run", "", ""]
        rows.append([row["task"], row["method"], *shown])
    title = f"Mean return of the evaluation at the end, seeds {', '.join(map(str, facts['seeds']))}"
    heads = ["task", "method", "return", "of each seed", "minutes"]
    return "\n".join([f"{title}; the tasks have no success.", "", *table_lines(heads, rows)]) + "\n"


def solved_at(record: Record, success: float) -> int | None:
    """Return the step of the first evaluation during training whose success rate is at least `success`; None without one."""
    rates = zip(record.curve.steps, record.curve.successes, strict=False)
    return next((step for step, rate in rates if rate >= success), None)


def cycle_seconds(record: Record) -> float | None:
    """Return the mean duration [s] of the successful episodes of the final evaluation.

    None if no episode succeeded, or if the record has no control period.
    """
    final, period = record.evaluation, record.figures.get("control_period")
    lengths = [length for length, success in zip(final.lengths, final.successes, strict=True) if success]
    return float(np.mean(lengths)) * period if isinstance(period, float) and lengths else None


def human_seconds(record: Record, step: int | None) -> float | None:
    """Return how long [s] a person was busy until the evaluation at `step`; None without that evaluation or a person."""
    return dict(zip(record.curve.steps, record.curve.human_seconds, strict=False)).get(step)  # type: ignore[arg-type]


def _facts(record: Record, success: float) -> Facts:
    step = solved_at(record, success)
    return {
        "run": record.run,
        "seed": record.seed,
        "solved_at": step,
        "final_success": _rate(record.evaluation),
        "final_return": float(np.mean(record.evaluation.returns)),
        "episodes": len(record.evaluation),
        "seconds": record.seconds,
        "cycle_seconds": cycle_seconds(record),
        "human_seconds": human_seconds(record, step),
    }


def _rate(evaluation: Evaluation) -> float | None:
    return None if evaluation.success_rate is None else evaluation.success_rate.estimate


def _minutes(training: Facts) -> str:
    return "?" if training["seconds"] is None else f"{training['seconds'] / 60:.1f}"


def _cells(training: Facts) -> list[str]:
    """Return the columns of a training."""
    return [
        _or_dash(training["solved_at"], "{:,}"),
        _or_dash(training["final_success"], "{:.0%}"),
        _minutes(training),
        _or_dash(training.get("human_seconds"), "{:.0f}"),
        _or_dash(training.get("cycle_seconds"), "{:.2f}"),
    ]


def _or_dash(value: float | None, words: str) -> str:
    return "—" if value is None else words.format(value)
