"""Lanes of a map as arrays, in the simulator's frame: y and headings have the opposite sign of OpenDRIVE's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from carla_standin.maps.curves import Floats
from carla_standin.maps.roads import Lane, Link, Road, RoadMap

SPACING = 1.0
"""[m] Approximate distance between the points of a lane."""
CELL = 8.0
"""Side [m] of the grid squares by which nearby lane points are found."""
Ints = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Way:
    """One driving lane of a road, in the direction of travel."""

    road: int
    lane: int
    points: Floats
    """Points (n, 3) of its middle: x, y [m], heading [rad], at equal distances; at least two."""
    length: float
    speed: float
    junction: int
    successors: tuple[int, ...] = ()
    left: int = -1
    """Index of the lane to the left with the same direction of travel, -1 if there is none."""
    right: int = -1
    closes: bool = False
    """Whether the lane narrows and ends."""
    opens: bool = False
    """Whether the lane starts without a width."""


class Lanes:
    """All ways of a map, as objects and as arrays for vectorised steps."""

    def __init__(self, road_map: RoadMap) -> None:
        keys = [(road, lane) for road in road_map.roads for lane in road.lanes if lane.kind == "driving"]
        self.index = {(road.id, lane.id): number for number, (road, lane) in enumerate(keys)}
        self.ways = [self._way(road_map, road, lane) for road, lane in keys]
        counts = [len(way.points) for way in self.ways]
        self.start = np.concatenate([[0], np.cumsum(counts)])[:-1].astype(np.intp)
        self.points = np.concatenate([way.points for way in self.ways])
        self.way_of_point = np.repeat(np.arange(len(self.ways)), counts)
        self.length = np.array([way.length for way in self.ways])
        self.step = self.length / (np.array(counts) - 1)
        self.last = np.array(counts) - 2
        self.speed = np.array([way.speed for way in self.ways])
        self.junction = np.array([way.junction for way in self.ways])
        self.crossing = self.junction != -1
        """Whether a way lies in a junction."""
        headings = self.points[:, 2]
        self.aims = np.column_stack([self.points[:, :2], np.cos(headings), np.sin(headings)])
        """x, y [m], cosine and sine of the heading of each point."""
        self.ends = np.array([way.closes or not way.successors for way in self.ways])
        self._around: dict[tuple[int, int], Ints] = {}
        """Cell of a grid over the map -> indices of the points in it and in the cells beside it."""
        self._crossing_around: dict[tuple[int, int], Ints] = {}

    def _way(self, road_map: RoadMap, road: Road, lane: Lane) -> Way:
        points, length = lane_points(road, lane.id)
        forward = lane.id < 0
        narrow = lane.width_at(np.array([0.0, road.length])) < 0.5
        if not forward:
            narrow = narrow[::-1]
        side = -1 if forward else 1
        return Way(
            road.id,
            lane.id,
            points,
            length,
            road.speed,
            road.junction,
            self._successors(road_map, road, lane),
            self.index.get((road.id, lane.id - side), -1) if abs(lane.id) > 1 else -1,
            self.index.get((road.id, lane.id + side), -1),
            bool(narrow[1]),
            bool(narrow[0]),
        )

    def _successors(self, road_map: RoadMap, road: Road, lane: Lane) -> tuple[int, ...]:
        link, target = (road.successor, lane.successor) if lane.id < 0 else (road.predecessor, lane.predecessor)
        if link is None:
            return ()
        if link.kind == "road":
            found = self.index.get((link.id, target)) if target is not None else None
            return () if found is None else (found,)
        return tuple(
            self.index[way.connecting, end]
            for junction in road_map.junctions
            if junction.id == link.id
            for way in junction.connections
            if way.incoming == road.id and _enters(road_map, way.connecting, way.contact, road, link)
            for start, end in way.links
            if start == lane.id and (way.connecting, end) in self.index
        )

    @cached_property
    def predecessors(self) -> list[list[int]]:
        """Way -> the ways that lead to it."""
        found: list[list[int]] = [[] for _ in self.ways]
        for number, way in enumerate(self.ways):
            for successor in way.successors:
                found[successor].append(number)
        return found

    def poses(self, way: Ints, s: Floats) -> Floats:
        """Return x, y [m] and heading [rad], (..., 3), at distances `s` [m] along ways, interpolated between points."""
        place = s / self.step[way]
        index = np.minimum(np.maximum(place.astype(np.intp), 0), self.last[way])
        part = (place - index)[..., None]
        first = self.start[way] + index
        before = self.points[first]
        return np.asarray(before + part * (self.points[first + 1] - before))

    def pose(self, way: int, s: float) -> tuple[float, float, float]:
        """Return x, y [m] and heading [rad] at a distance `s` [m] along one way; `poses` for many."""
        place = s / float(self.step[way])
        index = min(max(int(place), 0), int(self.last[way]))
        first = int(self.start[way]) + index
        before, after = self.points[first : first + 2].tolist()
        x, y, heading = (old + (place - index) * (new - old) for old, new in zip(before, after, strict=True))
        return x, y, heading

    def nearest(self, x: float, y: float, heading: float | None = None) -> tuple[int, float, float]:
        """Return the nearest way with about this heading [rad], the distance along it and the one from it [m]."""
        around = self.around(x, y)
        point, square = self._nearest_point(around, x, y, heading) if len(around) else (0, math.inf)
        if square > CELL * CELL:  # a nearer one may lie farther out
            point, square = self._nearest_point(np.arange(len(self.points)), x, y, heading)
        way = int(self.way_of_point[point])
        px, py, direction = self.points[point].tolist()
        along = (x - px) * math.cos(direction) + (y - py) * math.sin(direction)
        s = min(max(float((point - self.start[way]) * self.step[way] + along), 0.0), float(self.length[way]))
        if not math.isfinite(square):
            return way, s, math.inf
        there = self.pose(way, s)
        return way, s, math.hypot(x - there[0], y - there[1])

    def around(self, x: float, y: float) -> Ints:
        """Return the indices of all lane points in the square of the grid that holds (x, y) and in the squares next to it.

        They include every point within `CELL` [m] of the place.
        """
        cell = math.floor(x / CELL), math.floor(y / CELL)
        found = self._around.get(cell)
        if found is None:
            offset = self.points[:, :2] - (np.array(cell) + 0.5) * CELL
            found = self._around[cell] = np.flatnonzero((np.abs(offset) <= 1.5 * CELL).all(1))
        return found

    def crossing_around(self, x: float, y: float) -> Ints:
        """Return the indices of those points of `around` that lie in junctions."""
        cell = math.floor(x / CELL), math.floor(y / CELL)
        found = self._crossing_around.get(cell)
        if found is None:
            around = self.around(x, y)
            found = self._crossing_around[cell] = around[self.crossing[self.way_of_point[around]]]
        return found

    def _nearest_point(self, among: Ints, x: float, y: float, heading: float | None) -> tuple[int, float]:
        """Return the index of the nearest of some points with about this heading [rad], and its squared distance."""
        points = self.points[among]
        squares = (points[:, 0] - x) ** 2 + (points[:, 1] - y) ** 2
        if heading is not None:
            squares = np.where(np.cos(points[:, 2] - heading) > 0.5, squares, np.inf)
        best = int(np.argmin(squares))
        return int(among[best]), float(squares[best])


def _enters(road_map: RoadMap, connecting: int, contact: str, road: Road, link: Link) -> bool:
    """Return True if a connecting road starts at this end of the road: both ends may touch one junction."""
    way = road_map.by_id[connecting]
    back = way.predecessor if contact == "start" else way.successor
    end = "end" if link is road.successor else "start"
    return back is not None and back.id == road.id and back.contact == end


def lane_points(road: Road, number: int) -> tuple[Floats, float]:
    """Return points (n, 3) at equal distances along a lane's centre in the direction of travel, and its length."""
    stations = np.linspace(0, road.length, max(math.ceil(road.length / 0.25), 2) + 1)
    inner, outer = road.edges(number, stations)
    x, y, _ = road.beside(stations, (inner + outer) / 2)
    if number > 0:
        x, y = x[::-1], y[::-1]
    y = -y
    along = np.concatenate([[0.0], np.cumsum(np.hypot(np.diff(x), np.diff(y)))])
    length = float(along[-1])
    places = np.linspace(0, length, max(round(length / SPACING), 1) + 1)
    heading = np.unwrap(np.arctan2(np.gradient(y, along), np.gradient(x, along)))
    return np.stack([np.interp(places, along, values) for values in (x, y, heading)], axis=1), length
