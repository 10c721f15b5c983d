"""robo-rl learners: which learner can be trained with what, from the declarations of learners and loops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from robo_cli import listing
from robo_rl.environments.discovery import load
from robo_rl.protocols.contract import Feature

if TYPE_CHECKING:
    from robo_rl.training.compatibility import Capabilities

EXAMPLES = """robo-rl learners
robo-rl learners hil-serl     (one of them, with the settings that each feature is asked for with)"""
LEGEND = """needs: every recipe must have it   set: with another setting (robo-rl learners NAME)   with: only together with that
exact, warm: how a resumed run goes on"""

COLUMNS = [feature for feature in Feature if feature is not Feature.SHARED]


@dataclass(frozen=True)
class Learners:
    """Tell which learner can be trained with a person, delayed rewards, collectors, recorded data, pictures, and so on."""

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")] = ""
    """One learner; empty for a table of all."""


def run(arguments: Learners) -> int:
    """Print the table, or what one learner can do."""
    found = [*listing.learners()]
    if arguments.name:
        lines = next((lines for name, _, lines in found if name == arguments.name), None)
        if lines is None:
            load("learners", arguments.name)()  # raises the reason
        print("\n".join(lines or ()))
        return 0
    rows = [["learner", *map(str, COLUMNS), "device", "resume"]]
    rows += [[name, *cells] for name, cells, _ in found]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print(f"\n{LEGEND}")
    return 0


def description(name: str, able: Capabilities) -> list[str]:
    """Return the lines about one learner."""
    lines = [f"{name}: trained by {', '.join(loop.name for loop in able.loops)}; resumes {able.resume}", ""]
    for feature in Feature:
        cell = able.cell(feature)
        hint = able.excludes[feature] if cell == "set" else feature.setting
        lines.append(f"{cell:12} {feature.noun} ({hint})")
    return [*lines, f"{_device(able):12} another device than the CPU (learner.device)"]


def cells(able: Capabilities) -> list[str]:
    """Return the cells of a learner's row."""
    return [*map(able.cell, COLUMNS), _device(able), able.resume]


def _device(able: Capabilities) -> str:
    return "yes" if able.has_device else "no"
