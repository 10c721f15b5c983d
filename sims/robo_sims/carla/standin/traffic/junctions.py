"""Who may enter a junction: nobody on a red light, and of two ways that cross only one, the one that goes first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from robo_sims.carla.standin.maps.grid import YIELD
from robo_sims.carla.standin.maps.lanes import Lanes
from robo_sims.carla.standin.maps.roads import Floats, RoadMap

CLEAR = 2.6
"""[m] between the middles of ways that do not get into each other's way."""
BEND = 0.3
"""[rad] from which a way turns."""
CAR = 2.5
"""[m] around a client's car that no other enters."""


@dataclass(frozen=True)
class Candidate:
    """A car that wants to enter a way of a junction."""

    car: int
    way: int
    distance: float


class Junctions:
    """The ways of all junctions: which cross, and which goes first."""

    def __init__(self, road_map: RoadMap, lanes: Lanes) -> None:
        self.lanes = lanes
        count = len(lanes.ways)
        self.crosses = np.zeros((count, count), bool)
        members: dict[int, list[int]] = {}
        for number, way in enumerate(lanes.ways):
            if way.junction != -1:
                members.setdefault(way.junction, []).append(number)
        for ways in members.values():
            for first in ways:
                for second in ways:
                    self.crosses[first, second] = first != second and self._meet(first, second)
        self.rank = np.array([self._rank(road_map, number) for number in range(count)])
        """Of a way: the lower goes first."""

    def _meet(self, first: int, second: int) -> bool:
        if set(self.lanes.predecessors[first]) & set(self.lanes.predecessors[second]):
            return False  # they part: whoever is behind keeps its distance
        one, other = (self.lanes.ways[number].points[:, :2] for number in (first, second))
        gaps = np.linalg.norm(one[:, None] - other[None], axis=-1)
        return bool(gaps.min() < CLEAR)

    def _rank(self, road_map: RoadMap, number: int) -> int:
        """Straight on 0, to the right 1, to the left 2; 3 more where a sign says to give way."""
        way = self.lanes.ways[number]
        turned = way.points[-1, 2] - way.points[0, 2]  # positive to the right in this frame
        rank = 0 if abs(turned) < BEND else 1 if turned > 0 else 2
        for before in self.lanes.predecessors[number]:
            start = self.lanes.ways[before]
            signals = road_map.by_id[start.road].signals
            if any(signal.type == YIELD and (start.lane < 0) == (signal.orientation == "+") for signal in signals):
                rank += 3
        return rank

    def admitted(self, candidates: Sequence[Candidate], inside: Iterable[int], others: Floats) -> npt.NDArray[np.intp]:
        """Returns the cars that may enter. `inside` are ways that are taken; `others` (n, 2) places of clients' cars soon."""
        taken = np.zeros(len(self.rank), bool)
        taken[list(inside)] = True
        found = []
        for candidate in sorted(candidates, key=lambda one: (self.rank[one.way], one.distance, one.car)):
            if not (self.crosses[candidate.way] & taken).any() and not self._is_reached(candidate.way, others):
                found.append(candidate.car)
            taken[candidate.way] = True  # who goes first and waits for a client lets nobody through before it
        return np.array(found, np.intp)

    def _is_reached(self, way: int, others: Floats) -> bool:
        if not len(others):
            return False
        points = self.lanes.ways[way].points[:, :2]
        return bool((np.linalg.norm(points[:, None] - others[None], axis=-1) < CAR).any())
