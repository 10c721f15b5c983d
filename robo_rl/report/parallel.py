"""Parallel coordinates as inline SVG: an axis for each setting, a line for each trial."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from robo_rl.report.charts import short

SPACING, HEIGHT, TOP, BOTTOM, SIDE = 120.0, 300.0, 24.0, 60.0, 70.0
WIDTH = 860.0  # of a page's card [px]: a narrower drawing would be stretched, letters included
LETTER = 7.5  # width of one, about


@dataclass(frozen=True)
class Axis:
    """Axis of the chart for one setting: a range of numbers from low to high, or some choices."""

    title: str
    low: float = 0.0
    high: float = 1.0
    log: bool = False
    choices: Sequence[Any] = ()

    def share(self, value: Any) -> float:
        """Return the position of a value: 0 at the lower end, 1 at the upper."""
        if self.choices:
            return self.choices.index(value) / max(len(self.choices) - 1, 1)
        low, high, found = (math.log(each) if self.log else each for each in (self.low, self.high, value))
        return (found - low) / (high - low) if high > low else 0.5

    @property
    def ends(self) -> list[tuple[float, str]]:
        """Positions (0 to 1) and texts of the labels at the ends of the axis, or of all choices."""
        if self.choices:
            return [(self.share(choice), json.dumps(choice)) for choice in self.choices]
        return [(0.0, short(self.low)), (1.0, short(self.high))]


def parallel_chart(axes: Sequence[Axis], lines: Sequence[tuple[str, str, Mapping[str, Any]]], *, title: str) -> Markup:
    """Return the drawing as SVG, empty without lines; lines: (style class, label, value by axis title)."""
    if not lines:
        return Markup("")
    spacing = max(SPACING, (WIDTH - 2 * SIDE) / max(len(axes) - 1, 1))
    width = max(WIDTH, 2 * SIDE + spacing * (len(axes) - 1))
    is_crowded = max(len(_name(axis)) for axis in axes) * LETTER > spacing
    parts = [_axis(axis, _x(index, spacing), 18 * (index % 2) if is_crowded else 0) for index, axis in enumerate(axes)]
    form = Markup('<polyline class="{}" points="{}"><title>{}</title></polyline>')
    for style, label, values in lines:
        known = [(index, axis.share(values[axis.title])) for index, axis in enumerate(axes) if axis.title in values]
        parts.append(form.format(style, " ".join(f"{_x(index, spacing):.1f},{_y(share):.1f}" for index, share in known), label))
    return Markup('<svg class="chart wide" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        int(width), int(HEIGHT), title, Markup("").join(parts)
    )


def _axis(axis: Axis, x: float, lowered: float) -> Markup:
    parts = [Markup('<line class="grid" x1="{x}" x2="{x}" y1="{}" y2="{}"/>').format(_y(1.0), _y(0.0), x=x)]
    tick = Markup('<text class="tick" x="{}" y="{:.1f}">{}</text>')
    parts += [tick.format(x + 4, _y(share) - 4, words) for share, words in axis.ends]
    below = HEIGHT - BOTTOM + 24 + lowered
    parts.append(Markup('<text class="axis middle" x="{}" y="{}">{}</text>').format(x, below, _name(axis)))
    return Markup("").join(parts)


def _name(axis: Axis) -> str:
    return axis.title.rpartition(".")[2]


def _x(index: int, spacing: float) -> float:
    return SIDE + index * spacing


def _y(share: float) -> float:
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
