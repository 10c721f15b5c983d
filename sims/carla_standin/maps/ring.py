"""A ring: two straights and two bends, both directions; the simplest map for lane keeping."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from carla_standin.maps.roads import Lane, Link, Piece, Road, RoadMap


@dataclass(frozen=True)
class Ring:
    """Settings of a map in the shape of a ring."""

    straight: float = 120.0
    """[m] length of either straight."""
    radius: float = 40.0
    """Radius of the bends at the middle of the road [m]."""
    lanes: int = 1
    """Number of lanes in each of the two directions."""
    speed: float = 50 / 3.6
    """Speed limit [m/s]."""

    @classmethod
    def drawn(cls, random: np.random.Generator) -> Ring:
        """Return a ring with random length, radius, number of lanes and speed limit."""
        straight, radius = random.uniform(60, 200), random.uniform(25, 70)
        return cls(float(straight), float(radius), int(random.integers(1, 3)), float(random.choice([30, 40, 50])) / 3.6)

    def build(self, name: str) -> RoadMap:
        """Return the map: four roads, each linked to the next."""
        s, r, turn = self.straight, self.radius, 1 / self.radius
        bend = math.pi * r
        there = Piece(-s / 2, -r, 0.0, s), Piece(s / 2, -r, 0.0, bend, turn)
        pieces = (*there, Piece(s / 2, r, math.pi, s), Piece(-s / 2, r, math.pi, bend, turn))
        lanes = two_way_lanes(self.lanes)
        roads = tuple(
            Road(
                number,
                (piece,),
                lanes,
                predecessor=Link("road", (number - 1) % 4, "end"),
                successor=Link("road", (number + 1) % 4, "start"),
                speed=self.speed,
                centre_mark="broken" if self.lanes == 1 else "solid",
            )
            for number, piece in enumerate(pieces)
        )
        return RoadMap(name, roads)


def two_way_lanes(count: int, *, before: bool = True, after: bool = True, width: float = 3.5) -> tuple[Lane, ...]:
    """Return lanes of both directions with pavements; before, after: link them to lanes of the same number."""
    found = []
    for side in (1, -1):
        for number in range(1, count + 2):
            kind, wide = ("sidewalk", 2.0) if number > count else ("driving", width)
            mark = "none" if kind == "sidewalk" else "broken" if number < count else "solid"
            ends = (side * number if before else None, side * number if after else None)
            found.append(Lane(side * number, kind, (wide, 0.0, 0.0, 0.0), mark, *ends))
    return tuple(found)
