"""Road map as arrays: lane graph and ground pictures, read from the client once per map.

Positions are in CARLA's frame, called "world" here: x and y [m], y to the right of x; headings [rad] are clockwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Pictures = npt.NDArray[np.uint8]

SPACING = 1.0
"""Distance [m] between neighbouring points of a lane."""
SCALE = 4.0
"""Resolution [pixels/m] of the ground pictures."""
LARGEST = 4000
"""[pixels] maximum side of the ground pictures; larger maps are drawn coarser."""
MARGIN = 40.0
"""Margin [m] by which the ground pictures reach beyond the roads."""
DASH = 3
"""Points of a dash and of a gap of broken lines."""
LINE_WIDTH = 0.5
"""Width [m] with which lane lines are drawn, so wide that they survive half the resolution."""
ROAD, LINE = 0, 1
"""Channels of the ground."""
X, Y, Z, HEADING, WIDTH, JUNCTION = range(6)
MOST_KNOWN = 16
KNOWN: dict[str, Roads] = {}
"""OpenDRIVE text -> roads: many environments drive on the same map."""


@dataclass(frozen=True)
class LaneOfMap:
    """A driving lane of one section of a road, in the direction of travel."""

    points: Floats
    """(n, 6): x, y, z [m], heading [rad], width [m], 1 in a junction; `SPACING` apart."""
    successors: tuple[int, ...]
    solid: tuple[bool, bool]
    """True for solid lane marks to the left and to the right."""
    marked: tuple[bool, bool]


class Roads:
    """All driving lanes of a map; tells whether a place is on a road, or on the side of oncoming traffic."""

    def __init__(self, lanes: list[LaneOfMap]) -> None:
        self.lanes = lanes
        rows = np.concatenate([lane.points for lane in lanes])
        self.outside = rows[rows[:, JUNCTION] == 0]
        """(n, 6): lane points outside junctions."""
        points = rows[:, :2]
        self.low = points.min(0) - MARGIN
        size = points.max(0) + MARGIN - self.low
        self.scale = min(SCALE, LARGEST / float(size.max()))
        self.ground = np.zeros((int(size[1] * self.scale) + 1, int(size[0] * self.scale) + 1, 2), np.uint8)
        """(rows, columns, 2): 255 on driving lanes and on lane marks; column from x, row from y."""
        self._draw()

    def is_road(self, x: float, y: float) -> bool:
        """Return True if a position is on a driving lane."""
        column, row = int((x - self.low[0]) * self.scale), int((y - self.low[1]) * self.scale)
        rows, columns, _ = self.ground.shape
        return 0 <= row < rows and 0 <= column < columns and bool(self.ground[row, column, ROAD])

    def is_oncoming(self, x: float, y: float, heading: float) -> bool:
        """Return True if a position outside junctions is only on lanes against a heading [rad]."""
        dx, dy = x - self.outside[:, X], y - self.outside[:, Y]
        cosine, sine = np.cos(self.outside[:, HEADING]), np.sin(self.outside[:, HEADING])
        along, across = dx * cosine + dy * sine, dy * cosine - dx * sine
        here = (np.abs(along) <= SPACING) & (np.abs(across) <= 0.5 * self.outside[:, WIDTH])
        turned = np.cos(self.outside[here, HEADING] - heading)
        return bool(len(turned)) and bool((turned < 0).all())

    def pixels(self, points: Floats) -> npt.NDArray[np.int32]:
        """Return map positions (..., 2) [m] as pixel coordinates in sixteenths of a pixel, OpenCV's fixed-point form."""
        found: npt.NDArray[np.int32] = np.round(((points - self.low) * self.scale - 0.5) * 16).astype(np.int32)
        return found

    def _draw(self) -> None:
        road, line = (np.zeros(self.ground.shape[:2], np.uint8) for _ in range(2))
        for lane in self.lanes:
            left, right = edges(lane.points, 0.5)
            cv2.fillPoly(road, [self.pixels(np.concatenate([left, right[::-1]]))], 255, shift=4)
        thickness = max(1, round(LINE_WIDTH * self.scale))
        for lane in self.lanes:
            if not lane.points[0, JUNCTION]:
                for edge, is_solid, is_marked in zip(edges(lane.points, 0.5), lane.solid, lane.marked, strict=True):
                    parts = [edge] if is_solid else [edge[n : n + DASH + 1] for n in range(0, len(edge), 2 * DASH)]
                    if is_marked:
                        cv2.polylines(line, [self.pixels(part) for part in parts], False, 255, thickness, cv2.LINE_8, 4)
        self.ground = np.ascontiguousarray(np.stack([road, line], axis=2))


def edges(points: Floats, share: float) -> tuple[Floats, Floats]:
    """Return the lines left and right of a lane's centre line, (n, 2) [m] each.

    Args:
        points: Points of the centre line, with heading and width.
        share: Distance from the centre line, as a share of the lane's width; 0.5 for the edges.
    """
    across = np.stack([-np.sin(points[:, HEADING]), np.cos(points[:, HEADING])], axis=1) * share * points[:, WIDTH, None]
    return points[:, :2] - across, points[:, :2] + across


def read(carla_map: Any) -> Roads:
    """Return the roads of the client's map, cached for the last few maps."""
    text = carla_map.to_opendrive()
    if text not in KNOWN:
        if len(KNOWN) == MOST_KNOWN:
            KNOWN.pop(next(iter(KNOWN)))
        KNOWN[text] = Roads(_lanes(carla_map))
    return KNOWN[text]


def _lanes(carla_map: Any) -> list[LaneOfMap]:
    starts: dict[tuple[int, int, int], Any] = {}
    links: dict[tuple[int, int, int], list[tuple[int, int, int]]] = {}
    for start, end in carla_map.get_topology():
        starts.setdefault(_key(start), start)
        if _key(start) == _key(end) and abs(start.s - end.s) > SPACING:
            continue  # the end of a lane that leads nowhere
        starts.setdefault(_key(end), end)
        links.setdefault(_key(start), []).append(_key(end))
    keys = sorted(starts)
    number = {key: index for index, key in enumerate(keys)}
    return [_lane(starts[key], tuple(sorted(number[end] for end in set(links.get(key, []))))) for key in keys]


def _key(waypoint: Any) -> tuple[int, int, int]:
    return waypoint.road_id, waypoint.section_id, waypoint.lane_id


def _lane(start: Any, successors: tuple[int, ...]) -> LaneOfMap:
    ahead = start.next_until_lane_end(SPACING)  # which goes on through further sections of the road
    waypoints = [start, *takewhile(lambda waypoint: _key(waypoint) == _key(start), ahead)]
    rows = []
    for waypoint in waypoints:
        pose = waypoint.transform
        place, yaw = pose.location, math.radians(pose.rotation.yaw)
        rows.append((place.x, place.y, place.z, yaw, waypoint.lane_width, float(waypoint.is_junction)))
    middle = waypoints[len(waypoints) // 2]
    kinds = [str(mark.type) for mark in (middle.left_lane_marking, middle.right_lane_marking)]
    solid, marked = (kinds[0].startswith("Solid"), kinds[1].startswith("Solid")), (kinds[0] != "NONE", kinds[1] != "NONE")
    return LaneOfMap(np.array(rows, float), successors, solid, marked)
