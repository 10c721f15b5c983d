"""Tables of experiments for pages: rows of text, intervals, one value for each seed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from robo_rl.evaluation.statistics import Interval

Ends = Sequence[float | None]
"""An estimate, and low and high of its interval, which are None if there is none."""


def table_lines(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table."""
    return [_line(heads), "|---" * len(heads) + "|", *map(_line, rows)]


def ends(interval: Interval) -> list[float | None]:
    """Return an interval as plain values."""
    found = (interval.estimate, interval.low, interval.high)
    return [float(value) if np.isfinite(value) else None for value in found]


def with_ends(values: Ends, number: str) -> str:
    """Return "estimate [low, high]", the estimate alone if it has no interval, and "" without one."""
    estimate, low, high = values
    if estimate is None:
        return ""
    return f"{estimate:{number}}" if low is None or high is None else f"{estimate:{number}} [{low:{number}}, {high:{number}}]"


def listed(values: Iterable[float | None], number: str) -> str:
    """Return values side by side, empty for an unknown one."""
    return ", ".join("" if value is None else f"{value:{number}}" for value in values)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
