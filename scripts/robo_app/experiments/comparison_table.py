"""Table of a comparison."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.table import Table

from robo_rl.evaluation.statistics import Comparison

ABREAST = 3
"""Largest number of metrics for which each has a column; with more metrics, each has a row."""
RATE = ".1%"  # the median of binary outcomes is uninformative


def comparison_table(comparisons: dict[str, Comparison], *, boxed: bool) -> Table:
    """Return a comparison as a table: metrics in columns, or in lines if there are more than ABREAST."""
    box = SIMPLE_HEAD if boxed else None
    forms = [RATE if metric == "success" else ".4g" for metric in comparisons]
    pairs = list(zip(comparisons.values(), forms, strict=True))
    if len(comparisons) > ABREAST:
        return _lines(
            dict(zip(comparisons, pairs, strict=True)), Table("", "A", "B", "B - A", "B better", box=box, pad_edge=False)
        )
    table = Table("", *comparisons, box=box, pad_edge=False)
    table.add_row("A", *(f"{it.first_mean:{form}}" for it, form in pairs))
    table.add_row("B", *(f"{it.second_mean:{form}}" for it, form in pairs))
    table.add_row("B - A", *(f"{it.mean_difference:+{form}}" for it, form in pairs))
    table.add_row("median difference", *("" if form == RATE else f"{it.median_difference:+{form}}" for it, form in pairs))
    table.add_row("B better on a seed", *(f"{it.improvement:.0%}" for it, _ in pairs))
    table.add_row("McNemar exact p", *("" if it.p_value is None else f"{it.p_value:.2g}" for it, _ in pairs))
    return table


def _lines(comparisons: dict[str, tuple[Comparison, str]], table: Table) -> Table:
    """Add a line for each metric to a table, without medians and p-values, which `--json` prints."""
    for metric, (it, form) in comparisons.items():
        difference = f"{it.mean_difference:+{form if form == RATE else '.3g'}}"
        table.add_row(metric, f"{it.first_mean:{form}}", f"{it.second_mean:{form}}", difference, f"{it.improvement:.0%}")
    return table
