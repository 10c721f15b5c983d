"""Raster maps of the ground: semantic labels, speed limits and traffic lights."""

from __future__ import annotations

from collections.abc import Iterable

import cv2
import numpy as np
import numpy.typing as npt

from carla_standin.layouts import Tag
from carla_standin.maps.curves import Floats
from carla_standin.maps.roads import Road, RoadMap

FINEST, LARGEST = 4.0, 6000
"""Resolution [pixels/m] of the ground's labels, and largest number of pixels along a side, which lowers it for large maps."""
MARGIN = 30.0
"""Distance [m] by which the pictures of the ground reach beyond the roads."""
LABELS = {"driving": Tag.ROAD, "sidewalk": Tag.SIDEWALK, "shoulder": Tag.GROUND}
LINE, DASH = 0.2, 3.0
"""[m] width of a line as it is drawn; length of a dash and of a gap."""
STOP = 0.5
"""[m] width of a stop line, and of the road between it and the junction."""
BAR = 0.5
"""Width [m] of the white bars of a crosswalk, and of the gaps between the bars."""
SHIFT = 4
"""Fractional bits of OpenCV's coordinates."""


class Ground:
    """Pictures of the ground seen from above: semantic labels, and where each light counts.

    Columns are x, rows y, world frame.
    """

    def __init__(self, road_map: RoadMap) -> None:
        outlines = [_band(road, *_outer(road)) for road in road_map.roads]
        corners = np.concatenate(outlines)
        self.low = corners.min(0) - MARGIN
        size = corners.max(0) + MARGIN - self.low
        self.scale = min(FINEST, LARGEST / float(size.max()))
        self.shape = tuple(int(n) + 1 for n in (size * self.scale)[::-1])
        self.last = np.array(self.shape[::-1]) - 1
        self.labels = np.full(self.shape, Tag.TERRAIN, np.uint8)
        self.limits = np.zeros(self.shape, np.uint8)
        """Speed limit [km/h] at each pixel; 0 off the roads."""
        self.lights = np.zeros(self.shape, np.uint8)
        """1 + index of the traffic light that counts at each pixel; 0 where none does."""
        for kind in LABELS:
            for road in road_map.roads:
                self._lanes(road, kind)
        for road in sorted(road_map.roads, key=lambda road: -road.junction):
            if road.junction == -1:
                self._lines(road)
        for road in road_map.roads:
            for crosswalk in road.crosswalks:
                self._stripe(road.outline(crosswalk) * (1, -1))

    def mark_lights(self, areas: list[list[Floats]]) -> None:
        """Mark the ground for which each traffic light counts. Light number i + 1 gets the outlines `areas[i]`."""
        for number, outlines in enumerate(areas, 1):
            for outline in outlines:
                self.fill(self.lights, outline, number)

    def mark_stops(self, lines: Iterable[Floats]) -> None:
        """Paint stop lines on the ground's labels.

        lines: (2, 2) [m] both ends of each line.
        """
        thickness = max(1, round(STOP * self.scale))
        pixels = [self._pixels(line) for line in lines]
        cv2.polylines(self.labels, pixels, False, int(Tag.ROAD_LINE), thickness, cv2.LINE_8, SHIFT)

    def at(self, places: Floats) -> npt.NDArray[np.intp]:
        """Return the flat pixel indices of places (n, 2), clipped to the edge."""
        cells = ((places - self.low) * self.scale).astype(np.intp)
        cells = np.minimum(np.maximum(cells, 0), self.last)
        return np.asarray(cells[:, 0] + self.shape[1] * cells[:, 1])

    def limit(self, x: float, y: float) -> int:
        """Return the speed limit [km/h] at a place, 0 off the roads, as `at` finds it."""
        column, row = (
            min(max(int((place - low) * self.scale), 0), last)
            for place, low, last in zip((x, y), self.low.tolist(), self.last.tolist(), strict=True)
        )
        return int(self.limits[row, column])

    def fill(self, picture: npt.NDArray[np.uint8], outline: Floats, value: int) -> None:
        """Fill an outline (n, 2) in the simulator's frame."""
        cv2.fillPoly(picture, [self._pixels(outline)], int(value), shift=SHIFT)

    def _pixels(self, points: Floats) -> npt.NDArray[np.int32]:
        return np.asarray(np.round(((points - self.low) * self.scale - 0.5) * (1 << SHIFT)), np.int32)

    def _stripe(self, outline: Floats) -> None:
        """Paint a crosswalk (n, 2) on the road: bars across its longest side."""
        sides = np.diff(outline, axis=0)
        along = sides[np.argmax(np.hypot(*sides.T))]
        along = along / np.hypot(*along)
        low, high = (
            np.clip(((end - self.low) * self.scale).astype(int), 0, self.last) for end in (outline.min(0), outline.max(0))
        )
        window = np.s_[low[1] : high[1] + 1, low[0] : high[0] + 1]
        inside = np.zeros(self.labels[window].shape, np.uint8)
        cv2.fillPoly(inside, [self._pixels(outline) - (low << SHIFT)], 1, shift=SHIFT)
        rows, columns = np.nonzero(inside & (self.labels[window] == Tag.ROAD))
        places = (np.stack([columns, rows], axis=1) + low + 0.5) / self.scale + self.low
        across = (places - outline.mean(0)) @ along
        is_bar = np.floor(across / BAR + 0.5) % 2 == 0
        self.labels[window][rows[is_bar], columns[is_bar]] = Tag.ROAD_LINE

    def _lanes(self, road: Road, kind: str) -> None:
        for lane in road.lanes:
            if lane.kind == kind:
                inner, outer = road.edges(lane.id, _stations(road))
                band = _band(road, inner, outer)
                self.fill(self.labels, band, LABELS[kind])
                if kind == "driving":
                    self.fill(self.limits, band, round(road.speed * 3.6))

    def _lines(self, road: Road) -> None:
        s = _stations(road)
        self._line(road, road.middle(s), road.centre_mark)
        for lane in road.lanes:
            if lane.kind == "driving":
                self._line(road, road.edges(lane.id, s)[1], lane.mark)

    def _line(self, road: Road, t: Floats, mark: str) -> None:
        if mark == "none":
            return
        s = _stations(road)
        x, y, _ = road.beside(s, t)
        points = np.stack([x, -y], axis=1)
        thickness = max(1, round(LINE * self.scale))
        dashes = [(s >= start) & (s <= start + DASH) for start in np.arange(0, road.length, 2 * DASH)]
        parts = [points] if mark == "solid" else [points[chosen] for chosen in dashes if chosen.sum() > 1]
        cv2.polylines(
            self.labels, [self._pixels(part) for part in parts], False, int(Tag.ROAD_LINE), thickness, cv2.LINE_8, SHIFT
        )


