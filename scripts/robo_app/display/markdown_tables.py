"""Markdown tables of experiments: rows, intervals, values of seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from robo_rl.evaluation.statistics import Interval

Ends = Sequence[float | None]
"""Estimate, low end and high end of an interval; None for what is not known."""


def table_lines(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    return [_line(heads), "|---" * len(heads) + "|", *map(_line, rows)]


def ends(interval: Interval) -> list[float | None]:
    """Return estimate, low and high end of an interval as plain numbers, None for one that is not finite."""
    found = (interval.estimate, interval.low, interval.high)
    return [float(value) if np.isfinite(value) else None for value in found]


def with_ends(values: Ends, number: str) -> str:
    """Return "estimate [low, high]"; the estimate alone if there is no interval, "" if there is no estimate.

    number: format of the numbers.
    """
    estimate, low, high = values
    if estimate is None:
        return ""
    return f"{estimate:{number}}" if low is None or high is None else f"{estimate:{number}} [{low:{number}}, {high:{number}}]"


def listed(values: Iterable[float | None], number: str) -> str:
    """Return values separated by commas, empty for None; `number` is their format."""
    return ", ".join("" if value is None else f"{value:{number}}" for value in values)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
