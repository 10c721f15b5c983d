"""Write the robustness of a policy as an HTML page with heat maps."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from markupsafe import Markup

from robo_rl.evaluation.robustness import Grid, Robustness, name_of
from robo_rl.evaluation.statistics import Interval
from robo_rl.report import template
from robo_rl.report.charts import LEFT, WIDTH
from robo_rl.runs.run import write_text

ROW, TOP = 34.0, 8.0
"""Height of a heat map's row, and space above the first row, in units of the drawing."""


def write_robustness(found: Robustness, out: Path, *, policy: str) -> Path:
    """Write the page to `out` and return `out`; policy: name of the policy for the title, such as that of its run."""
    number = ".0%" if found.is_rate else ".4g"
    figures = [found.figure(cell).estimate for cell in found.plan.cells]
    low, high = (0.0, 1.0) if found.is_rate else (min(figures), max(figures))
    page = template("robustness").render(
        policy=policy,
        plan=found.plan.name,
        environment=found.nominal.environment,
        measure="success" if found.is_rate else "mean return",
        rule=found.nominal.success_rule if found.is_rate else None,
        episodes=len(found.nominal),
        caveat=found.nominal.caveat,
        nominal=f"{found.figure({}):{number}}",
        worst=f"{found.figure(found.worst):{number}}",
        worst_cell=name_of(found.worst),
        maps=[(_title(grid), heat_map(found, grid, (low, high))) for grid in found.plan.grids],
        ends=(f"{low:{number}}", f"{high:{number}}"),
        cells=[(name_of(cell), f"{found.figure(cell):{number}}") for cell in found.plan.cells],
        written=f"{datetime.now():%d %B %Y, %H:%M}",
    )
    write_text(out, page)
    return out


def heat_map(found: Robustness, grid: Grid, limits: tuple[float, float]) -> Markup:
    """Draw a grid of perturbations as an SVG heat map, darker for better; limits: smallest and largest value of the scale."""
    rows, columns = grid.rows.values, grid.columns.values
    width = (WIDTH - LEFT) / len(columns)
    parts = []
    for number, (row, figures) in enumerate(zip(rows, found.matrix(grid), strict=True)):
        y = TOP + number * ROW
        if grid.rows.name:
            parts.append(Markup('<text class="axis end" x="{}" y="{}">{:g}</text>').format(LEFT - 6, y + 0.62 * ROW, row))
        for place, (column, figure) in enumerate(zip(columns, figures, strict=True)):
            name = name_of(grid.cell(row, column, found.plan.nominal))
            parts.append(_cell(found, figure, name, (LEFT + place * width, y, width), limits))
    bottom = TOP + len(rows) * ROW
    middles = ((LEFT + (place + 0.5) * width, column) for place, column in enumerate(columns))
    parts += [
        Markup('<text class="axis middle" x="{:.1f}" y="{}">{:g}</text>').format(x, bottom + 15, column)
        for x, column in middles
    ]
    return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        int(WIDTH), int(bottom + 22), _title(grid), Markup("").join(parts)
    )


def _cell(
    found: Robustness, figure: Interval, name: str, place: tuple[float, float, float], limits: tuple[float, float]
) -> Markup:
    (x, y, width), (low, high) = place, limits
    share = (figure.estimate - low) / (high - low) if high > low else 1.0
    number = ".0%" if found.is_rate else ".4g"
    return Markup(
        '<g><title>{}: {}</title><rect class="fill c0" x="{:.1f}" y="{}" width="{:.1f}" height="{}" rx="4" opacity="{:.2f}"/>'
        '<text class="heat" x="{:.1f}" y="{}">{}</text></g>'
    ).format(
        name,
        f"{figure:{number}}",
        x + 1,
        y + 1,
        width - 2,
        ROW - 2,
        0.08 + 0.62 * share,
        x + width / 2,
        y + 0.64 * ROW,
        found.shown(figure),
    )


def _title(grid: Grid) -> str:
    return f"{grid.rows.name} (down) and {grid.columns.name} (across)" if grid.rows.name else grid.columns.name
