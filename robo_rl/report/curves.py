"""Curves of runs as charts: evaluations with confidence intervals, and all metrics of the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from markupsafe import Markup

from robo_rl.report.charts import LARGEST, Series, line_chart, thinned
from robo_rl.report.hacking import MODEL
from robo_rl.report.reading import RecordedRun

Charts = list[tuple[str, Markup]]
"""(title, drawing) of the charts that are not empty."""
MEAN = 5
"""Color of the mean over seeds if each seed has its own color."""


class Curves:
    """Draws the learning curves of several runs; each recipe has a color, or each seed if there is only one recipe."""

    def __init__(self, runs: Sequence[RecordedRun]) -> None:
        self.runs = runs
        groups: dict[str, list[int]] = {}
        for index, run in enumerate(runs):
            groups.setdefault(run.group, []).append(index)
        self._groups = list(groups.values())
        self.colors = [0] * len(runs)
        """By run."""
        for number, group in enumerate(self._groups):
            for index in group:
                self.colors[index] = index if len(self._groups) == 1 else number

    @property
    def groups(self) -> list[list[RecordedRun]]:
        """The runs by recipe: those in a group differ only in their training seed."""
        return [[self.runs[index] for index in group] for group in self._groups]

    @cached_property
    def legend(self) -> list[tuple[str, int]]:
        """(name, color number) of each line, for the legend."""
        if len(self._groups) == 1:
            return [(run.label, color) for run, color in zip(self.runs, self.colors, strict=True)]
        names = [group[0].name for group in self.groups]
        is_distinct = len(set(names)) == len(names)
        labels = names if is_distinct else [group[0].label for group in self.groups]
        return [(label, color) for color, label in enumerate(labels)]

    def evaluations(self, *, means: bool = False) -> Charts:
        """Return success, return and costs over steps; means: also draw each recipe's mean over seeds, with its range."""
        success, returns, models = list[Series](), list[Series](), list[Series]()
        for run, color in zip(self.runs, self.colors, strict=True):
            rates = [(step, e.success_rate) for step, e in run.curve if e.success_rate is not None]
            success += [_background(run, "rollout/success_rate", color), _evaluated(run.label, rates, color)]
            averages = [(step, e.mean_return) for step, e in run.curve]
            returns += [_background(run, "rollout/ep_rew_mean", color), _evaluated(run.label, averages, color)]
            models += [_background(run, MODEL, color)]
        if means:
            success, returns = self._with_means(success), self._with_means(returns)
        charts = [
            ("Success rate", line_chart(success, title="Success rate over training steps", y_limits=(0.0, 1.0), percent=True)),
            ("Return", line_chart(returns, title="Return over training steps")),
            *self._costs(),
            ("Return by the reward model", line_chart(models, title="Return by the reward model over training steps")),
        ]
        return [(title, chart) for title, chart in charts if chart]

    def _costs(self) -> Charts:
        """Return a chart for each measure with a limit."""
        evaluations = [evaluation for run in self.runs for _, evaluation in run.curve]
        measures = dict.fromkeys(each for e in evaluations for each in e.measures if each.limit is not None)
        charts = []
        for measure in measures:
            series = list[Series]()
            for run, color in zip(self.runs, self.colors, strict=True):
                found = [(step, e.measure_intervals[measure.name]) for step, e in run.curve if measure in e.measures]
                tag = f"costs/{measure.name.removeprefix('cost_')}"
                series += [_background(run, tag, color), _evaluated(run.label, found, color)]
            title = f"{measure.name.replace('_', ' ').capitalize()} per episode, limit {measure.limit:g}"
            charts.append((title, line_chart(series, title=f"{title}, over training steps", limit=measure.limit)))
        return charts

    def metrics(self, wanted: Callable[[str], bool]) -> Charts:
        """Return a chart for each log tag for which `wanted` is True."""
        tags = dict.fromkeys(tag for run in self.runs for line in run.metrics for tag in line if wanted(tag))
        charts = []
        for tag in tags:
            series = [_background(run, tag, color) for run, color in zip(self.runs, self.colors, strict=True)]
            charts.append((tag, line_chart(series, title=f"{tag} over training steps")))
        return [(tag, chart) for tag, chart in charts if chart]

    def _with_means(self, series: Sequence[Series]) -> list[Series]:
        """Make the evaluations of a recipe's seeds faint, and add their mean, with their range as band.

        series: for each run, training and then evaluations.
        """
        found = list(series)
        for number, group in enumerate(self._groups):
            places = [2 * index + 1 for index in group]
            evaluated = [dict(series[place].points) for place in places]
            shared = sorted(set.intersection(*map(set, evaluated)))
            if len(group) < 2 or not shared:
                continue
            for place in places:
                one = series[place]
                found[place - 1 : place + 1] = [Series("", one.color, ()), Series(one.label, one.color, one.points, faint=True)]
            values = np.array([[each[step] for step in shared] for each in evaluated])
            points = list(zip(shared, values.mean(0).tolist(), strict=True))
            band = list(zip(shared, values.min(0).tolist(), values.max(0).tolist(), strict=True))
            color = number if len(self._groups) > 1 else MEAN
            found.append(Series(f"mean of {len(group)} seeds", color, points, band))
        return found


def _evaluated(label: str, intervals: Sequence[tuple[int, Any]], color: int) -> Series:
    known = [(step, interval) for step, interval in intervals if abs(interval.estimate) < LARGEST]
    return Series(
        label,
        color,
        points=[(step, interval.estimate) for step, interval in known],
        band=[(step, interval.low, interval.high) for step, interval in known],
    )


def _background(run: RecordedRun, tag: str, color: int) -> Series:
    return Series(run.label, color, thinned(_values(run, tag)), faint=True)


def _values(run: RecordedRun, tag: str) -> list[tuple[float, float]]:
    return [(float(line["step"]), float(line[tag])) for line in run.metrics if isinstance(line.get(tag), int | float)]
