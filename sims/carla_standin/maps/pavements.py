"""Walkable areas: pavements, their corners and crossings, as convex polygons with common edges."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from carla_standin.layouts import Area, Tag
from carla_standin.maps.curves import Floats
from carla_standin.maps.ground import Ground
from carla_standin.maps.roads import Junction, Road, RoadMap

CLEAR = 0.3
"""[m] Distance of a walker's centre from either edge of a pavement."""
NARROWEST = 0.2
"""Least width [m] of the strip in which a walker's centre may be; a narrower pavement is left out."""
STRAIGHT, BENT = 10.0, 2.0
"""[m] length of a polygon along a straight road, at most, and along any other."""
CROSSING = 3.0
"""[m] width of a crossing, in the middle of each road with pavements on both sides."""
SHORTEST = 12.0
"""[m] Shortest road with a crossing."""
PARTS = 8
"""Number of polygons that approximate the curve of a corner."""
ROUND = 0.39
"""Length of the tangents of a corner's curve, as a share of its chord; a right angle is nearly a quarter circle."""
BLURRED = 0.3
"""Share of a polygon, from its edges inwards, that may overlap the road in the raster, whose pixels are coarse."""
FLAT = 1e-4
"""Least cross product [m2] of neighbouring sides of a polygon that counts as convex."""
LONGEST = 60.0
"""Longest distance [m] between two pavement ends that are joined around a corner."""
Place = tuple[float, float]
Corners = tuple[Place, Place, Place, Place]


@dataclass(frozen=True)
class Polygon:
    """Convex quadrilateral of walkable ground; its corners go anticlockwise in the map's frame."""

    corners: Corners
    area: Area


@dataclass(frozen=True)
class End:
    """End of a pavement where it meets a junction: its right and left edge (2,) [m], and its direction [rad]."""

    right: Floats
    left: Floats
    heading: float

    @property
    def middle(self) -> Floats:
        """Return the middle (2,)."""
        return (self.right + self.left) / 2


def polygons(road_map: RoadMap, ground: Ground, buildings: Floats) -> list[Polygon]:
    """Return the walkable polygons, free of roads and of `buildings` (n, 6); none if there is no pavement."""
    along = [polygon for road in road_map.roads for polygon in _of_road(road)]
    corners = [polygon for junction in road_map.junctions for polygon in _corners(road_map, junction)]
    found = along + corners
    if not found:
        return []
    corners_of = np.array([polygon.corners for polygon in found])
    samples = _samples(corners_of)
    is_kept = _are_convex(corners_of) & ~_are_built_on(samples, buildings)
    is_kept[len(along) :] &= ~_are_on_road(samples[len(along) :], ground)
    return [polygon for polygon, kept in zip(found, is_kept.tolist(), strict=True) if kept]


def _of_road(road: Road) -> Iterator[Polygon]:
    pavements = [lane.id for lane in road.lanes if lane.kind == "sidewalk"]
    s = _stations(road)
    for number in pavements:
        yield from _strip(road, s, *_walked(road, number, s), Area.SIDEWALK)
    left, right = (min((n for n in pavements if n * side > 0), key=abs, default=None) for side in (1, -1))
    if left is not None and right is not None and _is_crossed(road):
        at = road.length / 2 + np.array([-0.5, 0.5]) * CROSSING
        yield from _strip(road, at, _walked(road, left, at)[1], _walked(road, right, at)[0], Area.CROSSWALK)


def _is_crossed(road: Road) -> bool:
    return road.junction == -1 and road.length >= SHORTEST


def _stations(road: Road) -> Floats:
    """Return the distances [m] along a road that divide its pavements into polygons, ends of its crossing included."""
    is_straight = all(piece.bends == (0.0, 0.0) for piece in road.pieces) and not road.offsets
    ends = [0.0, road.length]
    if _is_crossed(road):
        ends[1:1] = [road.length / 2 - CROSSING / 2, road.length / 2 + CROSSING / 2]
    longest = STRAIGHT if is_straight else BENT
    counts = [max(math.ceil((b - a) / longest), 1) for a, b in pairwise(ends)]
    if len(counts) == 3:
        counts[1] = 1  # the crossing has no corners but those of its ends
    parts = [np.linspace(a, b, count + 1) for (a, b), count in zip(pairwise(ends), counts, strict=True)]
    return np.concatenate([parts[0], *(part[1:] for part in parts[1:])])


def _walked(road: Road, number: int, s: Floats) -> tuple[Floats, Floats]:
    """Return the left and right limit for a walker's centre on a pavement, in m from the reference line."""
    inner, outer = road.edges(number, s)
    return np.maximum(inner, outer) - CLEAR, np.minimum(inner, outer) + CLEAR


def _strip(road: Road, s: Floats, left: Floats, right: Floats, area: Area) -> Iterator[Polygon]:
    yield from _between(_places(road, s, right), _places(road, s, left), area, left - right >= NARROWEST)


def _places(road: Road, s: Floats, t: Floats) -> Floats:
    x, y, _ = road.beside(s, t)
    return np.stack([x, y], axis=1)


