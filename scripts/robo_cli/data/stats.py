"""robo-rl data stats: statistics of a dataset for a terminal of 120 columns."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from robo_app.display.dataset_profile import arrays_table, coverage_table, profile_lines
from robo_app.display.display import counted
from robo_app.display.plain_console import PlainConsole
from robo_datasets.dataset import Dataset
from robo_datasets.profile import profile
from robo_rl.errors import printable

WIDTH = 120
MOST = 10_000
"""Largest number of characters of an output line; longer lines are not wrapped."""


@dataclass(frozen=True)
class Stats:
    """Describe the episodes: ranges, faults, saturation, returns, ends, coverage; reads all of them."""

    dataset: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DATASET")]
    json: bool = False
    """Print JSON, with the figures of each dimension."""


def stats(arguments: Stats) -> int:
    """Print the profile of a dataset."""
    dataset = Dataset(arguments.dataset)
    if arguments.json:
        print(json.dumps(profile(dataset)))
        return 0
    facts = profile(dataset, partial(counted, "reading", "episodes"))
    width = min(WIDTH, shutil.get_terminal_size().columns) if sys.stdout.isatty() else WIDTH
    console = PlainConsole(width=width, highlight=False, markup=False)
    console.print(f"{printable(str(dataset.path))}: {facts['episodes']} episodes, {facts['steps']} steps")
    if facts["episodes"]:
        for part in (arrays_table(facts["arrays"]), coverage_table(facts["coverage"])):
            console.print(part)
        console.print("\n".join(printable(line, MOST) for line in profile_lines(facts)))
    return 0
