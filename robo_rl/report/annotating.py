"""Warnings for a report if the model behind a reward did not answer throughout the training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MOST_MISSING = 0.5
"""Share of missing answers, rewards or subgoals above which a warning is given."""


def annotation_warnings(newest: Mapping[str, Any]) -> list[str]:
    """Return warnings about a run, given the newest value of each log tag."""
    found, labels = [], f"{newest.get('annotation/labels', 0.0):.0f} labels"
    if "annotation/captions" in newest:
        labels += f" of {newest['annotation/captions']:.0f} captions"
    share = newest.get("reward/missing", 0.0)
    missing = f"{share:.0%} of all steps had a caption without a label"
    if newest.get("annotation/stopped"):
        found.append(f"The annotator has stopped: the policy learns from the {labels} of before; {missing}.")
    if (failed := newest.get("annotation/failed", 0.0)) > MOST_MISSING:
        ends = _ends(newest, "annotation")
        found.append(f"{failed:.0%} of the answers of the annotator were none: there are {labels}; {missing}{ends}.")
    if share > MOST_MISSING and not found:
        known = f" ({labels})" if "annotation/labels" in newest else ""
        found.append(f"{share:.0%} of all steps had no reward of the model{known}: the policy has hardly learned from it.")
    levels, without = newest.get("subgoals/levels", 0.0), newest.get("subgoals/missing", 0.0)
    if levels and without / levels > MOST_MISSING:
        ends = _ends(newest, "subgoals")
        found.append(
            f"{levels - without:.0f} of {levels:.0f} levels have subgoals{ends}: the policy has hardly learned from them."
        )
    return found


def _ends(newest: Mapping[str, Any], part: str) -> str:
    """Return the status counts of one part of the log, such as ": 3 cut, 1 refused"; empty if there are none."""
    start = f"{part}/status_"
    counts = {tag.removeprefix(start).replace("_", " "): value for tag, value in newest.items() if tag.startswith(start)}
    ends = ", ".join(f"{value:.0f} {status}" for status, value in sorted(counts.items(), key=lambda each: -each[1]) if value)
    return f": {ends}" if ends else ""
