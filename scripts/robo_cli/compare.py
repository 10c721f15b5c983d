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

from robo_cli.selection import find_files, find_runs
from robo_rl.errors import InvalidSetting, RunError, SpecMismatch, printable
from robo_rl.evaluation.evaluation import Evaluation, compare
from robo_rl.evaluation.statistics import Comparison
from robo_rl.runs.run import Run
from robo_rl.spec.environment import EnvironmentSpec

EXAMPLES = """robo-rl compare RUN_A RUN_B
robo-rl compare '*-arm-pick-sac-*' '*-arm-pick-rlpd-*'     (groups of training seeds)
robo-rl compare RUN_A RUN_B --json
robo-rl compare 'fresh/a-*.json' 'fresh/b-*.json'     (what robo-rl evaluate --json told, a file for each training)"""
SUFFIX = ".json"
ABREAST = 3
"""Metrics with a column each; further measures of an environment have a line each."""
RATE = ".1%"  # the median of binary outcomes is uninformative


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


@dataclass(frozen=True)
class Judged:
    """Evaluation of a training, and its exact recipe if known."""

    name: str
    evaluation: Evaluation
    spec: EnvironmentSpec | None = None


def run(arguments: Compare) -> int:
    """Prints mean difference, median difference and probability of improvement, each with its 95% interval."""
    sides = [judged(name, arguments.runs) for name in (arguments.first, arguments.second)]
    comparisons, seeds = compare_judged(*sides)
    caveat = _caveat(*sides)
    if arguments.json:
        names = [[each.name for each in side] for side in sides]
        values = {metric: _finite(asdict(comparison)) for metric, comparison in comparisons.items()}
        print(json.dumps({"first": names[0], "second": names[1], "seeds": seeds, "caveat": caveat, "comparisons": values}))
        return 0
    console = Console()
    for letter, side in zip("AB", sides, strict=True):
        console.print(
            f"{letter}  {', '.join(printable(each.name) for each in side)}", highlight=False, markup=False, soft_wrap=True
        )
    console.print(_table(comparisons, boxed=console.is_terminal), soft_wrap=not console.is_terminal)
    console.print(f"{len(seeds)} shared evaluation seeds; 95% intervals; {caveat}", highlight=False, soft_wrap=True)
    if (success := comparisons.get("success")) is not None and (note := success.left_out(len(seeds))):
        console.print(f"success on {success.episodes} of them{note}", highlight=False, soft_wrap=True)
    return 0


def judged(name: str, runs: Path) -> list[Judged]:
    """Return the final evaluations of the runs, or in the .json files, of a name or pattern."""
    if not name.endswith(SUFFIX) or Path(name).is_dir():
        return [_of_run(each) for each in find_runs(name, runs)]
    found = [_from_file(path) for path in find_files(name)]
    seeds = [each.evaluation.training_seed for each in found]
    if any(seeds.count(seed) > 1 for seed in {*seeds} - {None}):
        raise InvalidSetting(
            "Several evaluations of one training tell nothing of the chance of training.",
            got=", ".join(f"{each.name} of training seed {each.evaluation.training_seed}" for each in found),
            allowed="one file for each training seed of a side",
            fix=f"choose among those that match {name}",
        )
    return found


def compare_judged(first: Sequence[Judged], second: Sequence[Judged]) -> tuple[dict[str, Comparison], list[int]]:
    """Return a comparison per metric, and the common evaluation seeds; raises SpecMismatch."""
    a = first[0]
    for b in [*first[1:], *second]:
        what = f"{a.name} and {b.name} cannot be compared"
        if a.spec is not None and b.spec is not None:
            a.spec.require(b.spec, what=what)
        elif a.evaluation.spec_fingerprint != b.evaluation.spec_fingerprint:
            told = [f"{each.evaluation.environment}, spec {each.evaluation.spec_fingerprint}" for each in (a, b)]
            raise SpecMismatch(what, [f"spec: {told[0]} here, {told[1]} there"])
    return compare([each.evaluation for each in first], [each.evaluation for each in second])


def _of_run(run: Run) -> Judged:
    try:
        found = Evaluation.read(run.path / "evaluation.json")
    except FileNotFoundError:
        raise RunError(f"{run.path.name} has no final evaluation.", fix=f"finish it: robo-rl resume {run.path.name}") from None
    return Judged(run.path.name, found, run.spec)


def _from_file(path: Path) -> Judged:
    try:
        found = Evaluation.read(path)
        told = (found.returns, found.successes, *found.measured.values())
        if not found.seeds or any(len(values) != len(found.seeds) for values in told):
            raise ValueError("not as many outcomes as seeds")
        return Judged(str(path), found)
    except (ValueError, TypeError, AttributeError, RunError, OSError) as error:
        raise RunError(
            f"{path} holds no evaluation.",
            got=f"{type(error).__name__}: {error}",
            allowed="what robo-rl evaluate RUN --json printed",
        ) from None


def _table(comparisons: dict[str, Comparison], *, boxed: bool) -> Table:
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
    """Adds a line for each metric to a table; the rest is in --json."""
    for metric, (it, form) in comparisons.items():
        difference = f"{it.mean_difference:+{form if form == RATE else '.3g'}}"
        table.add_row(metric, f"{it.first_mean:{form}}", f"{it.second_mean:{form}}", difference, f"{it.improvement:.0%}")
    return table


def _caveat(first: Sequence[Judged], second: Sequence[Judged]) -> str:
    drawn = {not each.evaluation.deterministic for each in (*first, *second)}
    return _covered(first, second) + ("; some drew their actions by chance, others did not" if len(drawn) > 1 else "")


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
