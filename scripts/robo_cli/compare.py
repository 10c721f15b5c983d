"""robo-rl compare: which of two runs, or groups of runs, does better on the evaluation seeds that they share."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from robo_cli.selection import find_runs
from robo_rl.errors import RunError
from robo_rl.evaluation import Evaluation, compare
from robo_rl.runs import Run
from robo_rl.statistics import Comparison

EXAMPLES = """robo-rl compare RUN_A RUN_B
robo-rl compare '*-arm-pick-sac-*' '*-arm-pick-rlpd-*'     (groups of training seeds)
robo-rl compare RUN_A RUN_B --json"""
RATE = ".1%"  # the median of outcomes that are 0 or 1 tells nothing


@dataclass(frozen=True)
class Compare:
    """Compare runs in pairs on shared evaluation seeds; differences are second minus first."""

    first: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """A run: path, name or "latest"; or a pattern such as "*-arm-pick-sac-*" for several training seeds."""
    second: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """The same for the other side."""
    json: bool = False
    """Print JSON."""
    runs: Path = Path("runs")
    """Folder that holds the runs."""


def run(arguments: Compare) -> int:
    """Prints mean difference, median difference and probability of improvement, each with its 95% interval."""
    sides = [find_runs(name, arguments.runs) for name in (arguments.first, arguments.second)]
    comparisons, seeds = compare_runs(*sides)
    caveat = _caveat(*sides)
    if arguments.json:
        names = [[each.path.name for each in side] for side in sides]
        values = {metric: _finite(asdict(comparison)) for metric, comparison in comparisons.items()}
        print(json.dumps({"first": names[0], "second": names[1], "seeds": seeds, "caveat": caveat, "comparisons": values}))
        return 0
    console = Console()
    for letter, side in zip("AB", sides, strict=True):
        console.print(f"{letter}  {', '.join(each.path.name for each in side)}", highlight=False, markup=False, soft_wrap=True)
    console.print(_table(comparisons, boxed=console.is_terminal), soft_wrap=not console.is_terminal)
    console.print(f"{len(seeds)} shared evaluation seeds; 95% intervals; {caveat}", highlight=False, soft_wrap=True)
    if (success := comparisons.get("success")) is not None and (note := success.left_out(len(seeds))):
        console.print(f"success on {success.episodes} of them{note}", highlight=False, soft_wrap=True)
    return 0


def compare_runs(first: Sequence[Run], second: Sequence[Run]) -> tuple[dict[str, Comparison], list[int]]:
    """Returns a comparison per metric, and the evaluation seeds that all runs share; raises SpecMismatch."""
    for other in [*first[1:], *second]:
        first[0].spec.require(other.spec, what=f"{first[0].path.name} and {other.path.name} cannot be compared")
    return compare([_evaluation(each) for each in first], [_evaluation(each) for each in second])


def _evaluation(run: Run) -> Evaluation:
    try:
        return Evaluation.from_json(json.loads((run.path / "evaluation.json").read_text()))
    except FileNotFoundError:
        raise RunError(f"{run.path.name} has no final evaluation.", fix=f"finish it: robo-rl resume {run.path.name}") from None


def _table(comparisons: dict[str, Comparison], *, boxed: bool) -> Table:
    table = Table("", *comparisons, box=SIMPLE_HEAD if boxed else None, pad_edge=False)
    forms = [RATE if metric == "success" else ".4g" for metric in comparisons]
    pairs = list(zip(comparisons.values(), forms, strict=True))
    table.add_row("A", *(f"{it.first_mean:{form}}" for it, form in pairs))
    table.add_row("B", *(f"{it.second_mean:{form}}" for it, form in pairs))
    table.add_row("B - A", *(f"{it.mean_difference:+{form}}" for it, form in pairs))
    table.add_row("median difference", *("" if form == RATE else f"{it.median_difference:+{form}}" for it, form in pairs))
    table.add_row("B better on a seed", *(f"{it.improvement:.0%}" for it, _ in pairs))
    table.add_row("McNemar exact p", *("" if it.p_value is None else f"{it.p_value:.2g}" for it, _ in pairs))
    return table


def _caveat(first: Sequence[Run], second: Sequence[Run]) -> str:
    if len(first) == len(second) == 1:
        return "one training seed a side: the intervals cover evaluation episodes, not training"
    if min(len(first), len(second)) == 1:
        return "one side has a single training seed: its chance of training is not covered"
    return f"{len(first)} and {len(second)} training runs: the intervals cover training and evaluation"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