def lane_area(road: Road, lane: int, begin: float, end: float) -> Floats:
    """Return the outline (n, 2) [m] of a lane from `begin` to `end` [m] along its road, simulator's frame."""
    s = np.linspace(begin, end, 8)
    inner, outer = road.edges(lane, s)
    (x, y, _), (far_x, far_y, _) = road.beside(s, inner), road.beside(s, outer)
    return np.concatenate([np.stack([x, -y], axis=1), np.stack([far_x, -far_y], axis=1)[::-1]])


def stop_line(road: Road, lane: int, orientation: str) -> Floats:
    """Return both ends (2, 2) [m] of a lane's stop line, in the simulator's frame.

    orientation: "+" puts the line at the end of the road, "-" at its start.
    """
    s = np.array([max(road.length - STOP, 0.0) if orientation == "+" else min(STOP, road.length)])
    (x, y, _), (far_x, far_y, _) = (road.beside(s, edge) for edge in road.edges(lane, s))
    return np.array([[x[0], -y[0]], [far_x[0], -far_y[0]]])


def _stations(road: Road) -> Floats:
    return np.linspace(0, road.length, max(2, int(road.length / 0.5) + 1))


def _outer(road: Road) -> tuple[Floats, Floats]:
    """Return the distances [m] of the road's left and right edge from its reference line, at each station."""
    s = _stations(road)
    ids = [0, *(lane.id for lane in road.lanes)]
    left, right = (road.middle(s) if number == 0 else road.edges(number, s)[1] for number in (max(ids), min(ids)))
    return left, right


def _band(road: Road, inner: Floats, outer: Floats) -> Floats:
    """Return the outline (n, 2) [m] between two edges of a road, in the simulator's frame."""
    s = _stations(road)
    (x, y, _), (far_x, far_y, _) = road.beside(s, inner), road.beside(s, outer)
    there, back = np.stack([x, -y], axis=1), np.stack([far_x, -far_y], axis=1)
    return np.concatenate([there, back[::-1]])
