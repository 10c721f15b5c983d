"""The navigation mesh of a map for a client's AI walkers: a set of one Detour tile."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from carla_standin import layouts
from carla_standin.maps.pavements import Place, Polygon

CELL = 0.01
"""[m] Distance within which corners are merged."""
MARGIN, HEIGHT = 1.0, 5.0
"""Distance [m] by which the navigation mesh's bounds exceed its polygons, sideways, and above and below."""
MOST = 0x3FFF
"""Largest number of polygons of a tile: corners and neighbours have 16 bits, one of them for edges of tiles."""
WALKER = (1.8, 0.3, 0.5)
"""Size of the walkers for which the navigation mesh is made [m]: height, radius, and highest step."""
FAN, TRIANGLES = bytes([0, 1, 2, 0b000101, 0, 2, 3, 0b010100]), 2
"""Bytes that store a quadrilateral as two triangles, and the number of triangles.

A triangle is three corner numbers and a byte with two bits for each edge: 1 for an edge of the quadrilateral, 0 for the
diagonal.
"""
Faces = list[list[int]]
Neighbours = dict[tuple[int, int], int]
"""Edge of a polygon, from corner to corner -> number of the polygon."""


def connected(polygons: Sequence[Polygon]) -> list[Polygon]:
    """Return the connected component of polygons with the most pavements.

    A client ends in a segmentation fault if a walker has no path: a connected component has one between any two places.
    """
    whole = [polygon for polygon, face in zip(polygons, _welded(polygons)[1], strict=True) if len(set(face)) == len(face)]
    return [whole[number] for number in _largest(_welded(whole)[1], whole)]


def distance(polygons: Sequence[Polygon], x: float, y: float) -> float:
    """Return the distance [m] of a place of the map from the nearest edge of polygons."""
    starts = np.array([polygon.corners for polygon in polygons])
    edges = np.roll(starts, -1, axis=1) - starts
    away = np.array([x, y]) - starts
    share = np.clip((away * edges).sum(-1) / (edges * edges).sum(-1), 0.0, 1.0)
    return float(np.hypot(*np.moveaxis(away - share[..., None] * edges, -1, 0)).min())


def mesh(polygons: Sequence[Polygon]) -> bytes:
    """Return a navigation mesh file of polygons; b"" if there are none, or more than a tile can have."""
    if not 0 < len(polygons) <= MOST:
        return b""
    corners, faces = _welded(polygons)
    return _file(_tile(corners, faces, polygons), len(polygons))


def _welded(polygons: Sequence[Polygon]) -> tuple[list[Place], Faces]:
    """Return the distinct corners, and each polygon as their numbers."""
    corners: list[Place] = []
    cells: dict[tuple[int, int], int] = {}

    def number(place: Place) -> int:
        column, row = (math.floor(value / CELL) for value in place)
        near = [(column + i, row + j) for i in (0, -1, 1) for j in (0, -1, 1)]
        found = next((cells[cell] for cell in near if cell in cells), None)
        if found is None:
            found = cells[near[0]] = len(corners)
            corners.append(place)
        return found

    return corners, [[number(place) for place in polygon.corners] for polygon in polygons]


def _edges(face: list[int]) -> list[tuple[int, int]]:
    return list(zip(face, [*face[1:], face[0]], strict=True))


def _neighbours(faces: Faces) -> Neighbours:
    """Return the edges between exactly two polygons; edges of more than two do not connect."""
    count = Counter(edge for face in faces for edge in _edges(face))
    found = {edge: number for number, face in enumerate(faces) for edge in _edges(face)}
    return {(a, b): number for (a, b), number in found.items() if count[a, b] == count[b, a] == 1}


def _largest(faces: Faces, polygons: Sequence[Polygon]) -> list[int]:
    """Return the first component of polygons with the most pavements."""
    by_edge, left, best = _neighbours(faces), set(range(len(faces))), list[int]()

    def pavements(part: list[int]) -> int:
        return sum(polygons[number].area == layouts.Area.SIDEWALK for number in part)

    while left:
        part, border = [], [min(left)]
        left.remove(border[0])
        while border:
            number = border.pop()
            part.append(number)
            near = {by_edge[b, a] for a, b in _edges(faces[number]) if (b, a) in by_edge} & left
            left -= near
            border += sorted(near)
        if pavements(part) > pavements(best):
            best = sorted(part)
    return best


def _tile(corners: list[Place], faces: Faces, polygons: Sequence[Polygon]) -> bytes:
    vertices = np.array([(x, 0.0, -y) for x, y in corners], "<f4")
    by_edge = _neighbours(faces)
    polys = np.zeros(len(faces), layouts.NAV_POLYGON)
    details = np.zeros(len(faces), layouts.NAV_DETAIL)
    for number, (face, polygon) in enumerate(zip(faces, polygons, strict=True)):
        neighbours = [by_edge.get((b, a), -1) + 1 for a, b in _edges(face)]
        corners_of, behind = [*face, 0, 0], [*neighbours, 0, 0]
        polys[number] = layouts.NAV_NO_LINK, corners_of, behind, 1 << polygon.area, len(face), polygon.area
        details[number] = 0, number * TRIANGLES, 0, TRIANGLES, 0
    links = sum(map(len, faces))
    low, high = _bounds(vertices)
    counts = len(faces), len(vertices), links, len(faces), 0, len(faces) * TRIANGLES, 0, 0, len(faces)
    header = layouts.NAV_TILE.pack(
        *layouts.NAV_TILE_KIND, 0, 0, 0, 0, *counts, *WALKER, *low.tolist(), *high.tolist(), 1.0 / CELL
    )
    room = bytes(links * layouts.NAV_LINK_SIZE)  # for links, which the client makes
    return b"".join([header, vertices.tobytes(), polys.tobytes(), room, details.tobytes(), FAN * len(faces)])


def _bounds(vertices: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    beyond = np.array([MARGIN, HEIGHT, MARGIN], "<f4")
    return vertices.min(0) - beyond, vertices.max(0) + beyond


def _file(tile: bytes, count: int) -> bytes:
    low = np.frombuffer(tile, "<f4", 3, layouts.NAV_TILE_LOW)
    high = np.frombuffer(tile, "<f4", 3, layouts.NAV_TILE_LOW + 12)
    bits = (count - 1).bit_length()
    size = (high - low).tolist()
    head = layouts.NAV_SET.pack(*layouts.NAV_SET_KIND, 1, *low.tolist(), size[0], size[2], 1, 1 << bits)
    return head + layouts.NAV_ENTRY.pack(1 << bits, len(tile)) + tile
