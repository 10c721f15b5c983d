"""A town on a grid: blocks with buildings, junctions with lights or a priority road, speed limits."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

import numpy as np

from carla_standin.maps.junction_builder import Arm, Crossing, renumbered
from carla_standin.maps.ring import two_way_lanes
from carla_standin.maps.roads import (
    Building,
    Controller,
    Crosswalk,
    Junction,
    Link,
    Piece,
    Road,
    RoadMap,
    Signal,
)

LIGHT, LIMIT, YIELD, STOP = "1000001", "274", "205", "206"
"""Types of signals, as CARLA's client numbers them: traffic light, speed limit, give way, stop sign."""
CROSSWALK, ONTO = (-0.25, 3.25), 1.0
"""Begin and end [m] of a crosswalk beyond the end of a street, and its overlap [m] with the pavements.

Waiting cars stop before it.
"""
HEADINGS = (0.0, math.pi / 2)
Node = tuple[int, int]
Edge = tuple[Node, int]
"""A street, by the node at one end and its direction from there: 0 east, 1 north."""


@dataclass(frozen=True)
class Grid:
    """Settings of a town whose streets form a grid."""

    columns: tuple[float, ...] = (0.0, 90.0, 200.0, 300.0)
    """West-east positions [m] of the streets that run from south to north."""
    rows: tuple[float, ...] = (0.0, 100.0, 190.0)
    """North-south positions [m] of the streets that run from west to east."""
    lanes: int = 1
    """Number of lanes of a street in each direction."""
    removed: tuple[Edge, ...] = (((1, 1), 0),)
    """Streets that are missing, each given by its node and its direction from there: 0 east, 1 north."""
    lit: float = 0.5
    """Chance of lights at a junction of three streets; at one of four it is 0.5 more."""
    speeds: tuple[float, ...] = (30 / 3.6, 50 / 3.6)
    """Speed limits [m/s] of streets that run to the east, and of streets that run to the north."""
    seed: int = 0
    """Seed with which lights and buildings are placed."""
    sign: str = YIELD
    """Type of the sign at junctions without lights, for the streets that have no priority."""

    @classmethod
    def drawn(cls, random: np.random.Generator) -> Grid:
        """Return the settings of a random town."""
        columns, rows = (_streets(random, int(random.integers(3, 5))) for _ in range(2))
        shape = cls(columns, rows, int(random.integers(1, 3)), (), float(random.uniform(0.3, 1.0)))
        speeds = tuple(float(speed) / 3.6 for speed in random.choice([30, 40, 50, 60], 2))
        shape = replace(shape, speeds=speeds, seed=int(random.integers(2**31)))
        for edge in random.permutation(np.array(shape.edges(), dtype=object))[: int(random.integers(0, 4))]:
            candidate = replace(shape, removed=(*shape.removed, (tuple(edge[0]), int(edge[1]))))
            if candidate.is_connected():
                shape = candidate
        return shape

    @property
    def reach(self) -> float:
        """Distance [m] from the middle of a junction to the ends of the roads that meet there."""
        return 8.5 + 4.5 * self.lanes

    def nodes(self) -> list[Node]:
        """Return all nodes of the grid, that is, all junctions."""
        return [(i, j) for i in range(len(self.columns)) for j in range(len(self.rows))]

    def edges(self) -> list[Edge]:
        """Return all streets of the grid, except for the removed ones."""
        wanted = [(node, side) for node in self.nodes() for side in (0, 1)]
        sizes = len(self.columns), len(self.rows)
        return [edge for edge in wanted if edge[0][edge[1]] + 1 < sizes[edge[1]] and edge not in self.removed]

    def arms_of(self, node: Node) -> list[tuple[int, Edge, str]]:
        """Return all streets at a node: the side on which each leaves, the street, and which of its ends is there.

        Sides: 0 east, 1 north, 2 west, 3 south.
        """
        i, j = node
        near = [(0, (node, 0), "start"), (1, (node, 1), "start"), (2, ((i - 1, j), 0), "end"), (3, ((i, j - 1), 1), "end")]
        edges = self.edges()
        return [arm for arm in near if arm[1] in edges]

    def is_connected(self) -> bool:
        """Return True if every node has at least two streets and the graph is connected."""
        if any(len(self.arms_of(node)) < 2 for node in self.nodes()):
            return False
        seen, border = {self.nodes()[0]}, [self.nodes()[0]]
        while border:
            node = border.pop()
            for start, side in self.edges():
                end = (start[0] + (side == 0), start[1] + (side == 1))
                for here, there in ((start, end), (end, start)):
                    if here == node and there not in seen:
                        seen.add(there)
                        border.append(there)
        return len(seen) == len(self.nodes())

    def build(self, name: str) -> RoadMap:
        """Return the road map of this town."""
        random = np.random.default_rng([self.seed, 17])
        edges = self.edges()
        numbers = {edge: number for number, edge in enumerate(edges)}
        junction_ids = {node: 1000 + number for number, node in enumerate(self.nodes())}
        crossings = [self._crossing(node, junction_ids[node], numbers) for node in self.nodes()]
        roads = [self._street(edge, numbers[edge], junction_ids, random) for edge in edges]
        connecting, junctions = renumbered(crossings, len(edges))
        by_id = {road.id: road for road in roads}
        controllers: list[Controller] = []
        finished = []
        for crossing, junction in zip(crossings, junctions, strict=True):
            lit = len(crossing.arms) > 2 and float(random.random()) < (self.lit if len(crossing.arms) == 3 else self.lit + 0.5)
            _cross(by_id, crossing)
            made = _signalled(by_id, crossing, junction, lit, self.sign)
            controllers += made
            finished.append(replace(junction, controllers=tuple(controller.id for controller in made)))
        return RoadMap(name, (*by_id.values(), *connecting), tuple(finished), tuple(controllers))

    def _crossing(self, node: Node, number: int, numbers: dict[Edge, int]) -> Crossing:
        arms = tuple(Arm(side, numbers[edge], end, self.speeds[edge[1]]) for side, edge, end in self.arms_of(node))
        return Crossing(number, self.columns[node[0]], self.rows[node[1]], self.reach, self.lanes, arms)

    def _street(self, edge: Edge, number: int, junctions: dict[Node, int], random: np.random.Generator) -> Road:
        (i, j), side = edge
        end = (i + (side == 0), j + (side == 1))
        heading = HEADINGS[side]
        x, y = self.columns[i] + self.reach * (side == 0), self.rows[j] + self.reach * (side == 1)
        spacing = self.columns[end[0]] - self.columns[i] + self.rows[end[1]] - self.rows[j]
        length = spacing - 2 * self.reach
        kerb = 3.5 * self.lanes + 1.0
        limit = round(self.speeds[side] * 3.6)
        signs = tuple(
            Signal(10 * number + k, s, t, LIMIT, limit, "km/h", orientation, lanes)
            for k, (s, t, orientation, lanes) in enumerate(
                ((2.0, -kerb, "+", (-self.lanes, -1)), (length - 2.0, kerb, "-", (1, self.lanes)))
            )
        )
        return Road(
            number,
            (Piece(x, y, heading, length),),
            two_way_lanes(self.lanes, before=False, after=False),
            -1,
            Link("junction", junctions[i, j]),
            Link("junction", junctions[end]),
            self.speeds[side],
            "broken" if self.lanes == 1 else "solid",
            signs,
            tuple(self._buildings(number, length, random)) if side == 0 else (),
        )

    def _buildings(self, number: int, length: float, random: np.random.Generator) -> list[Building]:
        """Return houses on both sides of the road `number`, of `length` [m], with gaps between them."""
        found: list[Building] = []
        setback = 3.5 * self.lanes + 2.0 + 3.0
        for side in (1, -1):
            s = 2.0
            while True:
                size, depth, height, gap = random.uniform([8, 8, 5, 2], [18, 12, 16, 10])
                if s + size > length - 2.0:
                    break
                s_middle, t_middle = float(s + size / 2), side * (setback + float(depth) / 2)
                index = 100 * number + len(found)
                found.append(Building(index, s_middle, t_middle, float(size), float(depth), float(height)))
                s += size + gap
        return found


