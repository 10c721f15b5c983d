"""Random routes along the lanes of a map, and a car's progress on them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from robo_rl.errors import InvalidSetting
from robo_sims.carla.roads import HEADING, JUNCTION, SPACING, Floats, Roads

SETS = ("train", "test")
BLOCK, EVERY = 20, 5
"""Length [m] of a block of a lane, and which blocks are test: routes that start in every fifth block are held out."""
CLEAR = 12.0
"""Length [m] without a junction at the start of a route, since a car that starts at a stop line could not stop before it."""
TRIES = 200
SAME = 0.05
"""Distance [m] below which two points of a route count as the same."""
AHEAD, BEHIND = 12, 12
"""[points] search window around the last position: a route may cross itself."""


@dataclass(frozen=True)
class Route:
    """Path along lanes that the car is to drive, as points at equal distances."""

    points: Floats
    """(n, 6) as lane points, `SPACING` apart."""

    @property
    def length(self) -> float:
        """Length of the route [m]."""
        return (len(self.points) - 1) * SPACING

    def ahead(self, s: float, distances: Floats) -> Floats:
        """Return x and y (k, 2) at distances (k,) [m] ahead of s [m]; extrapolated beyond the end."""
        wanted = s / SPACING + distances / SPACING
        inside = np.minimum(np.maximum(wanted, 0), len(self.points) - 1)
        first = np.minimum(inside.astype(np.intp), len(self.points) - 2)
        start, end = self.points[first, :2], self.points[first + 1, :2]
        return start + (wanted - first)[:, None] * (end - start)


def draw_route(roads: Roads, random: np.random.Generator, which: str, length: float) -> Route:
    """Return a random route of a set; raises InvalidSetting if the map has none of this length."""
    for _ in range(TRIES):
        lane = int(random.integers(len(roads.lanes)))
        start = int(random.integers(len(roads.lanes[lane].points)))
        if roads.lanes[lane].points[start, JUNCTION] or set_of(lane, start) != which:
            continue
        points = _followed(roads, random, lane, start, length)
        if points is not None and not points[: int(CLEAR / SPACING), JUNCTION].any():
            return Route(points)
    raise InvalidSetting("The map has no route of this length.", got=f"{length} m, set {which!r}", fix="ask for a shorter one")


def set_of(lane: int, start: int) -> str:
    """Return the set of a route, "train" or "test", which follows from where it starts.

    Args:
        lane: Index of the lane in which it starts.
        start: Index of the point of that lane at which it starts.
    """
    return SETS[(start // BLOCK + 3 * lane) % EVERY == 0]


def _followed(roads: Roads, random: np.random.Generator, lane: int, start: int, length: float) -> Floats | None:
    """Return points along randomly drawn successor lanes; None if the lanes end too early."""
    parts = [roads.lanes[lane].points[start:]]
    while arc_lengths(np.concatenate(parts))[-1] < length:
        successors = roads.lanes[lane].successors
        if not successors:
            return None
        lane = successors[int(random.integers(len(successors)))]
        new = roads.lanes[lane].points
        gap = float(np.hypot(*(new[0, :2] - parts[-1][-1, :2])))
        parts.append(new[1:] if gap < SAME and len(new) > 1 else new)  # mostly its first point is the last of the one before
    return resample(np.concatenate(parts), length)


def resample(points: Floats, length: float) -> Floats:
    """Return points at even distances along a line; the last points of a lane are closer together."""
    along = arc_lengths(points)
    wanted = np.arange(round(length / SPACING) + 1) * SPACING
    columns = points.copy()
    columns[:, HEADING] = np.unwrap(points[:, HEADING])
    even = np.stack([np.interp(wanted, along, column) for column in columns.T], axis=1)
    even[:, JUNCTION] = even[:, JUNCTION] > 0.5
    return even


def arc_lengths(points: Floats) -> Floats:
    """Return the arc length (n,) [m] at points (n, 6); in bends they are closer than `SPACING`."""
    return np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(points[:, :2], axis=0).T))])


@dataclass
class RoutePosition:
    """Position of a car relative to its route."""

    s: float
    """Position of the car along the route [m]."""
    offset: float
    """Distance [m] of the car from the centre line of its lane, positive to the right."""
    heading: float
    """Direction [rad] of the route at the car's position."""
    width: float
    """Width [m] of the lane at the car's position."""
    in_junction: bool


class Tracker:
    """Tracks a car along its route."""

    def __init__(self, route: Route) -> None:
        self.route = route
        self.index = 0
        self.farthest = 0.0
        """[m] largest distance reached along the route."""

    @property
    def completion(self) -> float:
        """Completed share of the route, 0 to 1."""
        return min(self.farthest / self.route.length, 1.0)

    def at(self, x: float, y: float) -> RoutePosition:
        """Return the route position of a car, searched around that of the previous step."""
        points = self.route.points
        low = max(self.index - BEHIND, 0)
        window = points[low : self.index + AHEAD + 1]
        self.index = low + int(np.argmin((window[:, 0] - x) ** 2 + (window[:, 1] - y) ** 2))
        px, py, _, heading, width, junction = points[self.index].tolist()
        along = (x - px) * math.cos(heading) + (y - py) * math.sin(heading)
        offset = (y - py) * math.cos(heading) - (x - px) * math.sin(heading)
        s = self.index * SPACING + min(max(along, -SPACING), SPACING)
        if self.index == len(points) - 1:
            s = self.index * SPACING + along
        self.farthest = max(self.farthest, s)
        return RoutePosition(s, offset, heading, width, bool(junction))
