"""Small line charts and bars as inline SVG, with the colors of the page's light or dark style."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

WIDTH, HEIGHT = 400.0, 230.0
LEFT, RIGHT, TOP, BOTTOM = 44.0, 16.0, 10.0, 38.0
MOST_POINTS = 240  # of one line; more cannot be distinguished
LARGEST = 1e300
"""Values of this size and above, infinity and NaN are not drawn: the difference of two of them could be infinite."""
COLORS = 8
GREY = 8


@dataclass(frozen=True)
class Series:
    """One line of a chart: points (x, y) with a name and color; its values are not NaN."""

    label: str
    color: int
    points: Sequence[tuple[float, float]]
    band: Sequence[tuple[float, float, float]] = ()
    """(x, low, high) of a confidence interval around the line"""
    faint: bool = False
    """True for a thin background line without markers."""
    marked: bool = True
    """True if each point has a marker; many markers would hide the line."""


@dataclass(frozen=True)
class Across:
    """Horizontal axis of a chart, starting at 0: what its numbers count."""

    title: str = "training steps"
    place: str = "step"
    """What one number on the axis counts, such as "step"."""
    whole: bool = False
    """True if ticks are at whole numbers only, as for a number of trials."""


class Axes:
    """Converts the values of a chart to coordinates in the drawing."""

    def __init__(
        self,
        series: Sequence[Series],
        y_limits: tuple[float, float] | None,
        *,
        whole: bool = False,
        limit: float | None = None,
    ) -> None:
        xs = [x for one in series for x, _ in one.points]
        ys = [y for one in series for _, y in one.points]
        ys += [y for one in series for _, low, high in one.band for y in (low, high) if math.isfinite(y)]
        ys += [] if limit is None else [limit]
        self.x_high = max(*xs, 1e-9)
        self.y_low, self.y_high = y_limits or _with_margin(min(ys), max(ys))
        self.x_ticks = [tick for tick in ticks(0.0, self.x_high) if not whole or tick == round(tick)]
        self.y_ticks = ticks(self.y_low, self.y_high)

    def x(self, value: float) -> float:
        """Return the coordinate from the left, in units of the drawing, for a value on the horizontal axis."""
        return round(LEFT + value / self.x_high * (WIDTH - LEFT - RIGHT), 1)

    def y(self, value: float) -> float:
        """Return the coordinate from the top, in units of the drawing, for a value on the vertical axis."""
        share = (value - self.y_low) / (self.y_high - self.y_low)
        return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 1)


def line_chart(
    series: Sequence[Series],
    *,
    title: str,
    y_limits: tuple[float, float] | None = None,
    percent: bool = False,
    across: Across = Across(),
    limit: float | None = None,
) -> Markup:
    """Return lines as SVG, over training steps by default; empty if there is nothing to draw.

    limit: value drawn as a dashed horizontal line.
    """
    series = [one for one in series if one.points]
    if not series:
        return Markup("")
    axes = Axes(series, y_limits, whole=across.whole, limit=limit)
    number = f"{{:.0{'%' if percent else 'f'}}}".format if percent else short
    parts = [_grid(axes, number, across.title)]
    parts += [_band(axes, one) for one in series]
    parts += [_limit(axes, limit)] if limit is not None else []
    parts += [_line(axes, one) for one in sorted(series, key=lambda one: not one.faint)]
    parts += [_markers(axes, one, number, across.place) for one in series if one.marked and not one.faint]
    return _drawing(title, parts)


def bar_chart(counts: Sequence[int], edges: Sequence[float], *, title: str, across: str) -> Markup:
    """Return a histogram as SVG: counts (n,) between edges (n+1,); empty if all counts are 0."""
    if not any(counts):
        return Markup("")
    low, high, most = edges[0], edges[-1], max(counts)
    width, bottom = (WIDTH - LEFT - RIGHT) / len(counts), HEIGHT - BOTTOM
    form = Markup('<rect class="fill c0" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"><title>{}</title></rect>')
    parts = []
    for value in ticks(0.0, float(most)):
        y = bottom - value / most * (bottom - TOP)
        parts.append(Markup('<line class="grid" x1="{}" x2="{}" y1="{y:.1f}" y2="{y:.1f}"/>').format(LEFT, WIDTH - RIGHT, y=y))
        parts.append(Markup('<text class="tick end" x="{}" y="{:.1f}">{}</text>').format(LEFT - 6, y + 4, short(value)))
    for index, count in enumerate(counts):
        height = count / most * (bottom - TOP)
        place = LEFT + index * width + 0.5, bottom - height, max(width - 1, 0.5), height
        parts.append(form.format(*place, f"{count}: {short(edges[index])} to {short(edges[index + 1])}"))
    for value in ticks(low, high) if low < high else []:
        x = LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT)
        parts.append(Markup('<text class="tick middle" x="{:.1f}" y="{}">{}</text>').format(x, bottom + 16, short(value)))
    parts.append(_axis_title(across))
    return _drawing(title, parts)


def _drawing(title: str, parts: Sequence[Markup]) -> Markup:
    return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        int(WIDTH), int(HEIGHT), title, Markup("").join(parts)
    )


def _axis_title(text: str) -> Markup:
    return Markup('<text class="axis middle" x="{}" y="{}">{}</text>').format((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 5, text)


def share_bar(shares: Mapping[str, float], colors: Mapping[str, int], *, title: str) -> Markup:
    """Return a horizontal bar divided into shares, as SVG."""
    total = sum(shares.values()) or 1.0
    left, parts = 0.0, []
    for name, value in shares.items():
        width = value / total * 100.0
        parts.append(
            Markup('<rect class="fill c{}" x="{:.2f}" y="0" width="{:.2f}" height="6"><title>{}: {:.0%}</title></rect>').format(
                colors[name], left, max(width - 0.4, 0.1), name, value / total
            )
        )
        left += width
    return Markup('<svg class="bar" viewBox="0 0 100 6" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>').format(
        title, Markup("").join(parts)
    )


def ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Return about `count` round numbers (1, 2, 2.5 or 5 times a power of ten) in [low, high]; low < high."""
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{index * step:.12g}") for index in range(first, last + 1)]


