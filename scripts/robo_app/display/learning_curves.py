"""Learning curves of several trainings as one figure: evaluations during training, by method and seed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from robo_rl.errors import optional
from robo_rl.evaluation.evaluation import Evaluation
from robo_rl.runs.run import Run
from robo_rl.system.durable_files import drafted

WIDTH, HEIGHT = 5.0, 3.4
"""Size of one panel [inch]."""


class Curve(NamedTuple):
    """Learning curve of one training: a value for each evaluation during it."""

    environment: str
    steps: tuple[int, ...]
    values: tuple[float, ...]
    of: str
    """Meaning of the values: success rate, or the environment's return if it declares no success."""


Methods = Mapping[str, Sequence[Curve]]


def draw_curves(runs: Mapping[str, Sequence[Path]], out: Path) -> Path | None:
    """Draw the curves of runs into a file.

    runs: method -> folders of its runs. Returns the file, or None if no run has evaluations.
    """
    return draw({method: [*filter(None, map(curve, folders))] for method, folders in runs.items()}, out)


def draw(methods: Methods, out: Path) -> Path | None:
    """Draw a figure with a panel for each environment and length of training: seeds as thin lines, their mean as a thick one.

    Returns the file, or None if there are no curves.
    """
    panels = _panels(methods)
    if not panels:
        return None
    with optional("A figure of curves", "matplotlib", "plots"):
        from matplotlib.figure import Figure  # slow to import

    figure = Figure(figsize=(WIDTH * len(panels), HEIGHT), layout="constrained", dpi=90)
    side_by_side = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, ((environment, _), shown) in zip(side_by_side, panels.items(), strict=True):
        _draw(axes, shown)
        axes.set_title(environment)
    with drafted(Path(out)) as draft:
        figure.savefig(draft)
    return out


def curve(run: Path) -> Curve | None:
    """Return the learning curve of a run: success rate, or mean return, at each evaluation during training.

    None if the run was not evaluated during training.
    """
    found = [(step, Evaluation.read(file)) for step, file in Run(run).evaluation_files.items()]
    if not found:
        return None
    declared = all(success is not None for _, each in found for success in each.successes)
    values = tuple(float(np.mean(np.asarray(each.successes if declared else each.returns, float))) for _, each in found)
    return Curve(found[0][1].environment, tuple(step for step, _ in found), values, "success" if declared else "true return")


def _panels(all_methods: Methods) -> dict[tuple[str, int], dict[str, list[Curve]]]:
    """Return (environment, last step) -> method -> curves."""
    panels: dict[tuple[str, int], dict[str, list[Curve]]] = defaultdict(lambda: defaultdict(list))
    for method, curves in all_methods.items():
        for found in curves:
            panels[found.environment, found.steps[-1]][method].append(found)
    return dict(panels)


def _draw(axes: Any, methods: Methods) -> None:
    for number, (method, curves) in enumerate(methods.items()):
        color = f"C{number}"
        for one in curves:
            axes.plot(one.steps, one.values, color=color, linewidth=0.8, alpha=0.4, marker=".")
        axes.plot(*_mean(curves), color=color, linewidth=2, marker=".", label=f"{method} ({len(curves)})")
    axes.set_xlabel("steps")
    axes.set_ylabel(next(iter(methods.values()))[0].of)
    if next(iter(methods.values()))[0].of == "success":
        axes.set_ylim(-0.03, 1.03)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", title="(seeds)", title_fontsize="small")


def _mean(curves: Sequence[Curve]) -> tuple[list[int], list[float]]:
    """Return the steps that all curves have, and the mean value at each."""
    shared = sorted(set.intersection(*(set(each.steps) for each in curves)))
    return shared, [float(np.mean([*_at(curves, step)])) for step in shared]


def _at(curves: Sequence[Curve], step: int) -> Iterator[float]:
    return (each.values[each.steps.index(step)] for each in curves)
