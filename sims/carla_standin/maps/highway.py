"""A closed one-way highway with an exit to a parallel slower road, and an entry with a merging lane."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from carla_standin.maps.grid import LIMIT
from carla_standin.maps.roads import Connection, Junction, Lane, Link, Piece, Road, RoadMap, Signal

WIDTH = 3.5
JUNCTION = 12.0
"""[m] length of the two junctions in which ways split and merge."""
RAMP_RADIUS = 80.0
"""Radius [m] of the bends of the ramps."""
SHUT = 1e-9
"""Extra width [m] with which a lane closes, so that rounding does not make its width negative."""
EXIT, ENTRY = 1000, 1001
"""Ids of the junction with the exit, and of that with the entry."""
Pose2D = tuple[float, float, float]
Width = tuple[float, float, float, float]


@dataclass(frozen=True)
class Highway:
    """Settings of a map of a highway."""

    lanes: int = 2
    radius: float = 120.0
    """Radius [m] of the highway's two bends, at the left edge of the road."""
    taper: float = 60.0
    """Length [m] along which a lane opens to its full width or closes."""
    aside: float = 120.0
    """[m] length of the exit lane, and of the merging lane."""
    between: float = 160.0
    """[m] length of the slow road."""
    offset: float = 18.0
    """Distance [m] of the slow road to the right of the highway."""
    speed: float = 110 / 3.6
    """Speed limit of the highway [m/s]; that of the slow road is the next field."""
    slow: float = 60 / 3.6

    @classmethod
    def drawn(cls, random: np.random.Generator) -> Highway:
        """Return the settings of a random highway."""
        low, high = [90.0, 40.0, 80.0, 80.0, 14.0], [180.0, 80.0, 180.0, 240.0, 26.0]
        radius, taper, aside, between, offset = (float(value) for value in random.uniform(low, high))
        speeds = float(random.choice([90, 100, 110, 120])) / 3.6, float(random.choice([50, 60, 70])) / 3.6
        return cls(int(random.integers(2, 4)), radius, taper, aside, between, offset, *speeds)

    @property
    def shift_angle(self) -> float:
        """Angle [rad] of each of the two bends by which a ramp moves sideways."""
        return math.acos(1 - self.offset / (2 * RAMP_RADIUS))

    def build(self, name: str) -> RoadMap:
        """Return the map: the highway from the widening before the exit on, the slow road, and the ways of two junctions."""
        n = self.lanes
        first = (0.0, 0.0, 0.0)
        ramp_shape = self._ramp_shape()
        parallel = 4 * RAMP_RADIUS * math.sin(self.shift_angle) + self.between
        opening, at = chain(first, [(self.taper, 0.0)])
        leaving, at = chain(at, [(self.aside, 0.0)])
        exit_on, after_exit = chain(at, [(JUNCTION, 0.0)])
        exit_off, ramp_start = chain(self._right_of(at), [(JUNCTION, 0.0)])
        along, at = chain(after_exit, [(parallel, 0.0)])
        ramp, ramp_end = chain(ramp_start, ramp_shape)
        entry_on, after_entry = chain(at, [(JUNCTION, 0.0)])
        entry_off, _ = chain(ramp_end, [(JUNCTION, 0.0)])
        merging, at = chain(after_entry, [(self.aside, 0.0)])
        closing, at = chain(at, [(self.taper, 0.0)])
        half = [(math.pi * self.radius, 1 / self.radius)]
        bend, at = chain(at, half)
        back, at = chain(at, [(at[0] - first[0], 0.0)])
        last, _ = chain(at, half)
        wide, narrow = (0.0, 0.0, 3 * WIDTH / self.taper**2, -2 * WIDTH / self.taper**3), (WIDTH, 0.0, 0.0, 0.0)
        shut = (WIDTH + SHUT, 0.0, -wide[2], -wide[3])
        main, slow = self.speed, self.slow
        to_exit, to_entry = Link("junction", EXIT), Link("junction", ENTRY)
        roads = (
            road(0, opening, lanes_of(n + 1, wide, n, n + 1), _end(8), _start(1), main),
            road(1, leaving, lanes_of(n + 1, narrow, n + 1, 0), _end(0), to_exit, main),
            road(2, along, lanes_of(n, narrow, 0, 0), to_exit, to_entry, main),
            road(3, ramp, lanes_of(1, narrow, 0, 0), to_exit, to_entry, slow),
            road(4, merging, lanes_of(n + 1, narrow, 0, n + 1), to_entry, _start(5), main),
            road(5, closing, lanes_of(n + 1, shut, n + 1, n), _end(4), _start(6), main),
            road(6, bend, lanes_of(n, narrow, n, n), _end(5), _start(7), main),
            road(7, back, lanes_of(n, narrow, n, n), _end(6), _start(8), main),
            road(8, last, lanes_of(n, narrow, n, n), _end(7), _start(0), main),
            road(100, exit_on, lanes_of(n, narrow, n, n), _end(1), _start(2), main, EXIT),
            road(101, exit_off, one_lane(-n - 1, -1), _end(1), _start(3), slow, EXIT),
            road(102, entry_on, lanes_of(n, narrow, n, n), _end(2), _start(4), main, ENTRY),
            road(103, entry_off, one_lane(-1, -n - 1), _end(3), _start(4), slow, ENTRY),
        )
        straight_on = tuple((-k, -k) for k in range(1, n + 1))
        leave = Connection(0, 1, 100, "start", straight_on), Connection(1, 1, 101, "start", ((-n - 1, -1),))
        enter = Connection(0, 2, 102, "start", straight_on), Connection(1, 3, 103, "start", ((-1, -1),))
        signed = tuple(self._with_limit(one) if one.id in (0, 3, 4) else one for one in roads)
        return RoadMap(name, signed, (Junction(EXIT, leave), Junction(ENTRY, enter)))

    def _ramp_shape(self) -> list[tuple[float, float]]:
        arc, bend = RAMP_RADIUS * self.shift_angle, 1 / RAMP_RADIUS
        return [(arc, -bend), (arc, bend), (self.between, 0.0), (arc, bend), (arc, -bend)]

    def _right_of(self, pose: Pose2D) -> Pose2D:
        """Return the left edge of the lane right of the highway."""
        x, y, heading = pose
        aside = self.lanes * WIDTH
        return x + aside * math.sin(heading), y - aside * math.cos(heading), heading

    def _with_limit(self, one: Road) -> Road:
        count = len(one.lanes)
        sign = Signal(10 * one.id, 2.0, -WIDTH * count - 1.0, LIMIT, round(one.speed * 3.6), "km/h", "+", (-count, -1))
        return replace(one, signals=(sign,))


