"""Levels of evidence, computed from archives and tests: a statement may claim no higher level, and no other figures."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from robo_app.experiments.archive import Archive
from robo_app.experiments.records import record_of, scores
from robo_app.experiments.study import Claim
from robo_app.experiments.tables import LEAST_SEEDS, verdict
from robo_rl.errors import InvalidSetting, RunNotFound
from robo_rl.evidence import Evidence, Order
from robo_rl.runs.archive import resolve_archive
from robo_rl.types import Array

FIGURE = re.compile(r"\{(\w[\w ]*):([^{}@]+)(?:@([^{}]+))?\}")
"""Placeholder of a figure, such as {success:METHOD@DATASET}: outcome, method, and dataset or task."""


@cache
def archive_named(name: str, folder: Path) -> Archive:
    """Return the archive NAME.json of a folder, or the runs in NAME.zip by recipe; raises RunNotFound."""
    file, runs = folder / f"{name}.json", folder / f"{name}.zip"
    if file.exists():
        return Archive.read(file)
    if not runs.exists():
        raise RunNotFound("There is no such archive.", got=name, allowed=f"NAME of a NAME.json or NAME.zip in {folder}")
    records = []
    for run in sorted(Path(resolve_archive(str(runs))).glob("*/evaluation.json")):
        method, _, seed = run.parent.name.split("-", 2)[2].rpartition("-")
        records.append(record_of(run.parent, (method, "", int(seed)), {}))
    return Archive(name, "study").with_records(records)


def computed_level(evidence: Evidence, folder: Path) -> str:
    """Return the highest level of evidence for a method that the archive of its study bears out.

    An undecided order counts as a tie.

    Args:
        evidence: What is stated about the method, with its study and expected orders.
        folder: Folder of the archives.

    Raises:
        RunNotFound: The study has no archive in `folder`.
        InvalidSetting: The archive lacks a method.
    """
    found = {}
    for part in ("baseline", "control"):
        order: Order | None = getattr(evidence, part)
        if order is not None:
            found[part] = holds(archive_named(evidence.study, folder), order)
    if found.get("baseline") == found.get("control") == "yes" and evidence.baseline != evidence.control:
        return "proven"
    is_tie = found.get("baseline") in ("yes", "undecided")
    return "validated" if evidence.tests or is_tie else "experimental"


def holds(archive: Archive, order: Order) -> str:
    """Return whether an archive shows an order: "yes", "no" or "undecided"; "few seeds" if a method has less than three."""
    if min(seed_count(archive, method, order.on) for method in (order.better, order.than)) < LEAST_SEEDS:
        return "few seeds"
    records = {(method, order.on): archive.of(method, order.on) for method in (order.better, order.than)}
    if all(record.final for side in records.values() for record in side.values()) and all(records.values()):
        claim = Claim(order.better, order.than, share=order.share, by=order.by, fewer=order.fewer)
        return str(verdict(claim, records, order.on, _reference(archive, order.on))["holds"])
    for claimed in archive.table.get("claims", ()):
        same = (claimed["better"], claimed["than"], claimed.get("dataset", ""), claimed.get("by", "return"))
        if same == (order.better, order.than, order.on, order.by) and claimed.get("share", 1.0) == order.share:
            return str(claimed["holds"])
    better, than = (np.asarray(seed_values(archive, each, order.on, order.by)) for each in (order.better, order.than))
    first, second = (better, order.share * than) if order.fewer else (order.share * than, better)
    return _ordered(first, second)


def _ordered(first: Array, second: Array) -> str:
    """Return whether the second side is above the first, by Welch's interval over the means of seeds."""
    gain, errors = second.mean() - first.mean(), np.array([side.var(ddof=1) / len(side) for side in (first, second)])
    half = 0.0
    if errors.any():
        freedom = errors.sum() ** 2 / (errors**2 / (np.array([len(first), len(second)]) - 1)).sum()
        half = float(stats.t.ppf(0.975, freedom) * np.sqrt(errors.sum()))
    return "yes" if gain > half else "no" if gain < -half else "undecided"


def filled(evidence: Evidence, folder: Path) -> str:
    """Return a template with the figures of its archive filled in: means over seeds, success in per cent."""

    def figure(match: re.Match[str]) -> str:
        by, method, on = match[1], match[2], match[3] or ""
        archive = archive_named(evidence.study, folder)
        if by == "seeds":
            return str(seed_count(archive, method, on))
        values = seed_values(archive, method, on, by)
        mean = float(np.mean(values))
        return f"{100 * mean:.0f} %" if by == "success" else f"{mean:.0f}" if abs(mean) >= 100 else f"{mean:.3g}"

    return FIGURE.sub(figure, evidence.template) if evidence.template else evidence.sentence


def seed_count(archive: Archive, method: str, on: str) -> int:
    """Return the number of seeds of a method; 0 if the archive lacks it."""
    rows = [row for row in archive.table.get("rows", ()) if (row["method"], row["task"]) == (method, on)]
    if rows:
        return len(rows[0]["trainings"])
    return len(archive.of(method, on)) or len(_cell(archive.table, method, on).get("seeds", ()))


def seed_values(archive: Archive, method: str, on: str, by: str) -> list[float]:
    """Return the mean outcome of each seed; raises InvalidSetting if the archive lacks it."""
    records = archive.of(method, on)
    if records:
        reference = _reference(archive, on) if by == "return" else {}
        return [float(np.mean(scores(record.outcomes(by), reference))) for record in records.values()]
    known = _in_table(archive.table, method, on, by)
    if known is None:
        place = f"{by} of {method}" + (f" on {on}" if on else "")
        raise InvalidSetting(f"The archive {archive.study} lacks a figure.", got=place, allowed="what its table has")
    return [float(value) for value in known]


def _in_table(table: Mapping[str, Any], method: str, on: str, by: str) -> Sequence[float] | None:
    """Return the value of each seed from an archive's table; of a measure the mean over seeds, as a table has no more."""
    for row in table.get("rows", ()):
        if (row["method"], row["task"]) == (method, on) and by in ("success", "return"):
            return [each["final_success"] for each in row["trainings"]]
    cell = _cell(table, method, on)
    known = {"return": cell.get("scores", cell.get("returns")), "success": None if on else cell.get("success")}
    known |= {name: interval[:1] for name, interval in cell.get("measures", {}).items()}
    found = known.get(by)
    return found if found and None not in found else None


def _cell(table: Mapping[str, Any], method: str, on: str) -> Mapping[str, Any]:
    """Return the facts of a method in a table; empty if it is not there."""
    methods = table.get("datasets", {}).get(on, {}).get("methods", {}) if on else table.get("methods", {})
    found: Mapping[str, Any] = methods.get(method, {})
    return found


def _reference(archive: Archive, on: str) -> Mapping[str, float]:
    found: Mapping[str, float] = archive.datasets.get(on, {}).get("reference", {})
    return found
