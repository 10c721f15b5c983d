"""A plan and its archive: trainings that count as finished, the table, and missing seeds."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from robo_app.display.learning_curves import Curve
from robo_app.experiments.archive import Archive
from robo_app.experiments.race import Race
from robo_app.experiments.race_table import race_facts, race_page
from robo_app.experiments.records import Record, record_of
from robo_app.experiments.results import results_page
from robo_app.experiments.study import Cell, Study
from robo_app.experiments.tables import dataset_facts, study_facts, study_page
from robo_rl.settings import plain

Plan = Study | Race


def archived(archive: Archive | None, plan: Plan, out: Path) -> dict[Cell, Record]:
    """Return the trainings of a plan that are in an archive with the plan's present settings and data.

    Only data that are in `out` are compared.
    """
    expected, content = cache(plan.expected), cache(lambda method, on: plan.content(method, on, out))
    wanted = {*plan.cells()}
    return {
        cell: record
        for cell, record in (archive.by_cell if archive else {}).items()
        if cell in wanted and record.counts(expected(*cell[:2]), content(*cell[:2]))
    }


def updated(archive: Archive | None, plan: Plan, out: Path) -> Archive:
    """Return an archive with the finished trainings of a folder; a new one if there is none.

    Trainings of the plan that were made with other settings are removed; those of methods or seeds outside of the plan stay.
    """
    expected, cells = cache(plan.expected), {*plan.cells()}
    records = archived(archive, plan, out)
    for cell, training in plan.trainings(out).items():
        run = training.finished if cell not in records else None
        if run is not None:
            records[cell] = record_of(run, cell, expected(*cell[:2]), plan.content(*cell[:2], out))
    kept = [] if archive is None else [each for each in archive.records if each.cell not in cells]
    datasets = {} if archive is None else dict(archive.datasets)
    if isinstance(plan, Study):
        datasets |= {name: dataset_facts(dataset) for name, dataset in plan.made(out).items()}
    kind = "race" if isinstance(plan, Race) else "study"
    found = Archive(plan.name, kind, json.loads(json.dumps(plain(plan))), datasets).with_records([*kept, *records.values()])
    return replace(found, table=_facts(plan, found))


def page_of(archive: Archive) -> str:
    """Return the table of an archive as Markdown."""
    if archive.kind == "results":
        return results_page(archive)
    return race_page({**archive.table}) if archive.kind == "race" else study_page(archive.table)


def curves_of(archive: Archive) -> dict[str, list[Curve]]:
    """Return method -> learning curves of its trainings; empty for a study on datasets, whose returns cannot be compared."""
    found: dict[str, list[Curve]] = defaultdict(list)
    for record in archive.records:
        points = record.curve
        if points.steps and not archive.datasets:
            values, of = (points.successes, "success") if points.successes else (points.returns, "true return")
            found[record.method].append(Curve(points.environment, points.steps, values, of))
    return dict(found)


def missing_lines(archive: Archive, plan: Plan) -> list[str]:
    """Return which seeds are missing, a line for each method and dataset or task; [] if none is."""
    missing: dict[str, list[int]] = defaultdict(list)
    cells = [*plan.cells()]
    for method, on, seed in cells:
        if (method, on, seed) not in archive.by_cell:
            missing[f"{method} on {on}" if on else method].append(seed)
    if not missing:
        return []
    count = sum(map(len, missing.values()))
    rows = [f"  {name:32} {', '.join(map(str, seeds))}" for name, seeds in missing.items()]
    return [f"{len(cells) - count} of {len(cells)} trainings are finished; missing seeds:", *rows, ""]


def _facts(plan: Plan, archive: Archive) -> Mapping[str, Any]:
    records: Mapping[Cell, Record] = archive.by_cell
    if isinstance(plan, Race):
        return race_facts(plan, records)
    complete = {name: facts for name, facts in archive.datasets.items() if name in plan.datasets}
    return study_facts(plan, {cell: record for cell, record in records.items() if cell[0] in plan.methods}, complete)
