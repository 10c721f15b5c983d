"""Paint on the boxes of vehicles and props: windows, lamps and wheels, which distinguish front and rear.

A panel is a rectangle on one side of a box, in units of its half sizes. Silhouettes stay those of the boxes and agree with
labels and depth.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from carla_standin.layouts import Tag

Floats = npt.NDArray[np.float64]
Bgr = tuple[int, int, int]
"""Colour: blue, green, red, 0 to 255 each."""
COLOURS = (
    "17,37,103",
    "180,44,44",
    "220,220,220",
    "45,45,45",
    "150,155,160",
    "30,110,70",
    "200,150,40",
    "90,140,200",
    "110,70,45",
)
"""Colours of vehicles as texts "red,green,blue", 0 to 255 each: the format of CARLA's blueprint attribute `color`."""
SIDES = {"rear": (0, -1), "front": (0, 1), "left": (1, -1), "right": (1, 1), "bottom": (2, -1), "top": (2, 1)}
"""Side of a box -> axis of its normal (x 0, y 1, z 2), and the sign of the normal."""
SHADES = {"rear": 0.95, "front": 0.95, "left": 0.72, "right": 0.72, "bottom": 0.4, "top": 1.15}
"""Side of a box -> brightness of its colours: most light comes from above."""
DARK = (50, 42, 38)
WHITE = (245, 250, 250)
PAINTS: dict[str, Bgr] = {
    "glass": (70, 58, 48),
    "dark": DARK,
    "beam": WHITE,
    "tail": (30, 25, 200),
    "plate": (225, 230, 230),
    "stripe": WHITE,
    "skin": (120, 150, 205),
}
LIT: dict[str, Bgr] = {"brake": (60, 60, 255), "blinker": (0, 165, 255), "reverse": WHITE}
BRAKE, RIGHT, LEFT, REVERSE = 0x8, 0x10, 0x20, 0x40
"""Bits of CARLA's `VehicleLightState`."""
LAMPS = {"brake": BRAKE, "left blinker": LEFT, "right blinker": RIGHT, "reverse": REVERSE}
"""Panel of a vehicle -> flag of the lamp; the panel is painted only while that lamp is on."""
ANY = BRAKE | RIGHT | LEFT | REVERSE
SMALL = 8.0
"""[pixels] Height below which only panels with `far` are painted."""


@dataclass(frozen=True)
class Panel:
    """Painted rectangle on one side of a box: its side, its paint, and its range along the side's two axes."""

    side: str
    paint: str
    first: tuple[float, float] = (-1.0, 1.0)
    second: tuple[float, float] = (-1.0, 1.0)
    far: bool = True
    """True if the panel is painted however small the box is in the picture."""

    @property
    def corners(self) -> list[list[float]]:
        """The panel's four corners (x, y, z) in units of the box's half sizes, in order around it."""
        axis, sign = SIDES[self.side]
        (a, b), (c, d) = self.first, self.second
        return [[*pair[:axis], float(sign), *pair[axis:]] for pair in ([a, c], [b, c], [b, d], [a, d])]


def both(side: str, paint: str, first: tuple[float, float], second: tuple[float, float], far: bool = True) -> list[Panel]:
    """Return a panel and its mirror image to the other half of the side."""
    mirrored = -first[1], -first[0]
    return [Panel(side, paint, first, second, far), Panel(side, paint, mirrored, second, far)]


def flanks(paint: str, first: tuple[float, float], second: tuple[float, float], far: bool = True) -> list[Panel]:
    """Return two panels: the given rectangle on the left and on the right side of a box.

    Args:
        paint: Name of the paint.
        first: Range along the side's first axis, in half sizes.
        second: Range along the side's second axis, in half sizes.
        far: True to paint the panels at any size of the box in the picture.
    """
    return [Panel(side, paint, first, second, far) for side in ("left", "right")]


def around(paint: str, first: tuple[float, float], second: tuple[float, float], far: bool = True) -> list[Panel]:
    """Return four panels: the given rectangle on each upright side of a box.

    Args:
        paint: Name of the paint.
        first: Range along the side's first axis, in half sizes.
        second: Range along the side's second axis, in half sizes.
        far: True to paint the panels at any size of the box in the picture.
    """
    return [Panel(side, paint, first, second, far) for side in ("rear", "front", "left", "right")]


