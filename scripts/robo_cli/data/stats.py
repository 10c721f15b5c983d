"""robo-rl data stats: statistics of a dataset for a terminal of 120 columns."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from robo_app.display.dataset_profile import arrays_table, coverage_table, profile_lines
from robo_app.display.display import counted
from robo_datasets.dataset import Dataset
from robo_datasets.profile import profile
from robo_rl.errors import printable, printable_lines

WIDTH = 120


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
        for part in (arrays_table(facts["arrays"]), coverage_table(facts["coverage"])):
            console.print(part)
        console.print(printable_lines("\n".join(profile_lines(facts))), markup=False)
    return 0
