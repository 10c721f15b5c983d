"""Check that the annotating model answered throughout the training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MOST_FAILED = 0.5
"""Share of missing answers from which it is reported."""


def annotation_warnings(newest: Mapping[str, Any]) -> list[str]:
    """Returns warnings about a run, from the newest value of every tag."""
    found, labels = [], f"{newest.get('annotation/labels', 0.0):.0f} labels"
    missing = f"{newest.get('reward/missing', 0.0):.0%} of all steps had a caption without a label"
    if newest.get("annotation/stopped"):
        found.append(f"The annotator has stopped: the policy learns from the {labels} of before; {missing}.")
    if (failed := newest.get("annotation/failed", 0.0)) > MOST_FAILED:
        found.append(f"{failed:.0%} of the answers of the annotator were none: there are {labels}; {missing}.")
    return found