def _ends(lamps: tuple[float, float], rear_lamps: tuple[float, float]) -> list[Panel]:
    """Return the panels of a vehicle's lamps; lamps, rear_lamps: their range of heights at the front and rear."""
    return [
        *both("front", "beam", (0.55, 0.95), lamps),
        *both("rear", "tail", (0.52, 0.97), rear_lamps),
        Panel("rear", "plate", (-0.25, 0.25), (rear_lamps[0] - 0.2, rear_lamps[0] + 0.05), far=False),
        *both("rear", "brake", (0.52, 0.97), rear_lamps),
        Panel("rear", "brake", (-0.3, 0.3), (rear_lamps[1] + 0.08, rear_lamps[1] + 0.16)),
        *both("rear", "reverse", (0.4, 0.52), rear_lamps),
        *(Panel(side, "left blinker", (-1.0, -0.8), lamps) for side in ("front", "rear")),
        *(Panel(side, "right blinker", (0.8, 1.0), lamps) for side in ("front", "rear")),
    ]


def _wheels(*places: float, radius: float = 0.16, height: float = -0.48) -> list[Panel]:
    return [panel for at in places for panel in flanks("dark", (at - radius, at + radius), (-1.0, height), far=False)]


CAR = (
    Panel("front", "glass", (-0.85, 0.85), (0.2, 0.9)),
    Panel("rear", "glass", (-0.78, 0.78), (0.3, 0.88)),
    *flanks("glass", (-0.82, -0.16), (0.25, 0.86)),
    *flanks("glass", (-0.08, 0.5), (0.25, 0.86)),
    Panel("top", "glass", (0.28, 0.55), (-0.82, 0.82)),
    Panel("top", "glass", (-0.85, -0.7), (-0.75, 0.75)),
    Panel("front", "dark", (-0.5, 0.5), (-0.62, -0.2)),
    *both("front", "dark", (0.5, 1.0), (-0.5, 0.0), far=False),
    *both("rear", "dark", (0.47, 1.0), (-0.42, 0.18), far=False),
    Panel("rear", "dark", (-0.95, 0.95), (-1.0, -0.7), far=False),
    *_wheels(0.62, -0.62),
    *_ends((-0.42, -0.08), (-0.34, 0.1)),
)
TRUCK = (
    Panel("front", "glass", (-0.88, 0.88), (0.05, 0.7)),
    *flanks("glass", (0.62, 0.92), (0.05, 0.6)),
    *flanks("dark", (0.5, 0.54), (-0.5, 1.0), far=False),
    Panel("top", "dark", (0.5, 0.56), (-1.0, 1.0)),
    Panel("front", "dark", (-0.5, 0.5), (-0.7, -0.3)),
    Panel("rear", "dark", (-0.04, 0.04), (-0.4, 0.95), far=False),
    Panel("rear", "dark", (-0.95, 0.95), (-1.0, -0.8)),
    *_wheels(0.68, -0.6, radius=0.14, height=-0.62),
    *_ends((-0.7, -0.45), (-0.75, -0.45)),
)
BUS = (
    Panel("front", "glass", (-0.9, 0.9), (-0.1, 0.75)),
    Panel("rear", "glass", (-0.7, 0.7), (0.25, 0.75)),
    *(panel for at in (-0.8, -0.43, -0.06, 0.31) for panel in flanks("glass", (at - 0.15, at + 0.15), (0.0, 0.7))),
    *flanks("glass", (0.55, 0.92), (-0.6, 0.7)),
    Panel("top", "dark", (0.9, 1.0), (-0.9, 0.9)),
    Panel("rear", "dark", (-0.95, 0.95), (-1.0, -0.85)),
    *_wheels(0.6, -0.6, radius=0.08, height=-0.68),
    *_ends((-0.78, -0.55), (-0.8, -0.5)),
)
CYCLE = (
    *around("dark", (-0.9, 0.9), (-1.0, -0.2)),
    Panel("top", "dark", (0.5, 1.0), (-0.6, 0.6)),
    *around("skin", (-0.5, 0.5), (0.72, 1.0)),
    Panel("front", "beam", (-0.5, 0.5), (-0.3, 0.05)),
    Panel("rear", "tail", (-0.5, 0.5), (-0.3, 0.05)),
    Panel("rear", "brake", (-0.6, 0.6), (-0.3, 0.1)),
    *(Panel(side, "left blinker", (-1.0, -0.6), (-0.3, 0.05)) for side in ("front", "rear")),
    *(Panel(side, "right blinker", (0.6, 1.0), (-0.3, 0.05)) for side in ("front", "rear")),
)
STRIPED = (*around("stripe", (-1.0, 1.0), (-0.15, 0.35)),)


