"""Robustness of a policy: evaluations over grids of perturbations, resumable, and the worst perturbation.

A cell is a set of perturbations, name -> value; perturbations with their nominal values are left out. A grid has R rows and C
columns.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robo_rl.errors import InvalidSetting
from robo_rl.evaluation.evaluation import Evaluation
from robo_rl.evaluation.statistics import Interval
from robo_rl.system.durable_files import write_durably

Cell = Mapping[str, float]
KEYS = ("estimate", "low", "high")
"""Names of the fields of an `Interval` in JSON."""
SINGLE = ""
"""Name of the row axis of a grid with one axis."""


@dataclass(frozen=True)
class Axis:
    """One axis of a grid: a perturbation of the environment, such as a mass, and the values at which a policy is evaluated."""

    name: str
    values: tuple[float, ...]


@dataclass(frozen=True)
class Grid:
    """Grid of perturbations with one axis for rows and one for columns; with a single axis it has one row."""

    rows: Axis
    columns: Axis

    def cell(self, row: float, column: float, nominal: Cell) -> dict[str, float]:
        """Return the perturbations in one cell of the grid, without those that have their nominal value."""
        found = {self.rows.name: row, self.columns.name: column}
        found.pop(SINGLE, None)
        return {name: value for name, value in sorted(found.items()) if value != nominal[name]}


@dataclass(frozen=True)
class Plan:
    """Grids of perturbations that a policy shall be evaluated under."""

    name: str
    grids: tuple[Grid, ...]
    nominal: Cell
    """Name of each known perturbation -> its value in the training environment."""

    @property
    def cells(self) -> list[dict[str, float]]:
        """All different cells of the grids, the nominal one first."""
        found: dict[str, dict[str, float]] = {name_of({}): {}}
        for grid in self.grids:
            for row in grid.rows.values:
                for column in grid.columns.values:
                    cell = grid.cell(row, column, self.nominal)
                    found.setdefault(name_of(cell), cell)
        return [*found.values()]


def plan_of(name: str, content: Any, nominal: Cell) -> Plan:
    """Return the plan in `content`: {grids: [{mass: [0.5, 1, 2], friction: [0.5, 1, 2]}, {latency: [0, 1, 2]}]}.

    Args:
        name: Name of the plan.
        content: Content of its file.
        nominal: Name of each known perturbation -> nominal value.

    Raises:
        InvalidSetting: The content is no plan, or names an unknown perturbation.
    """
    grids = content["grids"] if isinstance(content, Mapping) and set(content) == {"grids"} else None
    if not isinstance(grids, list) or not grids:
        allowed = "grids: [{mass: [0.5, 1, 2]}, ...]"
        raise InvalidSetting(f"{name} is no plan of perturbations.", got=content, allowed=allowed)
    return Plan(name, tuple(_grid(name, grid, nominal) for grid in grids), nominal)


def _grid(plan: str, grid: Any, nominal: Cell) -> Grid:
    if not isinstance(grid, Mapping) or not 1 <= len(grid) <= 2:
        raise InvalidSetting(f"A grid of {plan} has one or two axes.", got=grid, allowed="{NAME: [VALUE, ...], ...}")
    axes = []
    for name, values in grid.items():
        numbers = isinstance(values, list) and all(
            isinstance(each, (int, float)) and not isinstance(each, bool) for each in values
        )
        if name not in nominal or not numbers or not values or len({*values}) < len(values):
            allowed = f"one of {', '.join(nominal)}, with a list of different numbers"
            raise InvalidSetting(f"An axis of {plan} is not usable.", got={name: values}, allowed=allowed)
        axes.append(Axis(str(name), tuple(values)))
    return Grid(*axes) if len(axes) == 2 else Grid(Axis(SINGLE, (0.0,)), axes[0])


def name_of(cell: Cell) -> str:
    """Return a name for a set of perturbations, such as "mass=0.5,friction=2"; "nominal" for no perturbation."""
    return ",".join(f"{name}={value:g}" for name, value in sorted(cell.items())) or "nominal"


class Robustness:
    """Evaluations of one policy under all perturbations of a plan, with the worst of them."""

    def __init__(self, plan: Plan, evaluations: Mapping[str, Evaluation]) -> None:
        """Collect the evaluations, which are given by the name of their cell."""
        self.plan, self.evaluations = plan, evaluations
        self.is_rate = self.nominal.success_rate is not None
        """True if cells are judged by success, False if by the mean return."""

    @property
    def nominal(self) -> Evaluation:
        """Evaluation without perturbation."""
        return self.evaluations[name_of({})]

    def figure(self, cell: Cell) -> Interval:
        """Return the success rate under the perturbations `cell`, with its interval.

        Without success criterion the mean return.
        """
        found = self.evaluations[name_of(cell)]
        return found.mean_return if found.success_rate is None else found.success_rate

    def matrix(self, grid: Grid) -> list[list[Interval]]:
        """Return success rate or mean return with its interval for each cell of a grid, (R, C)."""
        nominal = self.plan.nominal
        return [[self.figure(grid.cell(row, column, nominal)) for column in grid.columns.values] for row in grid.rows.values]

    @property
    def worst(self) -> dict[str, float]:
        """Perturbations under which success rate (or mean return) is lowest."""
        return min(self.plan.cells, key=lambda cell: self.figure(cell).estimate)

    def shown(self, figure: Interval) -> str:
        """Return the estimate of a figure as text: a percentage for success rates."""
        return f"{figure.estimate:.0%}" if self.is_rate else f"{figure.estimate:.4g}"

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values: success rate or mean return of each cell with its interval, and the worst cell."""
        figures = {name_of(cell): self.figure(cell) for cell in self.plan.cells}
        cells = {name: {key: _known(getattr(each, key)) for key in KEYS} for name, each in figures.items()}
        return {
            "plan": self.plan.name,
            "measure": "success" if self.is_rate else "return",
            "cells": cells,
            "worst": name_of(self.worst),
        }

    def __str__(self) -> str:
        number = ".1%" if self.is_rate else ".4g"
        lines = [
            f"{self.nominal.environment}: {'success' if self.is_rate else 'mean return'} in {len(self.nominal)} episodes a cell"
        ]
        for grid in self.plan.grids:
            down = f"{grid.rows.name} (down), " if grid.rows.name else ""
            lines += ["", f"{down}{grid.columns.name} (across)"]
            lines += ["".join([" " * 8, *(f"{value:>9g}" for value in grid.columns.values)])]
            for row, figures in zip(grid.rows.values, self.matrix(grid), strict=True):
                label = f"{row:<8g}" if grid.rows.name else " " * 8
                lines += ["".join([label, *(f"{self.shown(figure):>9}" for figure in figures)])]
        lines += [
            "",
            f"nominal  {self.figure({}):{number}}",
            f"worst    {self.figure(self.worst):{number}}  {name_of(self.worst)}",
        ]
        return "\n".join(lines)


def measure(plan: Plan, folder: Path, judge: Callable[[Cell], Evaluation], said: Callable[[str], None] = print) -> Robustness:
    """Evaluate a policy under all perturbations of a plan.

    Each evaluation is written to `folder` at once, and read from there the next time.

    Args:
        plan: Plan of perturbations.
        folder: Folder for the evaluations.
        judge: Evaluates the policy under one set of perturbations.
        said: Called with a line of text for each set, to show progress.
    """
    folder.mkdir(parents=True, exist_ok=True)
    evaluations: dict[str, Evaluation] = {}
    for number, cell in enumerate(plan.cells):
        file = folder / f"{name_of(cell)}.json"
        if not file.exists():
            write_durably(file, json.dumps(judge(cell).to_json()).encode())
        evaluations[name_of(cell)] = Evaluation.read(file)
        said(f"{number + 1} of {len(plan.cells)}: {name_of(cell)}")
    return Robustness(plan, evaluations)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
