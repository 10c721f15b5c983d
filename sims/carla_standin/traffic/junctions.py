"""Right of way at junctions: no car enters on a red light; of two crossing ways, only one is used at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from carla_standin.approach import closest_approach
from carla_standin.maps.curves import Floats
from carla_standin.maps.grid import STOP, YIELD
from carla_standin.maps.lanes import Lanes
from carla_standin.maps.roads import RoadMap
from carla_standin.maps.signal_ways import SignalWays

CLEAR = 2.6
"""[m] Distance between the middles of ways without a conflict."""
WIDE, LONG = 1.0, 2.45
"""Largest half width and half length [m] of a car for which the table `CLEAR` holds; a larger one, such as a bus, needs more
room."""
BEND = 0.3
"""Change of heading [rad] from which on a way counts as a turn."""
CAR = 2.5
"""Distance [m] that the traffic keeps from the expected path of a client's car."""
LONGEST_WAIT = 4.0
"""[s] Wait after which a car gets priority: a stream of cars with priority would block it for minutes."""


@dataclass(frozen=True)
class Candidate:
    """Car that comes to a junction or waits at it, and is a candidate for the next to enter."""

    car: int
    way: int
    distance: float
    waited: float = 0.0
    """Time [s] that the car has waited at the junction, without the time at red lights."""
    extra: float = 0.0
    """[m] Extra reach of the car's body from the middle of its way beyond an ordinary car's, see `Junctions.extra`."""

    @property
    def urgency(self) -> float:
        """Time [s] waited if it is long enough for priority over all others, else 0."""
        return self.waited if self.waited >= LONGEST_WAIT else 0.0