def chain(start: Pose2D, parts: list[tuple[float, float]]) -> tuple[tuple[Piece, ...], Pose2D]:
    """Return connected pieces of given length and curvature, and the end pose of the last one."""
    x, y, heading = start
    pieces = []
    for length, curvature in parts:
        piece = Piece(x, y, heading, length, curvature)
        x, y, heading = (float(value[0]) for value in piece.at(np.array([length])))
        pieces.append(piece)
    return tuple(pieces), (x, y, heading)


def road(
    number: int,
    pieces: tuple[Piece, ...],
    lanes: tuple[Lane, ...],
    before: Link,
    after: Link,
    speed: float,
    junction: int = -1,
) -> Road:
    """Return a one-way road."""
    return Road(number, pieces, lanes, junction, before, after, speed, "none" if junction != -1 else "solid")


def lanes_of(count: int, last: Width, before: int, after: int) -> tuple[Lane, ...]:
    """Return lanes of one direction; `before` and `after` of them, from the left, are linked to lanes of the same number."""
    return tuple(
        Lane(
            -k,
            "driving",
            last if k == count else (WIDTH, 0.0, 0.0, 0.0),
            "solid" if k == count else "broken",
            -k if k <= before else None,
            -k if k <= after else None,
        )
        for k in range(1, count + 1)
    )


def one_lane(before: int, after: int) -> tuple[Lane, ...]:
    """Return the only lane of a road through a junction, linked to a lane before and a lane after it."""
    return (Lane(-1, "driving", (WIDTH, 0.0, 0.0, 0.0), "none", before, after),)


def _end(number: int) -> Link:
    return Link("road", number, "end")


def _start(number: int) -> Link:
    return Link("road", number, "start")
