"""robo-rl learners: features of learners, from the declarations of learners and loops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

from robo_app.listings import listing
from robo_rl.entry_points import load
from robo_rl.protocols.contract import Feature

EXAMPLES = """robo-rl learners
robo-rl learners hil-serl     (one of them, with the settings that each feature is asked for with)"""
LEGEND = """needs: every recipe must have it   set: with another setting (robo-rl learners NAME)   with: only together with that
exact, warm: how a resumed run goes on   exact*: exact in environments that can be saved (gymnasium/, robo/, dm_control/, most
of minigrid/) and without a curriculum, else warm: each environment begins a new episode"""

COLUMNS = [feature for feature in Feature if feature is not Feature.SHARED]


@dataclass(frozen=True)
class Learners:
    """Tell which learner can be trained with a person, delayed rewards, collectors, recorded data, pictures, and so on."""

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")] = ""
    """One learner; empty for a table of all."""


def run(arguments: Learners) -> int:
    """Print the table, or the features of one learner."""
    found = dict(listing.learners())
    if arguments.name:
        if arguments.name not in found:
            load("learners", arguments.name)()  # raises the reason
        print("\n".join(_description(arguments.name, found[arguments.name])))
        return 0
    rows = [["learner", *map(str, COLUMNS), "device", "resume"]]
    rows += [
        [name, *(able["cells"][each.name] for each in COLUMNS), able["device"], able["resume"]] for name, able in found.items()
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print(f"\n{LEGEND}")
    return 0


def _description(name: str, able: listing.Features) -> list[str]:
    """Return the lines about one learner."""
    lines = [f"{name}: trained by {', '.join(able['loops'])}; resumes {able['resume']}", ""]
    for feature in Feature:
        cell = able["cells"][feature.name]
        hint = able["excludes"][feature.name] if cell == "set" else feature.setting
        lines.append(f"{cell:12} {feature.noun} ({hint})")
    return [*lines, f"{able['device']:12} another device than the CPU (learner.device)"]
