"""Builder of junctions: road ends (arms) at equal distances from the centre, and a lane from each arm to each other one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from carla_standin.maps.roads import Connection, Junction, Lane, Link, Piece, Road

TURNS = {0: 0.0, 1: math.pi / 2, 3: -math.pi / 2}
"""Number of quarter turns to the left -> angle [rad] of that turn."""
TURNING = 25 / 3.6
"""Speed limit [m/s] on lanes that turn at a junction."""


@dataclass(frozen=True)
class Arm:
    """A road that ends at a junction."""

    side: int
    """Direction of the road: 0 east, 1 north, 2 west, 3 south."""
    road: int
    contact: str
    """Which end of the road is at the junction: "start" or "end"."""
    speed: float


@dataclass(frozen=True)
class Crossing:
    """Builder of one junction of two to four arms."""

    id: int
    x: float
    y: float
    reach: float
    """Distance [m] from the centre of the junction to the ends of its arms."""
    lanes: int
    """Number of lanes in each direction of travel, the same on every arm of the junction."""
    arms: tuple[Arm, ...]
    width: float = 3.5

    def build(self, first: int) -> tuple[tuple[Road, ...], Junction]:
        """Build the junction: one connecting road for each pair of arms.

        first: id of the first connecting road; the others follow.
        """
        roads, connections = [], []
        for number, (start, end, lane, count) in enumerate(self._moves()):
            road = self._road(first + number, start, end, lane, count)
            incoming = self._incoming_lanes(start, lane, count)
            links = tuple((outer, inner.id) for outer, inner in zip(incoming, road.lanes, strict=True))
            connections.append(Connection(number, start.road, road.id, "start", links))
            roads.append(road)
        return tuple(roads), Junction(self.id, tuple(connections))

    def _moves(self) -> Iterator[tuple[Arm, Arm, int, int]]:
        """Yield each permitted move: the arms it leads from and to, its first lane, and its number of lanes.

        Straight on leads from all lanes, left from the inner, right from the outer one; the only way from all of them.
        """
        for start in self.arms:
            ends = [(end, self._turn(start, end)) for end in self.arms if self._turn(start, end) in TURNS]
            for end, turn in ends:
                if turn == 0 or len(ends) == 1:
                    yield start, end, 1, self.lanes
                else:
                    yield start, end, self.lanes if turn == 3 else 1, 1

    @staticmethod
    def _turn(start: Arm, end: Arm) -> int:
        return (end.side - start.side - 2) % 4

    def _road(self, number: int, start: Arm, end: Arm, lane: int, count: int) -> Road:
        turn = self._turn(start, end)
        heading = (start.side * math.pi / 2 + math.pi) % (2 * math.pi)
        shift = (lane - 1) * self.width  # the reference line is the left edge of the first lane
        x = self.x - self.reach * math.cos(heading) + shift * math.sin(heading)
        y = self.y - self.reach * math.sin(heading) - shift * math.cos(heading)
        ends = zip(self._incoming_lanes(start, lane, count), self._outgoing_lanes(end, lane, count), strict=True)
        lanes = [Lane(-k, "driving", (self.width, 0.0, 0.0, 0.0), "none", *both) for k, both in enumerate(ends, 1)]
        fastest = min(start.speed, end.speed)
        return Road(
            number,
            (self._piece(x, y, heading, turn, shift),),
            tuple(lanes),
            self.id,
            Link("road", start.road, start.contact),
            Link("road", end.road, end.contact),
            fastest if turn == 0 else min(fastest, TURNING),
            "none",
        )

    def _piece(self, x: float, y: float, heading: float, quarter: int, shift: float) -> Piece:
        if quarter == 0:
            return Piece(x, y, heading, 2 * self.reach)
        radius = self.reach - shift if quarter == 3 else self.reach + shift
        return Piece(x, y, heading, radius * math.pi / 2, math.copysign(1 / radius, TURNS[quarter]))

    @staticmethod
    def _incoming_lanes(arm: Arm, first: int, count: int) -> list[int]:
        side = -1 if arm.contact == "end" else 1
        return [side * number for number in range(first, first + count)]

    @staticmethod
    def _outgoing_lanes(arm: Arm, first: int, count: int) -> list[int]:
        side = -1 if arm.contact == "start" else 1
        return [side * number for number in range(first, first + count)]


def renumbered(crossings: Sequence[Crossing], first: int) -> tuple[tuple[Road, ...], tuple[Junction, ...]]:
    """Build all crossings; return their roads, with ids from `first` on, and their junctions."""
    roads: list[Road] = []
    junctions = []
    for crossing in crossings:
        made, junction = crossing.build(first + len(roads))
        roads += made
        junctions.append(junction)
    return tuple(roads), tuple(junctions)
