"""robo-rl learners: list the learners by evidence, and the features of each, from the declarations of learners and loops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

from robo_app.listings.levels import about, by_level, components
from robo_rl.entry_points import load
from robo_rl.papers import papers
from robo_rl.protocols.contract import Feature

EXAMPLES = """robo-rl learners
robo-rl learners hil-serl     (one of them, with the settings that each feature is asked for with)
robo-rl learners --features     (a table of all; imports them, which takes seconds)"""
LEGEND = """needs: in every recipe   set: with another setting (robo-rl learners NAME)   with: together with that feature
exact, warm: how a resumed run goes on   exact*: exact in environments that can be saved (gymnasium/, robo/, dm_control/, most
of minigrid/) and without a curriculum, else warm: each environment begins a new episode"""

COLUMNS = [feature for feature in Feature if feature is not Feature.SHARED]


@dataclass(frozen=True)
class Learners:
    """List the learners, or tell which can be trained with a person, delayed rewards, collectors, pictures, and so on."""

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")] = ""
    """One learner; empty for all."""
    features: bool = False
    """Print a table of the features of all."""


def run(arguments: Learners) -> int:
    """Print the list, the table, or the features of one learner."""
    if arguments.name:
        print("\n".join(_description(arguments.name)))
    elif arguments.features:
        _print_table()
    else:
        print("\n".join(by_level(components("learners"))))
        print("\n`robo-rl learners NAME` says what one can do, `robo-rl learners --features` what each can.")
    return 0


def _print_table() -> None:
    from robo_rl.training.compatibility import learners

    rows = [["learner", *map(str, COLUMNS), "device", "resume"]]
    rows += [[name, *map(able.cell, COLUMNS), "yes" if able.has_device else "no", able.resume] for name, able in learners()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print(f"\n{LEGEND}")


def _description(name: str) -> list[str]:
    """Return the lines about one learner."""
    from robo_rl.training.compatibility import Capabilities

    able = Capabilities.of(load("learners", name)())
    paper = next((each for each in papers().values() if name in each.components.get("learners", {})), None)
    lines = about("learners", name, paper)
    lines += ["", f"trained by {', '.join(loop.name for loop in able.loops)}; resumes {able.resume}", ""]
    for feature in Feature:
        cell = able.cell(feature)
        hint = able.excludes[feature] if cell == "set" else feature.setting
        lines.append(f"{cell:12} {feature.noun} ({hint})")
    return [*lines, f"{'yes' if able.has_device else 'no':12} another device than the CPU (learner.device)"]