@dataclass(frozen=True)
class Plan:
    """Panels of a box to paint, in this order."""

    corners: Floats
    """Corners of the p painted rectangles, (p, 4, 3), in units of the box's half sizes."""
    paints: tuple[str, ...]


class Coat:
    """All panels of a kind of body, its six sides first."""

    def __init__(self, panels: tuple[Panel, ...] = ()) -> None:
        self.panels = (*(Panel(side, side) for side in SIDES), *panels)
        self._plans: dict[tuple[int, bool, int], Plan] = {}

    def plan(self, sides: int, small: bool, lamps: int) -> Plan:
        """Return the panels to paint.

        sides: visible sides as a number, 9 x + 3 y + z: along each axis 0 for the low side, 1 for none, 2 for the high one.
        small: only panels with `far`. lamps: flags of lamps that are on.
        """
        key = sides, small, lamps & ANY
        if key not in self._plans:
            chosen = list(self._chosen(*key))
            paints = tuple(panel.paint.removeprefix("left ").removeprefix("right ") for panel in chosen)
            self._plans[key] = Plan(np.array([panel.corners for panel in chosen]), paints)
        return self._plans[key]

    def _chosen(self, sides: int, small: bool, lamps: int) -> Iterator[Panel]:
        seen = sides // 9 - 1, sides // 3 % 3 - 1, sides % 3 - 1
        for panel in self.panels:
            axis, sign = SIDES[panel.side]
            is_on = panel.paint not in LAMPS or lamps & LAMPS[panel.paint]
            if seen[axis] == sign and is_on and (panel.far or not small):
                yield panel


COATS = {
    Tag.CAR: Coat(CAR),
    Tag.TRUCK: Coat(TRUCK),
    Tag.BUS: Coat(BUS),
    Tag.MOTORCYCLE: Coat(CYCLE),
    Tag.BICYCLE: Coat(CYCLE),
}
WARNING = Coat(STRIPED)
BARE = Coat()
"""Paint of bodies without a design of their own: plain sides."""
WARNINGS = "barrier", "cone", "warning"
"""Words in the names of props, such as traffic cones, that are painted as warnings."""
ORANGE: Bgr = (60, 120, 220)
PLAIN: tuple[Bgr, ...] = ((105, 125, 140), (70, 95, 120), (120, 120, 112), (75, 110, 80), (130, 105, 85))
"""Colours (blue, green, red) of props that have none of their own; a prop's name chooses one."""


def coat_of(type_id: str, tag: int) -> Coat:
    """Return the painted panels of an actor of this type and label."""
    if _is_warning(type_id):
        return WARNING
    return COATS.get(Tag(tag), BARE) if tag else BARE


def colour_of(type_id: str, given: str) -> Bgr:
    """Return the colour of a body: the given one, "red,green,blue", or one of its kind if that is invalid."""
    try:
        red, green, blue = (int(part) % 256 for part in given.split(","))
    except ValueError:
        return ORANGE if _is_warning(type_id) else PLAIN[sum(type_id.encode()) % len(PLAIN)]
    return blue, green, red


def _is_warning(type_id: str) -> bool:
    return type_id.startswith("static.") and any(word in type_id for word in WARNINGS)


@dataclass(frozen=True)
class Paints:
    """Colours in which one box is painted: those of its body, and of glass, lamps and the like."""

    body: Bgr

    @cached_property
    def colours(self) -> dict[str, tuple[int, int, int, int]]:
        """Return a dictionary: name of a paint -> blue, green, red and alpha of a pixel, 0 to 255."""
        sides = {side: _shaded(self.body, shade) for side, shade in SHADES.items()}
        return {name: (*colour, 255) for name, colour in (sides | PAINTS | LIT).items()}


def _shaded(colour: Bgr, shade: float) -> Bgr:
    blue, green, red = (min(round(shade * part + 8), 255) for part in colour)
    return blue, green, red
