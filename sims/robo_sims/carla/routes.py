"""Routes along the lanes of a map, by chance, and how far a car has come on one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from robo_rl.errors import InvalidSetting
from robo_sims.carla.roads import HEADING, JUNCTION, SPACING, Floats, Roads

SETS = ("train", "test")
BLOCK, EVERY = 20, 5
"""[m] of a lane in which routes that begin are all in one set; every so many blocks are the test set's."""
CLEAR = 12.0
"""[m] at the beginning of a route without a junction: whoever began at a stop line could not stop before it."""
TRIES = 200
AHEAD, BEHIND = 12, 12
"""[points] of the route around the last place, among which the next one is looked for: a route may cross itself."""


@dataclass(frozen=True)
class Route:
    """A way along lanes."""

    points: Floats
    """(n, 6) as those of lanes, `SPACING` apart."""

    @property
    def length(self) -> float:
        """Returns it in m."""
        return (len(self.points) - 1) * SPACING

    def ahead(self, s: float, distances: Floats) -> Floats:
        """Returns x and y (k, 2) at distances ahead of a place; behind the end, the last direction goes on."""
        wanted = s / SPACING + distances / SPACING
        inside = np.clip(wanted, 0, len(self.points) - 1)
        first = np.minimum(inside.astype(np.intp), len(self.points) - 2)
        start, end = self.points[first, :2], self.points[first + 1, :2]
        return start + (wanted - first)[:, None] * (end - start)


def drawn(roads: Roads, random: np.random.Generator, which: str, length: float) -> Route:
    """Returns a route of a set; raises InvalidSetting if the map has none so long."""
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
    """Returns the set that a route is in, by where it begins."""
    return SETS[(start // BLOCK + 3 * lane) % EVERY == 0]


def _followed(roads: Roads, random: np.random.Generator, lane: int, start: int, length: float) -> Floats | None:
    """Returns points from a place on along successors drawn by chance; None if the lanes end before."""
    parts = [roads.lanes[lane].points[start:]]
    while reaches(np.concatenate(parts))[-1] < length:
        successors = roads.lanes[lane].successors
        if not successors:
            return None
        lane = successors[int(random.integers(len(successors)))]
        parts.append(roads.lanes[lane].points[1:])  # its first point is the last of the one before
    return resampled(np.concatenate(parts), length)


def resampled(points: Floats, length: float) -> Floats:
    """Returns points at even distances along a line: where a lane ends, its points are closer."""
    along = reaches(points)
    wanted = np.arange(round(length / SPACING) + 1) * SPACING
    columns = points.copy()
    columns[:, HEADING] = np.unwrap(points[:, HEADING])
    even = np.stack([np.interp(wanted, along, column) for column in columns.T], axis=1)
    even[:, JUNCTION] = even[:, JUNCTION] > 0.5
    return even


def reaches(points: Floats) -> Floats:
    """Returns how far along a line its points (n, 6) are [m]; inside of bends they are closer than `SPACING`."""
    return np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(points[:, :2], axis=0).T))])


@dataclass
class Place:
    """Position of a car relative to its route."""

    s: float
    """[m] along the route."""
    offset: float
    """[m] to the right of its middle."""
    heading: float
    """[rad] of the route."""
    width: float
    """[m] of the lane."""
    in_junction: bool


class Tracker:
    """Follows a car along its route."""

    def __init__(self, route: Route) -> None:
        self.route = route
        self.index = 0
        self.farthest = 0.0
        """[m] along the route that was reached, and is never lost."""

    @property
    def completion(self) -> float:
        """Returns the share of the route that is done, 0 to 1."""
        return min(self.farthest / self.route.length, 1.0)

    def at(self, x: float, y: float) -> Place:
        """Returns the place of a car that was here in the step before."""
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
        return Place(s, offset, heading, width, bool(junction))