@dataclass(frozen=True)
class SignedGrid(Grid):
    """A town with stop signs instead of signs to give way, and without lights."""

    lit: float = 0.0
    sign: str = STOP

    @classmethod
    def drawn(cls, random: np.random.Generator) -> SignedGrid:
        """Return the settings of a random town."""
        shape = Grid.drawn(random)
        return cls(**{one.name: getattr(shape, one.name) for one in fields(shape)} | {"lit": 0.0, "sign": STOP})


def _streets(random: np.random.Generator, count: int) -> tuple[float, ...]:
    gaps = random.uniform(75, 130, count - 1)
    return (0.0, *(float(value) for value in np.cumsum(np.round(gaps, 1))))


def _cross(roads: dict[int, Road], crossing: Crossing) -> None:
    """Put a crosswalk on each arm between its stop line and the junction, from pavement to pavement."""
    for arm in crossing.arms if len(crossing.arms) > 2 else ():
        road, forward = roads[arm.road], arm.contact == "end"
        begin, end = CROSSWALK if forward else (-CROSSWALK[1], -CROSSWALK[0])
        v = crossing.width * crossing.lanes + ONTO
        corners = tuple((float(a), float(b), 0.0) for a, b in ((begin, -v), (end, -v), (end, v), (begin, v), (begin, -v)))
        number = 10 * crossing.id + arm.side
        crosswalk = Crosswalk(str(number), road.length if forward else 0.0, 0.0, 0.0, corners, f"crosswalk{number}")
        roads[arm.road] = replace(road, crosswalks=(*road.crosswalks, crosswalk))


def _signalled(roads: dict[int, Road], crossing: Crossing, junction: Junction, lit: bool, sign: str) -> list[Controller]:
    """Put lights on all arms, or signs on those that give way, and return the lights' controllers."""
    groups: dict[int, list[int]] = {0: [], 1: []}
    if len(crossing.arms) < 3:
        return []
    for arm in crossing.arms:
        axis, road = arm.side % 2, roads[arm.road]
        if not lit and axis == 0:
            continue
        number = 100_000 + 10 * junction.id + arm.side
        forward = arm.contact == "end"
        s, t = (road.length - 1.0, -1.0) if forward else (1.0, 1.0)
        lanes = (-crossing.lanes, -1) if forward else (1, crossing.lanes)
        t *= crossing.width * crossing.lanes + 1.0
        kind, orientation = LIGHT if lit else sign, "+" if forward else "-"
        signal = Signal(number, s, t, kind, orientation=orientation, lanes=lanes, dynamic=lit)
        roads[arm.road] = replace(road, signals=(*road.signals, signal))
        if lit:
            groups[axis].append(number)
    return [Controller(10 * junction.id + axis, tuple(signals)) for axis, signals in groups.items() if signals]