class Junctions:
    """Right of way at all junctions: which ways conflict, and which goes first."""

    def __init__(self, road_map: RoadMap, lanes: Lanes, signals: SignalWays) -> None:
        self.lanes = lanes
        count = len(lanes.ways)
        self.paths = [self._path(number) for number in range(count)]
        """Points (n, 3) of a way to the end of its junction: a road of several lane sections is one way."""
        self.rounds = [_round(path) for path in self.paths]
        """x, y and radius [m] of a circle around the points of each way."""
        self.gaps = np.full((count, count), np.inf)
        """[m] Smallest distance between the middles of two ways; infinite if they split, follow each other or lie in two
        junctions."""
        members: dict[int, list[int]] = {}
        for number, way in enumerate(lanes.ways):
            if way.junction != -1:
                members.setdefault(way.junction, []).append(number)
        for ways in members.values():
            for first, second in combinations(ways, 2):
                self.gaps[first, second] = self.gaps[second, first] = self._gap(first, second)
        self.rivals = [
            dict(zip(near.nonzero()[0].tolist(), row[near].tolist(), strict=True))
            for row, near in ((row, np.isfinite(row)) for row in self.gaps)
        ]
        """Way -> the ways of its junction with a finite gap, and that gap [m]."""
        self.crosses = self.gaps < CLEAR
        self.curvature = np.array([curvature(path) for path in self.paths])
        """[1/m] Largest curvature of a way."""
        has = {kind: _signed(road_map, signals, kind) for kind in (STOP, YIELD)}
        self.rank = np.array([self._rank(number, has[STOP] | has[YIELD]) for number in range(count)])
        """Priority of a way: the lowest is first."""
        self._ranks: list[int] = self.rank.tolist()
        self._extras: dict[tuple[int, float, float], float] = {}
        """Cached results of `extra`: (way, half length, half width) -> extra reach [m]."""
        self.halts = np.array([number in has[STOP] for number in range(count)], bool)
        """Whether a way before a junction has a stop sign at its end."""

    def head(self, number: int) -> int:
        """Return the first way of the path through a junction of which a way is a section."""
        return self._end(number, lambda way: self.lanes.predecessors[way])

    def last(self, number: int) -> int:
        """Return the last section of the way through a junction that a way is a part of."""
        return self._end(number, lambda way: list(self.lanes.ways[way].successors))

    def _end(self, number: int, beyond: Callable[[int], list[int]]) -> int:
        ways, here = self.lanes.ways, number
        while ways[here].junction != -1:
            on = [way for way in beyond(here) if ways[way].junction == ways[here].junction and way != number]
            if len(on) != 1:
                break
            here = on[0]
        return here

    def _path(self, number: int) -> Floats:
        ways, chain = self.lanes.ways, [number]
        while chain[-1] != self.last(number):
            junction = ways[chain[-1]].junction
            chain.append(next(way for way in ways[chain[-1]].successors if ways[way].junction == junction))
        return np.concatenate([ways[way].points for way in chain])

    def _gap(self, first: int, second: int) -> float:
        heads = [self.head(number) for number in (first, second)]
        if heads[0] == heads[1] or set.intersection(*(set(self.lanes.predecessors[head]) for head in heads)):
            return math.inf  # they follow each other or split: the car behind keeps its distance
        one, other = (self.paths[number][:, :2] for number in (first, second))
        return float(np.linalg.norm(one[:, None] - other[None], axis=-1).min())

    def extra(self, way: int, half_length: float, half_width: float) -> float:
        """Return the extra reach [m] of a body from the middle of a way, compared to an ordinary car.

        In a bend of radius R the corners of a body move outside by about half_length^2 / 2R.
        """
        key = way, half_length, half_width
        found = self._extras.get(key)
        if found is None:
            outside = 0.5 * self.curvature[way] * max(half_length**2 - LONG**2, 0.0)
            found = self._extras[key] = float(max(half_width - WIDE, 0.0) + outside)
        return found

    def _rank(self, number: int, signed: set[int]) -> int:
        """Return a way's rank: straight on 0, right 1, left 2; 3 more with a stop sign or a sign to give way."""
        path = self.paths[number]
        turned = path[-1, 2] - path[0, 2]  # positive to the right in this frame
        rank = 0 if abs(turned) < BEND else 1 if turned > 0 else 2
        return rank + 3 * len(signed.intersection(self.lanes.predecessors[number]))

    def admitted(
        self,
        candidates: Sequence[Candidate],
        inside: Iterable[tuple[int, float]],
        sweeps: Callable[[], tuple[Floats, Floats]],
        users: Sequence[Candidate] = (),
    ) -> npt.NDArray[np.intp]:
        """Return the cars that may enter.

        inside: occupied ways, each with the `extra` [m] of its car.
        sweeps: returns places (n, 2) and ways (n, 2) [m] of clients' cars.
        users: a candidate for each way that a client's car may take, before which those of a later turn wait.
        """
        taken: dict[int, float] = {}
        for way, extra in inside:
            taken[way] = max(taken.get(way, -math.inf), extra)
        found = []
        for candidate in sorted(candidates, key=lambda one: (-one.urgency, *self._turn(one), one.car)):
            way, extra, rivals = candidate.way, candidate.extra, self.rivals[candidate.way]
            # Clients do not know who has waited for long: their cars keep their turn before one that has.
            first = [user.way for user in users if self._turn(user) < self._turn(candidate)]
            is_free = not any(rivals.get(other, math.inf) < CLEAR + extra + more for other, more in taken.items())
            is_free = is_free and not any(rivals.get(other, math.inf) < CLEAR + extra for other in first)
            if is_free and not self._is_reached(way, *sweeps()):
                found.append(candidate.car)
            # also if it waits for a client: cars of lower priority stay behind it
            taken[way] = max(taken.get(way, -math.inf), extra)
        return np.array(found, np.intp)

    def _turn(self, one: Candidate) -> tuple[int, float]:
        """Return by what candidates are ordered: the rank of the way, then the distance [m] to the junction."""
        return self._ranks[one.way], one.distance

    def _is_reached(self, way: int, start: Floats, step: Floats) -> bool:
        x, y, radius = self.rounds[way]
        away = np.hypot(start[:, 0] - x, start[:, 1] - y) - np.hypot(step[:, 0], step[:, 1])
        near = away < radius + CAR
        if not near.any():
            return False
        points = self.paths[way][:, :2]
        return bool((closest_approach(points, np.zeros_like(points), start[near], step[near])[0] < CAR).any())


def _signed(road_map: RoadMap, signals: SignalWays, kind: str) -> set[int]:
    """Return the ways that end at a sign of a type."""
    found = [signal.id for road in road_map.roads for signal in road.signals if signal.type == kind]
    return {way for number in found for way in signals.of(number)}


def _round(points: Floats) -> tuple[float, float, float]:
    """Return x, y and radius [m] of a circle around points."""
    low, high = points[:, :2].min(0), points[:, :2].max(0)
    x, y = ((low + high) / 2).tolist()
    return x, y, float(np.hypot(points[:, 0] - x, points[:, 1] - y).max())


def curvature(points: Floats) -> float:
    """Return the largest curvature [1/m] of a line (n, 3): x, y, heading."""
    steps = np.maximum(np.hypot(*np.diff(points[:, :2], axis=0).T), 1e-6)
    return float((np.abs(np.diff(points[:, 2])) / steps).max())
