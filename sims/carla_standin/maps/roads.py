"""Elements of a road map as in OpenDRIVE 1.4: x east, y north, heading anticlockwise [rad], lengths [m].

A `Road` has one lane section: a road of a file with several becomes a chain of them with the same `source`, which are written
as one road again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from carla_standin.maps.curves import Cubic, Floats, Spiral

Polynomial = tuple[float, float, float, float, float]
"""Part of a piecewise cubic: its start [m], and coefficients a, b, c, d of a polynomial in the distance from the start."""


def piecewise(parts: tuple[Polynomial, ...], s: Floats, end: float | None = None) -> Floats:
    """Evaluate a piecewise cubic polynomial, as OpenDRIVE has them; return 0 everywhere if it has no part.

    Args:
        parts: Start s [m] and the four coefficients of each part, sorted by start.
        s: Positions along the road [m].
        end: [s coordinate, m] From here on the part that began before `end` counts, even if another part starts at `end`.
    """
    if not parts:
        return np.zeros_like(s)
    starts = np.array([part[0] for part in parts])
    chosen = np.maximum(np.searchsorted(starts, s + 1e-9, side="right") - 1, 0)
    if end is not None:
        chosen = np.minimum(chosen, max(int(np.searchsorted(starts, end - 1e-9, side="left")) - 1, 0))
    rows = np.array(parts)[chosen]
    ds = s - rows[:, 0]
    return np.asarray(rows[:, 1] + ds * (rows[:, 2] + ds * (rows[:, 3] + ds * rows[:, 4])))


@dataclass(frozen=True)
class Piece:
    """Piece of a road's reference line: a line, an arc, or a curve of another shape."""

    x: float
    y: float
    heading: float
    length: float
    curvature: float = 0.0
    """Curvature [1/m], constant along the piece: 0 for a straight line, positive for a bend to the left."""
    shape: Spiral | Cubic | None = None
    """Shape of a piece that is a spiral or a cubic; None for a line or an arc."""

    @property
    def bends(self) -> tuple[float, float]:
        """Least and greatest curvature [1/m]."""
        return (self.curvature, self.curvature) if self.shape is None else self.shape.bends

    def at(self, s: Floats) -> tuple[Floats, Floats, Floats]:
        """Return x, y [m] and heading [rad] at distances `s` [m] from the start of the piece."""
        if self.shape is not None:
            u, v, turned = self.shape.at(s)
            cosine, sine = np.cos(self.heading), np.sin(self.heading)
            return self.x + u * cosine - v * sine, self.y + u * sine + v * cosine, self.heading + turned
        heading = self.heading + self.curvature * s
        if abs(self.curvature) < 1e-12:
            return self.x + s * np.cos(self.heading), self.y + s * np.sin(self.heading), heading
        x = self.x + (np.sin(heading) - np.sin(self.heading)) / self.curvature
        y = self.y - (np.cos(heading) - np.cos(self.heading)) / self.curvature
        return x, y, heading


@dataclass(frozen=True)
class Lane:
    """Lane of a road. Negative ids lie right of the reference line and are driven along it, positive ids against it."""

    id: int
    kind: str = "driving"
    width: tuple[float, float, float, float] = (3.5, 0.0, 0.0, 0.0)
    """Width of the lane [m]: coefficients a, b, c, d of a + b s + c s^2 + d s^3, where s [m] is the distance along the
    section."""
    mark: str = "solid"
    """Mark of the outer edge: "solid", "broken" or "none"."""
    predecessor: int | None = None
    successor: int | None = None
    change: str | None = None
    """Lane changes over the outer edge: "both", "increase", "decrease", "none", "" if unspecified, None for the default."""
    later_widths: tuple[Polynomial, ...] = ()
    """Widths of the lane further along: polynomials that each apply from their start on."""
    later_marks: tuple[tuple[float, str, str], ...] = ()
    """Distance [m], kind and permitted lane changes of lines that apply from there on."""

    @property
    def lane_change(self) -> str:
        """Permitted lane changes over the outer edge: by default both ways over a broken line, and none over others."""
        return ("both" if self.mark == "broken" else "none") if self.change is None else self.change

    def width_at(self, s: Floats) -> Floats:
        """Return the width [m] of the lane at distances `s` [m] along the section."""
        a, b, c, d = self.width
        if not self.later_widths:
            return a + s * (b + s * (c + s * d))
        return piecewise(((0.0, *self.width), *self.later_widths), s)


