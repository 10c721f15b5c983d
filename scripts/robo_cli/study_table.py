"""The table of a study: normalised scores with intervals, and whether what was expected holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from robo_cli.study_phases import Phases, phase_cell, phase_rows
from robo_cli.study_plan import Study
from robo_datasets.dataset import Dataset
from robo_datasets.figures import normalised
from robo_rl.evaluation import Evaluation
from robo_rl.statistics import Comparison, Interval, paired_comparison
from robo_rl.types import Array

Evaluations = Mapping[tuple[str, str], Mapping[int, Evaluation]]
"""(method, dataset) -> seed -> evaluation of a training that is finished"""


def table(study: Study, datasets: Mapping[str, Dataset], found: Evaluations, phases: Phases) -> dict[str, Any]:
    """Returns every cell as plain values: scores of each seed, mean with interval, online phases; hashes; and the claims."""
    rows = {}
    for name, dataset in datasets.items():
        card = dataset.card
        own = _scores([entry.episode_return for entry in dataset.entries()], card["reference"])
        cells = {method: _cell(found[method, name], card["reference"]) for method in study.methods if found.get((method, name))}
        for method in cells:
            cells[method] |= {"online": phase_cell(gone_on)} if (gone_on := phases.get((method, name))) else {}
        facts = {"content": card["content"], "reference": card["reference"], "episodes": len(own), "score": float(own.mean())}
        rows[name] = facts | {"methods": cells}
    return {"study": study.name, "datasets": rows, "claims": [*_claims(study, datasets, found)]}


def markdown(facts: Mapping[str, Any], methods: Sequence[str]) -> str:
    """Returns the tables for a page; methods that went on online are in one of their own."""
    known = [(method, cell) for row in facts["datasets"].values() for method, cell in row["methods"].items()]
    offline = {method for method, cell in known if "online" not in cell}
    methods = [method for method in methods if method in offline]
    lines = ["| dataset | data | " + " | ".join(methods) + " |", "|---|---|" + "---|" * len(methods)]
    for name, row in facts["datasets"].items():
        cells = [_text(row["methods"].get(method)) for method in methods]
        lines.append(f"| {name} | {row['score']:.0f} | " + " | ".join(cells) + " |")
    lines += phase_rows(facts)
    lines += ["", "| expected | on | difference | holds |", "|---|---|---|---|"]
    for claim in facts["claims"]:
        interval = f"{claim['difference']:+.1f} [{claim['low']:+.1f}, {claim['high']:+.1f}]"
        share = claim.get("share", 1.0)
        than = claim["than"] if share == 1 else f"{share:.0%} of {claim['than']}"
        lines.append(f"| {claim['better']} > {than} | {claim['dataset']} | {interval} | {claim['holds']} |")
    lines += ["", "| dataset | content | episodes | random | expert |", "|---|---|---|---|---|"]
    for name, row in facts["datasets"].items():
        reference = row["reference"]
        ends = f"{reference['random']:.4g} | {reference['expert']:.4g}"
        lines.append(f"| {name} | {row['content'][:16]} | {row['episodes']} | {ends} |")
    return "\n".join(lines) + "\n"


def _scores(returns: Sequence[float], reference: Mapping[str, Any]) -> Array:
    return np.array([normalised(value, reference) for value in returns])


def _cell(evaluations: Mapping[int, Evaluation], reference: Mapping[str, Any]) -> dict[str, Any]:
    scores = np.array([_scores(evaluation.returns, reference) for _, evaluation in sorted(evaluations.items())])
    interval = paired_comparison(np.zeros(scores.shape[1]), scores).mean_difference  # from chance, whose score is 0
    successes = [item for evaluation in evaluations.values() for item in evaluation.successes if item is not None]
    return {
        "seeds": sorted(evaluations),
        "scores": scores.mean(1).round(2).tolist(),
        **_plain(interval),
        "success": float(np.mean(successes)) if successes else None,
    }


def _claims(study: Study, datasets: Mapping[str, Dataset], found: Evaluations) -> Any:
    for claim in study.claims:
        for name in datasets:
            sides = [found.get((method, name)) for method in (claim.than, claim.better)]
            if not name.endswith(claim.datasets) or not all(sides):
                continue
            reference = datasets[name].card["reference"]
            first, second = (np.array([_scores(each.returns, reference) for each in side.values()]) for side in sides if side)
            told = {"better": claim.better, "than": claim.than, "share": claim.share, "dataset": name}
            yield told | _verdict(paired_comparison(claim.share * first, second))


def _verdict(comparison: Comparison) -> dict[str, Any]:
    """Yes or no where the interval says so; one seed a side covers the evaluation only."""
    interval = comparison.mean_difference
    holds = "yes" if interval.low > 0 else "no" if interval.high < 0 else "undecided"
    return {"difference": interval.estimate, "low": interval.low, "high": interval.high, "holds": holds}


def _plain(interval: Interval) -> dict[str, float | None]:
    ends = {"score": interval.estimate, "low": interval.low, "high": interval.high}
    return {name: float(value) if np.isfinite(value) else None for name, value in ends.items()}


def _text(cell: Mapping[str, Any] | None) -> str:
    if cell is None:
        return ""
    ends = "" if cell["low"] is None else f" [{cell['low']:.0f}, {cell['high']:.0f}]"
    return f"{cell['score']:.0f}{ends}" + (f" ({len(cell['seeds'])})" if len(cell["seeds"]) != 3 else "")
