"""robo-rl data stats: statistics of a dataset for a terminal of 120 columns."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from robo_cli.display import counted
from robo_datasets.dataset import Dataset
from robo_datasets.profile import profile
from robo_rl.errors import printable, printable_lines

WIDTH = 120
BAR = 40
MOST_NAMED = 8
"""Dimensions that are named in a row."""


@dataclass(frozen=True)
class Stats:
    """Describe the episodes: ranges, faults, saturation, returns, ends, coverage; reads all of them."""

    dataset: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DATASET")]
    json: bool = False
    """Print JSON, with the figures of each dimension."""


def stats(arguments: Stats) -> int:
    """Prints the profile of a dataset."""
    dataset = Dataset(arguments.dataset)
    if arguments.json:
        print(json.dumps(profile(dataset)))
        return 0
    facts = profile(dataset, partial(counted, "reading", "episodes"))
    console = Console(width=min(WIDTH, Console().width) if sys.stdout.isatty() else WIDTH, highlight=False)
    console.print(f"{printable(str(dataset.path))}: {facts['episodes']} episodes, {facts['steps']} steps", markup=False)
    if facts["episodes"]:
        for part in (_arrays(facts["arrays"]), _coverage(facts["coverage"])):
            console.print(part)
        console.print(printable_lines("\n".join(_lines(facts))), markup=False)
    return 0


def _arrays(arrays: dict[str, Any]) -> Table:
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


def _coverage(actors: dict[str, Any]) -> Table:
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


def _lines(facts: dict[str, Any]) -> list[str]:
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
    return [*lines, f"terminated {facts['terminated']}, truncated {facts['truncated']}"]


def _histogram(counts: list[int], edges: list[float]) -> list[str]:
    most = max(counts)
    return [
        f"  {low:>10.4g} to {high:<10.4g} {'#' * round(BAR * count / most):{BAR}} {count}"
        for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
    ]