@dataclass(frozen=True)
class Link:
    """What a road's end is linked to: an end of another road, or a junction."""

    kind: str
    id: int
    contact: str | None = None


@dataclass(frozen=True)
class Signal:
    """Traffic light or traffic sign beside a road."""

    id: int
    s: float
    t: float
    type: str
    value: float = -1.0
    unit: str = ""
    orientation: str = "+"
    """Direction of its traffic: "+" along the reference line, "-" against it."""
    lanes: tuple[int, int] = (-1, -1)
    dynamic: bool = False


@dataclass(frozen=True)
class Reference:
    """Reference to a signal that stands elsewhere: it must be obeyed here, too."""

    signal: int
    """Id of the traffic light or sign that is referred to."""
    s: float
    t: float
    orientation: str = "+"
    lanes: tuple[int, int] = (0, 0)
    """Lanes for which it counts there; 0 and 0 for all of its orientation."""


@dataclass(frozen=True)
class Building:
    """A box next to the road, parallel to it."""

    id: int
    s: float
    t: float
    length: float
    width: float
    height: float


@dataclass(frozen=True)
class Crosswalk:
    """A polygon across the road, in a frame at s and t."""

    id: str
    s: float
    t: float
    heading: float
    """Angle [rad] of the crosswalk's u axis against the direction of the road."""
    corners: tuple[tuple[float, float, float], ...]
    """Corners of the crosswalk u, v, z [m], in its own frame. The last repeats the first if the map closes the polygon, as
    it should."""
    name: str = "crosswalk"
    z: float = 0.0
    """Height of the crosswalk above the road [m]."""
    orientation: str = "none"

    @property
    def size(self) -> tuple[float, float]:
        """Length [m] along u and width [m] along v."""
        u, v = (np.array([corner[axis] for corner in self.corners]) for axis in (0, 1))
        return float(np.ptp(u)), float(np.ptp(v))


