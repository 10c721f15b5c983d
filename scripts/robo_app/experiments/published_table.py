"""An experiment beside published scores: table, curves, and finished seeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from robo_app.display.markdown_tables import table_lines
from robo_app.experiments.published_scores import Published, ScoreCurve
from robo_app.experiments.race import Race
from robo_app.experiments.records import Record
from robo_rl.errors import optional
from robo_rl.evaluation.statistics import Interval, student_interval
from robo_rl.system.durable_files import drafted

ABREAST = 5
"""Number of panels side by side in a row of the figure."""
REPEAT = "environment.arguments.action_repeat"
"""Setting of a training: environment steps of one decision."""
WIDTH, HEIGHT = 3.2, 2.4
"""[inch] Size of one panel."""


@dataclass(frozen=True)
class Compared:
    """Learning curves of an experiment, those that others published, and the step at which they are compared."""

    race: Race
    published: Published
    ours: Sequence[ScoreCurve]
    theirs: Sequence[ScoreCurve]

    @cached_property
    def methods(self) -> list[str]:
        """Methods of others that have scores of a task at `published.at`."""
        return sorted(
            {method for method, task in _grouped(self.theirs) if task in self.race.tasks and self.scores(method, task)}
        )

    @cached_property
    def _curves(self) -> dict[tuple[str, str], list[ScoreCurve]]:
        own = {(_own(method), task): curves for (method, task), curves in _grouped(self.ours).items()}
        return own | _grouped(self.theirs)

    def scores(self, method: str, task: str, at: int | None = None) -> dict[int, float]:
        """Return the score of each seed at a step, by default `published.at`; seeds without a score there are left out."""
        step = self.published.at if at is None else at
        found = {each.seed: each.at(step, self.published.window) for each in self._curves.get((method, task), ())}
        return {seed: score for seed, score in found.items() if score is not None}

    def means(self, method: str, tasks: Iterable[str]) -> dict[int, float]:
        """Return the mean over tasks for each seed that has a score on all of them."""
        found = [self.scores(method, task) for task in tasks]
        seeds = set.intersection(*map(set, found)) if found else set()
        return {seed: float(np.mean([scores[seed] for scores in found])) for seed in sorted(seeds)}

    def mean_of_means(self, method: str, tasks: Iterable[str]) -> float | None:
        """Return the mean over tasks of the means over seeds; None if a task is missing."""
        found = [[*self.scores(method, task).values()] for task in tasks]
        return float(np.mean([np.mean(scores) for scores in found])) if found and all(found) else None

    def tasks_of(self, method: str) -> list[str]:
        """Return the tasks on which a method of ours has a score."""
        return [task for task in self.race.tasks if self.scores(_own(method), task)]


def own_curves(race: Race, records: Iterable[Record], by: str) -> list[ScoreCurve]:
    """Return the curves of the trainings of a race, in environment steps, the final evaluation included.

    by: "return" or "success".
    """
    found, cells = [], {*race.cells()}
    for record in records:
        if record.cell in cells:
            repeat, curve = int(record.settings.get(REPEAT, 1)), record.curve
            points = dict(zip(curve.steps, curve.returns if by == "return" else curve.successes, strict=True))
            points[int(record.settings["steps"])] = float(np.mean(record.outcomes(by)))
            scores = tuple(sorted((float(step * repeat), score) for step, score in points.items()))
            found.append(ScoreCurve(record.method, record.on, record.seed, scores))
    return found


def published_page(compared: Compared) -> str:
    """Return the table as Markdown: tasks in rows, ours with intervals over seeds, then theirs."""
    race, published = compared.race, compared.published
    number = ".2f" if published.by == "success" else ".0f"
    rows = [
        [task, *(_cell(compared.scores(_own(method), task), number) for method in race.methods)]
        + [_plain([*compared.scores(method, task).values()], number) for method in compared.methods]
        for task in race.tasks
    ]
    for method in race.methods:
        if tasks := compared.tasks_of(method):
            own = [_cell(compared.means(_own(each), tasks), number) for each in race.methods]
            means = (compared.mean_of_means(each, tasks) for each in compared.methods)
            name = f"mean of the {len(tasks)} tasks of {method}"
            rows.append([name, *own, *("" if mean is None else f"{mean:{number}}" for mean in means)])
    title = (
        f"Mean {published.by} of the {published.window:,} environment steps up to {published.at:,}; "
        "ours with 95 % intervals over seeds, theirs from their own files."
    )
    heads = ["task", *(f"{method} (ours)" for method in race.methods), *compared.methods]
    return "\n".join([title, "", *table_lines(heads, rows), "", *seed_lines(compared)]) + "\n"


def seed_lines(compared: Compared) -> list[str]:
    """Return one line for each method of ours: on how many tasks each seed is finished."""
    tasks, lines = compared.race.tasks, []
    for method in compared.race.methods:
        counts = {seed: sum(seed in compared.scores(_own(method), task) for task in tasks) for seed in compared.race.seeds}
        finished = ", ".join(f"seed {seed} on {count} of {len(tasks)} tasks" for seed, count in counts.items())
        lines.append(f"- {method}: {finished}")
    return lines


def draw_published(compared: Compared, out: Path) -> Path:
    """Draw a panel for each task of ours that has scores: our means are bold, our seeds and the means of others thin."""
    with optional("A figure of curves", "matplotlib", "plots"):
        from matplotlib.figure import Figure  # slow to import

    tasks = [task for task in compared.race.tasks if any(curve.task == task for curve in compared.ours)]
    columns = max(1, min(ABREAST, len(tasks)))
    lines = max(1, -(-len(tasks) // columns))
    figure = Figure(figsize=(WIDTH * columns, HEIGHT * lines), layout="constrained", dpi=90)
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    for axes, task in zip(panels, tasks, strict=False):
        _draw(axes, compared, task)
    for axes in panels[len(tasks) :]:
        axes.set_axis_off()
    handles = {label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=6, fontsize="small")
    with drafted(Path(out)) as draft:
        figure.savefig(draft)
    return out


def _draw(axes: Any, compared: Compared, task: str) -> None:
    published = compared.published
    steps = [*range(published.window, published.at + 1, published.window)]
    for number, method in enumerate(compared.methods):
        axes.plot(*_mean_curve(compared, method, task, steps), linewidth=1, color=f"C{number + 2}", alpha=0.7, label=method)
    for number, method in enumerate(compared.race.methods):
        seeds = [curve for curve in compared.ours if (curve.method, curve.task) == (method, task)]
        for curve in seeds:
            axes.plot(*zip(*curve.points, strict=True), linewidth=0.7, alpha=0.5, color=f"C{number}")
        if seeds:
            means = _mean_curve(compared, _own(method), task, steps)
            axes.plot(*means, linewidth=2.2, marker=".", color=f"C{number}", label=f"{method} (ours)")
    axes.set_title(task, fontsize="small")
    axes.set_xlim(0, published.at)
    axes.tick_params(labelsize="x-small")
    axes.grid(alpha=0.3)


def _mean_curve(compared: Compared, method: str, task: str, steps: Sequence[int]) -> tuple[list[int], list[float]]:
    """Return the steps at which any seed has a score, and the mean score at each."""
    found = {step: [*compared.scores(method, task, step).values()] for step in steps}
    return [step for step in steps if found[step]], [float(np.mean(found[step])) for step in steps if found[step]]


def _grouped(curves: Iterable[ScoreCurve]) -> dict[tuple[str, str], list[ScoreCurve]]:
    found: dict[tuple[str, str], list[ScoreCurve]] = {}
    for curve in curves:
        found.setdefault((curve.method, curve.task), []).append(curve)
    return found


def _own(method: str) -> str:
    """Return a method of ours under a name that differs from others' methods of the same name."""
    return f"ours: {method}"


def _cell(scores: Mapping[int, float], number: str) -> str:
    if not scores:
        return ""
    interval: Interval = student_interval([*scores.values()])
    return f"{interval:{number}}" if np.isfinite(interval.low) else f"{interval.estimate:{number}}"


def _plain(scores: Sequence[float], number: str) -> str:
    return f"{np.mean(scores):{number}}" if scores else ""
