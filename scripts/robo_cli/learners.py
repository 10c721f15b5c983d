"""robo-rl learners: features of learners, from the declarations of learners and loops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

from robo_cli import listing
from robo_rl.environments.discovery import load

EXAMPLES = """robo-rl learners
robo-rl learners hil-serl     (one of them, with the settings that each feature is asked for with)"""
LEGEND = """needs: every recipe must have it   set: with another setting (robo-rl learners NAME)   with: only together with that
exact, warm: how a resumed run goes on"""


@dataclass(frozen=True)
class Learners:
    """Tell which learner can be trained with a person, delayed rewards, collectors, recorded data, pictures, and so on."""

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")] = ""
    """One learner; empty for a table of all."""


def run(arguments: Learners) -> int:
    """Print the table, or the features of one learner."""
    found = [*listing.learners()]
    if arguments.name:
        lines = next((lines for name, _, lines in found if name == arguments.name), None)
        if lines is None:
            load("learners", arguments.name)()  # raises the reason
        print("\n".join(lines or ()))
        return 0
    rows = [["learner", *map(str, listing.COLUMNS), "device", "resume"]]
    rows += [[name, *cells] for name, cells, _ in found]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print(f"\n{LEGEND}")
    return 0