@dataclass(frozen=True)
class Road:
    """Road with one lane section: its reference line, lanes and links, and what stands beside it."""

    id: int
    pieces: tuple[Piece, ...]
    lanes: tuple[Lane, ...]
    junction: int = -1
    predecessor: Link | None = None
    successor: Link | None = None
    speed: float = 50.0 / 3.6
    """Speed limit [m/s] of the road."""
    centre_mark: str = "broken"
    signals: tuple[Signal, ...] = ()
    buildings: tuple[Building, ...] = ()
    crosswalks: tuple[Crosswalk, ...] = ()
    centre_change: str = "none"
    """Lane changes that are allowed across the reference line: "none" by default, because the other side is oncoming
    traffic."""
    later_centre_marks: tuple[tuple[float, str, str], ...] = ()
    source: int | None = None
    """Id of the road in the file that has this section; by default its own."""
    begin: float = 0.0
    """[m] Start of the section along the pieces of the whole road."""
    extent: float | None = None
    """Length [m] of this section; None if it reaches to the end of the road."""
    offsets: tuple[Polynomial, ...] = ()
    """[m] Offset of the middle line to the left of the pieces, along the whole road."""
    references: tuple[Reference, ...] = ()

    @cached_property
    def length(self) -> float:
        """Length [m] of the reference line."""
        return self.whole - self.begin if self.extent is None else self.extent

    @cached_property
    def whole(self) -> float:
        """Length [m] of the whole road, the sum of its pieces."""
        return float(sum(piece.length for piece in self.pieces))

    @property
    def number(self) -> int:
        """Id of the road in the map file; all lane sections of a road share it."""
        return self.id if self.source is None else self.source

    @property
    def label(self) -> str:
        """Name of the road section in messages: the road's number, and where a later section begins."""
        return str(self.number) if self.begin == 0 else f"{self.number} (from {self.begin:g} m)"

    def at(self, s: Floats) -> tuple[Floats, Floats, Floats]:
        """Return x, y [m] and heading [rad] of the reference line at distances `s` [m] along it."""
        s = s + self.begin
        starts = np.concatenate([[0.0], np.cumsum([piece.length for piece in self.pieces])])[:-1]
        index = np.clip(np.searchsorted(starts, s, side="right") - 1, 0, len(self.pieces) - 1)
        out = np.empty((3, len(s)))
        for number, piece in enumerate(self.pieces):
            chosen = index == number
            out[:, chosen] = piece.at(s[chosen] - starts[number])
        return out[0], out[1], out[2]

    def lane(self, number: int) -> Lane | None:
        """Return a lane by its number, or None."""
        return next((lane for lane in self.lanes if lane.id == number), None)

    def edges(self, number: int, s: Floats) -> tuple[Floats, Floats]:
        """Return the offsets t [m] of a lane's inner and outer edge at positions `s` [m] along the reference line.

        t is positive to the left of the reference line.
        """
        side = 1 if number > 0 else -1
        inner = self.middle(s)
        for lane in sorted(self.lanes, key=lambda lane: abs(lane.id)):
            if lane.id * side > 0 and abs(lane.id) < abs(number):
                inner = inner + side * lane.width_at(s)
        own = self.lane(number)
        return inner, inner + side * (own.width_at(s) if own else 0.0)

    def middle(self, s: Floats) -> Floats:
        """Return the offset t [m] of the line that separates both directions of travel, at positions `s` [m] along the road."""
        if not self.offsets:
            return np.zeros_like(s)
        return piecewise(self.offsets, s + self.begin, self.begin + self.length)

    def beside(self, s: Floats, t: Floats) -> tuple[Floats, Floats, Floats]:
        """Return x, y [m] and heading [rad] of points at s along the reference line and t to the left of it."""
        x, y, heading = self.at(s)
        return x - t * np.sin(heading), y + t * np.cos(heading), heading

    def outline(self, crosswalk: Crosswalk) -> Floats:
        """Return the corners (n, 2) [m] of a crosswalk of this road."""
        s = np.array([crosswalk.s])
        x, y, heading = self.beside(s, self.middle(s) + crosswalk.t)
        u, v, _ = np.array(crosswalk.corners).T
        cosine, sine = np.cos(heading + crosswalk.heading), np.sin(heading + crosswalk.heading)
        return np.stack([x + u * cosine - v * sine, y + u * sine + v * cosine], axis=1)


@dataclass(frozen=True)
class Connection:
    """One way through a junction. `links` pairs each lane of the incoming road with a lane of the connecting road."""

    id: int
    incoming: int
    connecting: int
    contact: str
    links: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Controller:
    """Group of traffic lights that always show the same colour."""

    id: int
    signals: tuple[int, ...]


@dataclass(frozen=True)
class Junction:
    """Junction of a map: its id, and the ways through it."""

    id: int
    connections: tuple[Connection, ...]
    controllers: tuple[int, ...] = ()


@dataclass(frozen=True)
class RoadMap:
    """Map as roads, junctions and controllers of lights, before it is checked (`Town`)."""

    name: str
    roads: tuple[Road, ...]
    junctions: tuple[Junction, ...] = ()
    controllers: tuple[Controller, ...] = ()
    latitude: float = 49.0
    """Geographic latitude [degree] of the map's origin."""
    longitude: float = 8.0
    by_id: dict[int, Road] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_id", {road.id: road for road in self.roads})
