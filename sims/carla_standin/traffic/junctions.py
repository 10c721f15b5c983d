"""Right of way at junctions: no car enters on a red light; of two crossing ways, only one is used at a time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from carla_standin.maps.curves import Floats
from carla_standin.maps.grid import STOP, YIELD
from carla_standin.maps.lanes import Lanes
from carla_standin.maps.roads import RoadMap

CLEAR = 2.6
"""[m] Distance between the middles of ways without a conflict."""
WIDE, LONG = 1.0, 2.45
"""[m] Largest half width and half length for CLEAR: a bus in a bend needs more."""
BEND = 0.3
"""[rad] from which a way turns."""
CAR = 2.5
"""[m] Distance that ways keep from a client's car."""
LONGEST_WAIT = 15.0
"""[s] Wait after which a car gets priority: a stream of cars with priority would block it for minutes."""


@dataclass(frozen=True)
class Candidate:
    """A car before a junction."""

    car: int
    way: int
    distance: float
    waited: float = 0.0
    """[s] Wait at the junction, red lights excluded."""
    extra: float = 0.0
    """[m] Extra reach of its body from the middle of its way, compared to an ordinary car, see `Junctions.extra`."""

    @property
    def urgency(self) -> float:
        """Return the wait if it is long enough for priority over all others, else 0."""
        return self.waited if self.waited >= LONGEST_WAIT else 0.0


class Junctions:
    """Conflicts and priorities of the ways of all junctions."""

    def __init__(self, road_map: RoadMap, lanes: Lanes) -> None:
        self.lanes = lanes
        count = len(lanes.ways)
        self.gaps = np.full((count, count), np.inf)
        """[m] Smallest distance between the middles of two ways; infinite if they split or lie in two junctions."""
        members: dict[int, list[int]] = {}
        for number, way in enumerate(lanes.ways):
            if way.junction != -1:
                members.setdefault(way.junction, []).append(number)
        for ways in members.values():
            for first, second in combinations(ways, 2):
                self.gaps[first, second] = self.gaps[second, first] = self._gap(first, second)
        self.crosses = self.gaps < CLEAR
        self.curvature = np.array([curvature(way.points) for way in lanes.ways])
        """[1/m] Largest curvature of a way."""
        self.rank = np.array([self._rank(road_map, number) for number in range(count)])
        """Priority of a way: the lowest is first."""
        self.halts = np.array([self._has(road_map, number, STOP) for number in range(count)], bool)
        """Whether a way before a junction has a stop sign at its end."""

    def _gap(self, first: int, second: int) -> float:
        if set(self.lanes.predecessors[first]) & set(self.lanes.predecessors[second]):
            return math.inf  # they split: the car behind keeps its distance
        one, other = (self.lanes.ways[number].points[:, :2] for number in (first, second))
        return float(np.linalg.norm(one[:, None] - other[None], axis=-1).min())

    def extra(self, way: int, half_length: float, half_width: float) -> float:
        """Return the extra reach [m] of a body from the middle of a way, compared to an ordinary car.

        In a bend of radius R the corners of a body move outside by about half_length^2 / 2R.
        """
        outside = 0.5 * self.curvature[way] * max(half_length**2 - LONG**2, 0.0)
        return float(max(half_width - WIDE, 0.0) + outside)

    def _rank(self, road_map: RoadMap, number: int) -> int:
        """Straight on 0, to the right 1, to the left 2; 3 more with a stop sign or a sign to give way."""
        way = self.lanes.ways[number]
        turned = way.points[-1, 2] - way.points[0, 2]  # positive to the right in this frame
        rank = 0 if abs(turned) < BEND else 1 if turned > 0 else 2
        for before in self.lanes.predecessors[number]:
            if self._has(road_map, before, YIELD) or self._has(road_map, before, STOP):
                rank += 3
        return rank

    def _has(self, road_map: RoadMap, number: int, kind: str) -> bool:
        """Return whether a sign of a kind applies at the end of a way."""
        way = self.lanes.ways[number]
        signals = road_map.by_id[way.road].signals
        return any(signal.type == kind and (way.lane < 0) == (signal.orientation == "+") for signal in signals)

    def admitted(
        self, candidates: Sequence[Candidate], inside: Iterable[tuple[int, float]], others: Floats
    ) -> npt.NDArray[np.intp]:
        """Return the cars that may enter.

        inside: occupied ways, each with the `extra` [m] of its car. others: (n, 2) predicted positions of clients' cars.
        """
        taken = np.full(len(self.rank), -np.inf)
        for way, extra in inside:
            taken[way] = max(taken[way], extra)
        found = []
        for candidate in sorted(candidates, key=lambda one: (-one.urgency, self.rank[one.way], one.distance, one.car)):
            way, extra = candidate.way, candidate.extra
            if not (self.gaps[way] < CLEAR + extra + taken).any() and not self._is_reached(way, others):
                found.append(candidate.car)
            taken[way] = max(taken[way], extra)  # also if it waits for a client: cars of lower priority stay behind it
        return np.array(found, np.intp)

    def _is_reached(self, way: int, others: Floats) -> bool:
        if not len(others):
            return False
        points = self.lanes.ways[way].points[:, :2]
        return bool((np.linalg.norm(points[:, None] - others[None], axis=-1) < CAR).any())


def curvature(points: Floats) -> float:
    """Return the largest curvature [1/m] of a line (n, 3): x, y, heading."""
    steps = np.maximum(np.hypot(*np.diff(points[:, :2], axis=0).T), 1e-6)
    return float((np.abs(np.diff(points[:, 2])) / steps).max())
