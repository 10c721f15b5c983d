"""Tables of a study: results of each method with intervals, and a check of the expected order.

On datasets scores are normalised, 0 for random and 100 for the expert; in environments true returns are compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from robo_app.display.markdown_tables import ends, listed, table_lines, with_ends
from robo_app.experiments.records import Record, scores
from robo_app.experiments.study import Cell, Claim, Study
from robo_datasets.dataset import Dataset
from robo_rl.evaluation.evaluation import Evaluation
from robo_rl.evaluation.statistics import paired_comparison, stratified_bootstrap
from robo_rl.types import Array

Facts = dict[str, Any]
Reference = Mapping[str, Any]
"""Returns of the random policy and of the expert, which normalise scores; empty in environments."""
LEAST_SEEDS = 3
"""Least number of trainings of each method for a judgement of an order."""


def study_facts(study: Study, records: Mapping[Cell, Record], datasets: Mapping[str, Mapping[str, Any]]) -> Facts:
    """Return the results of the finished trainings as plain values, and whether the expected order holds.

    datasets: name -> `dataset_facts`.
    """
    found = {(method, on): _by_seed(records, method, on) for method, on, _ in records}
    references = {name: facts["reference"] for name, facts in datasets.items()} or {"": {}}
    claims = [
        verdict(claim, found, name, reference)
        for claim in study.claims
        for name, reference in references.items()
        if name.endswith(claim.datasets or "") and {(claim.better, name), (claim.than, name)} <= found.keys()
    ]
    methods = {name: [method for method in study.methods if (method, name) in found] for name in references}
    if not study.datasets:
        rows = {method: _in_environment(found[method, ""]) for method in methods[""]}
        return {"study": study.name, "methods": rows, "claims": claims}
    rows = {}
    for name, facts in datasets.items():
        cells = {method: _on_dataset(found[method, name], references[name]) for method in methods[name]}
        rows[name] = {**facts, "methods": cells}
    return {"study": study.name, "datasets": rows, "claims": claims}


def dataset_facts(dataset: Dataset) -> Facts:
    """Return facts about a dataset as plain values.

    They are the digest of its content, its reference returns, its number of episodes, and their mean normalised score.
    """
    reference = dataset.card["reference"]
    own = scores([entry.episode_return for entry in dataset.entries()], reference)
    return {"content": dataset.card["content"], "reference": reference, "episodes": len(own), "score": fmean(own)}


def study_page(facts: Mapping[str, Any]) -> str:
    """Return the tables of a study as Markdown."""
    lines = _dataset_lines(facts["datasets"]) if "datasets" in facts else _environment_lines(facts["methods"])
    is_on_data = "datasets" in facts
    heads = ["expected", *(["on"] if is_on_data else []), "difference", "holds"]
    lines += ["", *table_lines(heads, [_claim_cells(claim, is_on_data=is_on_data) for claim in facts["claims"]])]
    if is_on_data:
        rows = [
            (name, row["content"][:16], str(row["episodes"]), *(f"{row['reference'][end]:.4g}" for end in ("random", "expert")))
            for name, row in facts["datasets"].items()
        ]
        lines += ["", *table_lines(["dataset", "content", "episodes", "random", "expert"], rows)]
    return "\n".join(lines) + "\n"


# on datasets


def _on_dataset(records: Mapping[int, Record], reference: Reference) -> Facts:
    found = np.array([scores(record.evaluation.returns, reference) for record in records.values()])
    interval = paired_comparison(np.zeros(found.shape[1]), found).mean_difference  # from chance, with score 0
    successes = [item for record in records.values() for item in record.evaluation.successes if item is not None]
    facts = {
        "seeds": sorted(records),
        "scores": found.mean(1).round(2).tolist(),
        **dict(zip(("score", "low", "high"), ends(interval), strict=True)),
        "success": float(np.mean(successes)) if successes else None,
    }
    phases = [phase for record in records.values() if (phase := _online_phase(record, reference)) is not None]
    return facts | ({"online": {name: [phase[name] for phase in phases] for name in phases[0]}} if phases else {})


def _online_phase(record: Record, reference: Reference) -> dict[str, float] | None:
    """Return the effect of the online phase: scores before and after it, and regret.

    None if the training had no such phase, or no evaluation at its start. Regret is defined in
    `robo_app.training.finalisation`; it is in [0, 1] if success is declared.
    """
    regret, start = (record.figures.get(name) for name in ("regret", "offline_steps"))
    at_start = dict(zip(record.curve.steps, record.curve.returns, strict=True)).get(start)  # type: ignore[call-overload]
    if not isinstance(regret, float) or at_start is None:
        return None
    (before,), after = scores([at_start], reference), fmean(scores(record.evaluation.returns, reference))
    return {name: round(value, 4) for name, value in (("before", before), ("after", after), ("regret", regret))}


def _dataset_lines(rows: Mapping[str, Facts]) -> list[str]:
    """Return the table of scores; methods with an online phase are in a separate table."""
    known = [(name, method, cell) for name, row in rows.items() for method, cell in row["methods"].items()]
    methods = dict.fromkeys(method for _, method, cell in known if "online" not in cell)
    cells = []
    for name, row in rows.items():
        cells.append([name, f"{row['score']:.0f}", *(_score_cell(row["methods"].get(method)) for method in methods)])
    lines = table_lines(["dataset", "data", *methods], cells)
    phases = [(name, method, cell["online"]) for name, method, cell in known if "online" in cell]
    if phases:
        forms = {"before": ".0f", "after": ".0f", "regret": ".3f"}
        online = [[name, method, *(_mean_of(phase[key], forms[key]) for key in forms)] for name, method, phase in phases]
        lines += ["", *table_lines(["dataset", "method", "offline", "then online", "regret"], online)]
    return lines


def _score_cell(cell: Mapping[str, Any] | None) -> str:
    if cell is None:
        return ""
    seeds = f" ({len(cell['seeds'])})" if len(cell["seeds"]) != 3 else ""
    return with_ends([cell[key] for key in ("score", "low", "high")], ".0f") + seeds


def _mean_of(values: Sequence[float], number: str) -> str:
    """Return the mean and its values as text, without an interval, for which a few values are not enough."""
    return f"{fmean(values):{number}} ({listed(values, number)})"


# in environments


def _in_environment(records: Mapping[int, Record]) -> Facts:
    evaluations = [record.evaluation for record in records.values()]
    rates = [evaluation.success_rate for evaluation in evaluations]
    return {
        "seeds": sorted(records),
        "returns": [float(np.mean(evaluation.returns)) for evaluation in evaluations],
        "success": [None if rate is None else rate.estimate for rate in rates],
        "while learning": [fmean(r.curve.returns) if r.curve.returns else None for r in records.values()],
        "measures": _measured(evaluations),
        "mean": ends(stratified_bootstrap([evaluation.returns for evaluation in evaluations], np.mean)),
    }


def _measured(evaluations: Sequence[Evaluation]) -> dict[str, list[float | None]]:
    """Return figure and interval of each measure that the evaluations have, over all of their episodes."""
    first = evaluations[0]
    values = {name: [value for each in evaluations for value in each.measured.get(name, ())] for name in first.measured}
    return {measure.name: ends(measure.interval(values)) for measure in first.measures}


def _environment_lines(rows: Mapping[str, Facts]) -> list[str]:
    """Return the table of returns, and one of the environments' measures over all episodes of all seeds."""
    heads = ["method", "return", "of each seed", "success of each seed", "mean of the evaluations while learning"]
    cells = [
        [
            method,
            with_ends(row["mean"], ".4g"),
            listed(row["returns"], ".4g"),
            listed(row["success"], ".0%"),
            listed(row["while learning"], ".4g"),
        ]
        for method, row in rows.items()
    ]
    lines = table_lines(heads, cells)
    measured = {method: row["measures"] for method, row in rows.items() if row.get("measures")}
    names = list(dict.fromkeys(name for measures in measured.values() for name in measures))
    if names:
        found = []
        for method, measures in measured.items():
            found.append([method, *(with_ends(measures.get(name, (None, None, None)), ".3g") for name in names)])
        lines += ["", *table_lines(["method", *names], found)]
    return lines


