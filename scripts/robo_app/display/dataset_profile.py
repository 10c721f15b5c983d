"""Profile of a dataset (`robo-rl data info`) as tables and lines of text."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

BAR = 40
MOST_NAMED = 8
"""Largest number of constant dimensions that a row names."""


def arrays_table(arrays: dict[str, Any]) -> Table:
    """Return a table with range, mean and faults (NaN, constant dimensions, ...) of each array."""
    table = Table("array", "min", "mean", "max", "std", "NaN", "infinite", "remarks", box=SIMPLE_HEAD, pad_edge=False)
    for name, facts in arrays.items():
        numbers = [f"{facts[key]:.4g}" if key in facts else "" for key in ("min", "mean", "max", "std")]
        table.add_row(name, *numbers, str(facts["nan"]), str(facts["infinite"]), _remarks(facts))
    return table


def _remarks(facts: dict[str, Any]) -> str:
    constant = facts.get("constant", [])
    named = ", ".join(map(str, constant[:MOST_NAMED])) + (", ..." if len(constant) > MOST_NAMED else "")
    remarks = [f"constant: {named}"] if constant else []
    remarks += [f"{facts['saturated']:.1%} at -1 or 1"] if "saturated" in facts else []
    return "; ".join(remarks)


def coverage_table(actors: dict[str, Any]) -> Table:
    """Return a table that shows how much of the space of states and actions each actor covered."""
    table = Table(
        "coverage by", "pairs drawn", "in bins of their own", "nearest, of unrelated", box=SIMPLE_HEAD, pad_edge=False
    )
    for actor, facts in actors.items():
        if facts is None:
            table.add_row(actor, "nothing varies", "", "")
        else:
            nearest = "" if facts["nearest"] is None else f"{facts['nearest']:.2f}"
            table.add_row(actor, str(facts["pairs"]), f"{facts['unique_bins']:.0%}", nearest)
    return table


def profile_lines(facts: dict[str, Any]) -> list[str]:
    """Return lines about the lengths, returns and ends of episodes."""
    lines = []
    for name in ("lengths", "returns"):
        spread = facts[name]
        if spread is None:
            lines.append(f"{name}: not finite")
        else:
            numbers = ", ".join(f"{key} {spread[key]:.4g}" for key in ("min", "mean", "max", "std"))
            lines.append(f"{name}: {numbers}")
    if facts["returns"] is not None:
        lines += _histogram(**facts["returns"]["histogram"])
    for name in ("ends", "acted"):
        lines.append(f"{name}: " + ", ".join(f"{key} {count}" for key, count in facts[name].items()))
    lines.append(f"terminated {facts['terminated']}, truncated {facts['truncated']}")
    return [*lines, *(f"remark: {line}" for line in facts["remarks"])]


def _histogram(counts: list[int], edges: list[float]) -> list[str]:
    most = max(counts)
    return [
        f"  {low:>10.4g} to {high:<10.4g} {'#' * round(BAR * count / most):{BAR}} {count}"
        for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
    ]