def short(value: float) -> str:
    """Return a number as short text, such as "20k" for 20000 and "1.5M" for 1500000."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def thinned(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return at most MOST_POINTS points of a curve, evenly chosen, always with the last.

    Not finite and huge values are left out.
    """
    kept = [point for point in points if abs(point[1]) < LARGEST]
    stride = max(1, math.ceil(len(kept) / MOST_POINTS))
    return kept[::-1][::stride][::-1]


def _with_margin(low: float, high: float) -> tuple[float, float]:
    margin = 0.04 * (high - low) or 0.5 * abs(high) or 0.5
    return low - margin, high + margin


def _grid(axes: Axes, number: Any, across: str) -> Markup:
    parts = []
    for value in axes.y_ticks:
        y = axes.y(value)
        parts.append(Markup('<line class="grid" x1="{}" x2="{}" y1="{y}" y2="{y}"/>').format(LEFT, WIDTH - RIGHT, y=y))
        parts.append(Markup('<text class="tick end" x="{}" y="{}">{}</text>').format(LEFT - 6, y + 4, number(value)))
    bottom = HEIGHT - BOTTOM
    for value in axes.x_ticks:
        parts.append(
            Markup('<text class="tick middle" x="{}" y="{}">{}</text>').format(axes.x(value), bottom + 16, short(value))
        )
    parts.append(_axis_title(across))
    return Markup("").join(parts)


def _limit(axes: Axes, value: float) -> Markup:
    form = Markup('<line class="limit" x1="{}" x2="{}" y1="{y}" y2="{y}"><title>limit {}</title></line>')
    return form.format(LEFT, WIDTH - RIGHT, short(value), y=axes.y(value))


def _band(axes: Axes, one: Series) -> Markup:
    finite = [(x, low, high) for x, low, high in one.band if math.isfinite(low) and math.isfinite(high)]
    if len(finite) < 2:
        return Markup("")
    outline = [(x, high) for x, _, high in finite] + [(x, low) for x, low, _ in reversed(finite)]
    return Markup('<polygon class="band c{}" points="{}"/>').format(one.color % COLORS, _places(axes, outline))


def _line(axes: Axes, one: Series) -> Markup:
    kind = "faint" if one.faint else "line"
    return Markup('<polyline class="{} c{}" points="{}"/>').format(kind, one.color % COLORS, _places(axes, one.points))


def _markers(axes: Axes, one: Series, number: Any, place: str) -> Markup:
    intervals = {x: f" [{number(low)}, {number(high)}]" for x, low, high in one.band if math.isfinite(low)}
    form = Markup('<circle class="dot c{}" cx="{}" cy="{}" r="3"><title>{}: {}{} at {} {}</title></circle>')
    return Markup("").join(
        form.format(one.color % COLORS, axes.x(x), axes.y(y), one.label, number(y), intervals.get(x, ""), place, short(x))
        for x, y in one.points
    )


def _places(axes: Axes, points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{axes.x(x)},{axes.y(y)}" for x, y in points)