# claims


def verdict(claim: Claim, found: Mapping[tuple[str, str], Mapping[int, Record]], on: str, reference: Reference) -> Facts:
    """Return the facts of a claim: the difference with its interval, and whether the claim holds.

    It is undecided if the interval contains 0, and has "few seeds" below `LEAST_SEEDS` trainings of a method.

    found: (method, dataset or task) -> seed -> record.
    """
    better, than = (_outcomes(claim, found[method, on], reference) for method in (claim.better, claim.than))
    first, second = (better, claim.share * than) if claim.fewer else (claim.share * than, better)
    interval = paired_comparison(first, second).mean_difference
    holds = "yes" if interval.low > 0 else "no" if interval.high < 0 else "undecided"
    if min(len(first), len(second)) < LEAST_SEEDS:
        holds = "few seeds"
    row = {"better": claim.better, "than": claim.than, "share": claim.share, "by": claim.by, "fewer": claim.fewer}
    difference = {"difference": float(interval.estimate), "low": float(interval.low), "high": float(interval.high)}
    return row | ({"dataset": on} if on else {}) | difference | {"holds": holds}


def _outcomes(claim: Claim, records: Mapping[int, Record], reference: Reference) -> Array:
    """Return one row for each seed: the outcome of every episode, returns on datasets as scores."""
    found = [record.outcomes(claim.by) for record in records.values()]
    return np.array([scores(row, reference) for row in found] if claim.by == "return" else found, np.float64)


def _claim_cells(claim: Mapping[str, Any], *, is_on_data: bool) -> list[str]:
    share, by = claim.get("share", 1.0), claim.get("by", "return")
    than = claim["than"] if share == 1 else f"{share:.0%} of {claim['than']}"
    expected = f"{claim['better']} {'<' if claim.get('fewer') else '>'} {than}" + ("" if by == "return" else f", {by}")
    difference = with_ends([claim[key] for key in ("difference", "low", "high")], "+.1f" if is_on_data else "+.4g")
    return [expected, *([claim["dataset"]] if is_on_data else []), difference, claim["holds"]]


def _by_seed(records: Mapping[Cell, Record], method: str, on: str) -> dict[int, Record]:
    return {seed: record for (name, place, seed), record in sorted(records.items()) if (name, place) == (method, on)}
