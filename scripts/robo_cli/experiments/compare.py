"""robo-rl compare: which of two runs, or groups of runs, does better on the evaluation seeds that they share."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from robo_app.display.plain_console import PlainConsole
from robo_app.experiments.comparison import Judged, compare_judged, judged, recipe_differences
from robo_app.experiments.comparison_table import comparison_table
from robo_rl.errors import printable

EXAMPLES = """robo-rl compare RUN_A RUN_B
robo-rl compare '*-arm-pick-sac-*' '*-arm-pick-rlpd-*'     (groups of training seeds)
robo-rl compare RUN_A RUN_B --json
robo-rl compare 'fresh/a-*.json' 'fresh/b-*.json'     (output of robo-rl evaluate --json, a file for each training)"""

MOST = 5
"""Largest number of settings in which recipes differ that are printed."""


@dataclass(frozen=True)
class Compare:
    """Compare runs in pairs on shared evaluation seeds; differences are second minus first."""

    first: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """A run: path, name or "latest"; or a pattern such as "*-arm-pick-sac-*" for several training seeds; or of files .json."""
    second: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """Run or runs of the other side."""
    json: bool = False
    """Print JSON."""
    runs: Path = Path("runs")
    """Folder that holds the runs."""


def run(arguments: Compare) -> int:
    """Print mean difference, median difference and probability of improvement, each with its 95% interval."""
    sides = [judged(name, arguments.runs) for name in (arguments.first, arguments.second)]
    comparisons, seeds = compare_judged(*sides)
    caveat, unlike = _caveat(*sides), recipe_differences(*sides)
    if arguments.json:
        names = [[each.name for each in side] for side in sides]
        values = {metric: _finite(asdict(comparison)) for metric, comparison in comparisons.items()}
        found = {"first": names[0], "second": names[1], "seeds": seeds, "caveat": caveat, "recipes differ in": unlike}
        print(json.dumps(found | {"comparisons": values}, default=str))
        return 0
    console = PlainConsole(markup=False)
    for letter, side in zip("AB", sides, strict=True):
        console.print(f"{letter}  {', '.join(printable(each.name) for each in side)}", highlight=False, soft_wrap=True)
    console.print(comparison_table(comparisons, boxed=console.is_terminal), soft_wrap=not console.is_terminal)
    console.print(f"{len(seeds)} shared evaluation seeds; 95% intervals; {caveat}", highlight=False, soft_wrap=True)
    if (success := comparisons.get("success")) is not None and (note := success.left_out(len(seeds))):
        console.print(f"success on {success.episodes} of them{note}", highlight=False, soft_wrap=True)
    if unlike:
        console.print(f"recipes differ in {_differences(unlike)}", highlight=False, soft_wrap=True)
    return 0


def _differences(unlike: Mapping[str, tuple[list[Any], list[Any]]]) -> str:
    """Return the first settings that differ with their values, and the number of the others."""
    a, b = (
        [" or ".join("none" if value in (None, "") else str(value) for value in each[side]) or "?" for each in unlike.values()]
        for side in (0, 1)
    )
    said = [f"{path}: A {first}, B {second}" for path, first, second in zip(unlike, a, b, strict=True)]
    more = f"; and {len(said) - MOST} more, which --json lists" if len(said) > MOST else ""
    return printable("; ".join(said[:MOST])) + more


def _caveat(first: Sequence[Judged], second: Sequence[Judged]) -> str:
    drawn = {not each.evaluation.deterministic for each in (*first, *second)}
    early = "".join(f"; {printable(each.name)} {end}" for each in (*first, *second) if (end := each.evaluation.early_end))
    return _covered(first, second) + ("; some drew their actions by chance, others did not" if len(drawn) > 1 else "") + early


def _covered(first: Sequence[Judged], second: Sequence[Judged]) -> str:
    if len(first) == len(second) == 1:
        return "one training seed a side: the intervals cover evaluation episodes, not training"
    if min(len(first), len(second)) == 1:
        return "one side has a single training seed: its chance of training is not covered"
    return f"{len(first)} and {len(second)} training runs: the intervals cover training and evaluation"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