def _between(right: Floats, left: Floats, area: Area, is_wide: Iterable[bool]) -> Iterator[Polygon]:
    """Yield the quadrilaterals between two lines (n, 2) of the same direction, where both ends are wide enough."""
    for (a, b), (d, c), wide in zip(pairwise(right.tolist()), pairwise(left.tolist()), pairwise(is_wide), strict=True):
        if all(wide):
            yield Polygon((tuple(a), tuple(b), tuple(c), tuple(d)), area)


def _corners(road_map: RoadMap, junction: Junction) -> Iterator[Polygon]:
    """Yield the polygons around a junction: from the right of each arm to the left of the next, anticlockwise."""
    arms = [arm for road in road_map.roads if road.junction == -1 for arm in _arms(road, junction.id)]
    if len(arms) < 2:
        return
    middle = np.mean([place for place, _, _ in arms], axis=0)
    arms.sort(key=lambda arm: math.atan2(*(arm[0] - middle)[::-1]))
    for (_, _, first), (_, second, _) in zip(arms, [*arms[1:], arms[0]], strict=True):
        if first is not None and second is not None:
            yield from _corner(first, second)


def _arms(road: Road, junction: int) -> Iterator[tuple[Floats, End | None, End | None]]:
    """Yield each arm's position, and the ends of its left and right pavements as seen when entering the junction."""
    for link, s, sign in ((road.predecessor, 0.0, -1), (road.successor, road.length, 1)):
        if link is None or link.kind != "junction" or link.id != junction:
            continue
        place = np.concatenate(road.at(np.array([s]))[:2])
        yield place, _end(road, s, sign, sign), _end(road, s, sign, -sign)


def _end(road: Road, s: float, sign: int, side: int) -> End | None:
    """Return the end of the outermost pavement of a side (1: left of the reference line, -1: right), if any."""
    numbers = [lane.id for lane in road.lanes if lane.kind == "sidewalk" and lane.id * side > 0]
    if not numbers:
        return None
    at = np.array([s])
    left, right = _walked(road, max(numbers, key=abs), at)
    if left[0] - right[0] < NARROWEST:
        return None
    heading = float(road.at(at)[2][0]) + (0.0 if sign == 1 else math.pi)
    edges = [_places(road, at, t)[0] for t in ((right, left) if sign == 1 else (left, right))]
    return End(edges[0], edges[1], heading)


def _corner(first: End, second: End) -> list[Polygon]:
    """Return the polygons from one pavement's end to the next pavement's end; none if they are too far apart."""
    if float(np.hypot(*(second.middle - first.middle))) > LONGEST:
        return []
    right, left = (
        _curve(a, first.heading, b, second.heading) for a, b in ((first.right, second.left), (first.left, second.right))
    )
    return list(_between(right, left, Area.GRASS, [True] * len(right)))


def _curve(start: Floats, heading: float, end: Floats, facing: float) -> Floats:
    """Return points (n, 2) of a cubic Bezier curve that starts along `heading` and ends against `facing`."""
    reach = ROUND * float(np.hypot(*(end - start)))
    one = start + reach * np.array([math.cos(heading), math.sin(heading)])
    two = end + reach * np.array([math.cos(facing), math.sin(facing)])
    u = np.linspace(0.0, 1.0, PARTS + 1)[:, None]
    return np.asarray((1 - u) ** 3 * start + 3 * u * (1 - u) ** 2 * one + 3 * u**2 * (1 - u) * two + u**3 * end)


def _are_convex(corners: Floats) -> npt.NDArray[np.bool_]:
    """Return for each polygon (n, 4, 2) whether it is convex and anticlockwise."""
    sides = np.roll(corners, -1, axis=1) - corners
    following = np.roll(sides, -1, axis=1)
    turns = sides[..., 0] * following[..., 1] - sides[..., 1] * following[..., 0]
    return np.asarray((turns > FLAT).all(1))


def _samples(corners: Floats) -> Floats:
    """Return nine points of each polygon (n, 9, 2): corners, middles of edges, middle; in the simulator's frame."""
    halves = (corners + np.roll(corners, -1, axis=1)) / 2
    return np.concatenate([corners, halves, corners.mean(1, keepdims=True)], axis=1) * [1.0, -1.0]


def _are_on_road(samples: Floats, ground: Ground) -> npt.NDArray[np.bool_]:
    inside = samples + BLURRED * (samples[:, -1:] - samples)
    labels = ground.labels.ravel()[ground.at(inside.reshape(-1, 2))].reshape(inside.shape[:2])
    return np.asarray(np.isin(labels, (Tag.ROAD, Tag.ROAD_LINE)).any(1))


def _are_built_on(samples: Floats, buildings: Floats) -> npt.NDArray[np.bool_]:
    found = np.zeros(len(samples), bool)
    middles, sizes = samples[:, -1], np.hypot(*np.ptp(samples, axis=1).T)
    for x, y, yaw, length, width, _ in buildings.tolist():
        near = np.flatnonzero(np.abs(middles - [x, y]).max(1) < sizes + length + width + CLEAR)
        away, cosine, sine = samples[near] - [x, y], math.cos(math.radians(yaw)), math.sin(math.radians(yaw))
        along = away[..., 0] * cosine + away[..., 1] * sine
        across = away[..., 1] * cosine - away[..., 0] * sine
        found[near] |= ((np.abs(along) < length + CLEAR) & (np.abs(across) < width + CLEAR)).any(1)
    return found
