"""robo-rl data info: how a dataset was made, and its episodes in numbers."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from robo_app.arguments.positionals import DATASET
from robo_datasets.dataset import Dataset
from robo_datasets.figures import normalised
from robo_datasets.labels import LabelSet, label_sets
from robo_datasets.preferences import PreferenceSet, preference_sets
from robo_datasets.remarks import glance
from robo_rl.environments.levels import split_of
from robo_rl.errors import DatabaseCorrupt, EpisodeCorrupt


@dataclass(frozen=True)
class Info:
    """Describe a dataset: how it was made, episodes, returns, successes, actors, label sets."""

    dataset: DATASET
    json: bool = False
    """Print JSON."""


def info(arguments: Info) -> int:
    """Print the catalogue."""
    facts = summary_of(Dataset(arguments.dataset))
    if arguments.json:
        print(json.dumps(facts))
        return 0
    card, remarks = facts.pop("card"), facts.pop("remarks")
    for name, value in [(name, value) for name, value in facts.items() if value is not None]:
        print(f"{name:12} {_readable(value)}")
    print("card")
    for name, value in card.items():
        if name != "remarks":
            print(f"  {_readable(name):12} {_readable(value)}")
    for line in remarks:
        print(f"remark       {_readable(line)}")
    return 0


def summary_of(dataset: Dataset) -> dict[str, Any]:
    """Return the summary of a dataset without reading its episodes, but for a few to remark on."""
    entries = dataset.entries()
    judged = [entry.success for entry in entries if entry.success is not None]
    returns = [entry.episode_return for entry in entries if math.isfinite(entry.episode_return)]
    spread = {"least": min(returns), "mean": fmean(returns), "most": max(returns)} if returns else None
    missing = {"not finite": len(entries) - len(returns)} if len(returns) < len(entries) else {}
    reference = dataset.card.get("reference", {})
    can_normalise = "expert" in reference and reference["expert"] != reference["random"]
    scores = {name: normalised(value, reference) for name, value in spread.items()} if spread and can_normalise else None
    return {
        "environment": f"{dataset.spec.name}   spec {dataset.spec.fingerprint}",
        "episodes": len(entries),
        "steps": sum(entry.steps for entry in entries),
        "bytes": sum(entry.bytes for entry in entries),
        "return": (spread or {}) | missing or None,
        "score": scores,
        "success": {"episodes": sum(judged), "of": len(judged)} if judged else None,
        "ends": dict(Counter(entry.stop_reason for entry in entries).most_common()),
        "levels": levels_of(entry.seed for entry in entries if entry.seed is not None),
        "actors": dict(Counter(entry.source for entry in entries).most_common()),
        "labels": {name: _told(LabelSet(dataset, name)) for name in label_sets(dataset)},
        "preferences": {name: _told(PreferenceSet(dataset, name)) for name in preference_sets(dataset)},
        "remarks": glance(dataset),
        "card": dataset.card,
    }


def _told(found: LabelSet | PreferenceSet) -> str:
    """Return the size of a set in words; a damaged one must not hide the others."""
    try:
        return f"{len(found.labelled)} episodes" if isinstance(found, LabelSet) else f"{len([*found])} comparisons"
    except (DatabaseCorrupt, EpisodeCorrupt):
        return "damaged: `robo-rl data verify` says how"


def levels_of(seeds: Iterable[int]) -> dict[str, int] | None:
    """Return the number of levels of each split among the reset seeds of episodes; None if none is a level."""
    found = Counter(split for seed in {*seeds} if (split := split_of(seed)) is not None)
    return {str(split): count for split, count in found.items()} or None


def _readable(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{_readable(name)} {_nested(part)}" for name, part in value.items()) or "none"
    text = f"{value:.6g}" if isinstance(value, float) else f"{value}"
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)  # none that a terminal would obey


def _nested(value: object) -> str:
    return f"({_readable(value)})" if isinstance(value, dict) and value else _readable(value)
