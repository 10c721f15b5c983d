"""Where a camera looks: rays, the map of its pixels onto the flat ground, and boxes as it sees them.

Camera frame: x forward, y to the right, z up [m]; pixels from the upper left corner.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import cv2
import numpy as np
import numpy.typing as npt

from robo_sims.carla.standin.maps.ground import Ground
from robo_sims.carla.standin.sensors.scene import Boxes, Floats

NEAR, FAR = 0.1, 150.0
"""[m] between which boxes are drawn."""
NO_CORNERS = np.zeros((0, 8, 3))
SHIFT = 4
"""Fractional bits of corners in OpenCV."""
SIGNS = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (0, 1)], float)
EDGES = [(a, b) for a in range(8) for b in range(a) if np.abs(SIGNS[a] - SIGNS[b]).astype(bool).sum() == 1]


def axes(pitch: float, yaw: float, roll: float) -> Floats:
    """Returns the directions forward, right and up as columns; degrees."""
    cp, sp = math.cos(math.radians(pitch)), math.sin(math.radians(pitch))
    cy, sy = math.cos(math.radians(yaw)), math.sin(math.radians(yaw))
    cr, sr = math.cos(math.radians(roll)), math.sin(math.radians(roll))
    return np.array(
        [
            [cp * cy, cy * sp * sr - sy * cr, -cy * sp * cr - sy * sr],
            [cp * sy, sy * sp * sr + cy * cr, -sy * sp * cr + cy * sr],
            [sp, -cp * sr, cp * cr],
        ]
    )


@dataclass(frozen=True)
class Camera:
    """A pinhole."""

    width: int
    height: int
    fov: float
    """[degree] from the left to the right edge."""

    @cached_property
    def focal(self) -> float:
        """Focal length [pixel]."""
        return self.width / (2 * math.tan(math.radians(self.fov) / 2))

    @cached_property
    def rays(self) -> Floats:
        """The matrix that makes a direction in the camera's frame of (column, row, 1), whose depth is 1."""
        f = self.focal
        return np.array([[0, 0, 1.0], [1 / f, 0, (0.5 - self.width / 2) / f], [0, -1 / f, (self.height / 2 - 0.5) / f]])


class View:
    """A camera at a place."""

    def __init__(self, camera: Camera, pose: Floats) -> None:
        self.camera = camera
        self.place = pose[:3]
        self.turn = axes(*pose[3:6])
        self.directions = self.turn @ camera.rays
        """Makes a direction in the world of (column, row, 1)."""

    def labels(self, ground: Ground, border: int) -> npt.NDArray[np.uint8]:
        """Returns what the camera sees of the ground; above the horizon it is not defined."""
        x, y, z = self.place
        height = max(float(z), 0.05)
        dx, dy, dz = self.directions
        # A ray meets the ground at (x, y) + height * (dx, dy) / -dz; the texture begins at `low`.
        scale = ground.scale
        column = scale * (height * dx - (x - ground.low[0]) * dz) + 0.5 * dz
        row = scale * (height * dy - (y - ground.low[1]) * dz) + 0.5 * dz
        size = self.camera.width, self.camera.height
        flags = cv2.INTER_NEAREST | cv2.WARP_INVERSE_MAP
        seen = cv2.warpPerspective(ground.labels, np.stack([column, row, -dz]), size, None, flags, cv2.BORDER_CONSTANT, border)
        return np.asarray(seen, np.uint8)

    def sinking(self) -> Floats:
        """Returns for each pixel how far its ray sinks in 1 m of depth; not positive above the horizon."""
        dz = self.directions[2]
        return np.asarray(-(dz[0] * np.arange(self.camera.width) + dz[2] + (dz[1] * np.arange(self.camera.height))[:, None]))

    def visible(self, boxes: Boxes, hidden: int) -> tuple[npt.NDArray[np.intp], Floats]:
        """Returns the boxes that may be seen, farthest first, and their corners (n, 8, 3) in the camera's frame.

        The box of number `hidden` is left out; -1 leaves out none.
        """
        numbers = boxes.numbers
        chosen = self._before(numbers, boxes.reach, hidden)
        if not len(chosen):
            return chosen, NO_CORNERS
        numbers = numbers[chosen]
        offset, cosine, sine = numbers[:, :2] - self.place[:2], np.cos(numbers[:, 2]), np.sin(numbers[:, 2])
        # Distance to the nearest point of each box decides the order, and whether the camera is in it.
        along = np.abs(offset[:, 0] * cosine + offset[:, 1] * sine) - numbers[:, 3]
        across = np.abs(offset[:, 1] * cosine - offset[:, 0] * sine) - numbers[:, 4]
        above = np.maximum(self.place[2] - numbers[:, 6], numbers[:, 5] - self.place[2])
        gap = np.maximum(np.stack([along, across, above]), 0.0)
        squares = np.einsum("ij,ij->j", gap, gap)
        order = np.argsort(-squares, kind="stable")
        order = order[squares[order] > 0.0]
        return chosen[order], self._corners(numbers[order], cosine[order], sine[order])

    def _before(self, numbers: Floats, reach: Floats, hidden: int) -> npt.NDArray[np.intp]:
        """Returns the boxes whose spheres are before the camera, and between the left and right edge of the picture."""
        offset = numbers[:, :2] - self.place[:2]
        below = numbers[:, 5] - self.place[2]
        ahead = offset @ self.turn[:2, 0] + below * self.turn[2, 0]
        aside = np.abs(offset @ self.turn[:2, 1] + below * self.turn[2, 1])
        half = math.radians(self.camera.fov) / 2
        seen = (ahead > -reach) & (ahead < reach + FAR) & (aside * math.cos(half) - ahead * math.sin(half) < reach)
        if hidden >= 0:
            seen[hidden] = False
        return np.flatnonzero(seen)

    def _corners(self, numbers: Floats, cosine: Floats, sine: Floats) -> Floats:
        x, y = numbers[:, 3:4] * SIGNS[:, 0], numbers[:, 4:5] * SIGNS[:, 1]
        corners = np.empty((len(numbers), 8, 3))
        corners[..., 0] = (numbers[:, 0] - self.place[0])[:, None] + cosine[:, None] * x - sine[:, None] * y
        corners[..., 1] = (numbers[:, 1] - self.place[1])[:, None] + sine[:, None] * x + cosine[:, None] * y
        corners[..., 2] = numbers[:, 5:6] - self.place[2] + (numbers[:, 6:7] - numbers[:, 5:6]) * SIGNS[:, 2]
        return np.asarray(corners @ self.turn)

    def outlines(self, corners: Floats) -> list[npt.NDArray[np.int32] | None]:
        """Returns the outline of each box in pixels with SHIFT fractional bits; None where nothing is in the picture."""
        f, depth = self.camera.focal, np.maximum(corners[..., 0], 1e-6)
        pixels = np.empty((*corners.shape[:2], 2))
        pixels[..., 0] = self.camera.width / 2 - 0.5 + f * corners[..., 1] / depth
        pixels[..., 1] = self.camera.height / 2 - 0.5 - f * corners[..., 2] / depth
        before = corners[..., 0].min(1) > NEAR
        low, high = pixels.min(1), pixels.max(1)
        size = np.array([self.camera.width, self.camera.height])
        inside = ((high >= 0) & (low < size)).all(1)
        fixed = np.round(np.clip(pixels, -1e5, 1e5) * (1 << SHIFT)).astype(np.int32)
        found: list[npt.NDArray[np.int32] | None] = []
        for number in range(len(corners)):
            if before[number]:
                found.append(_hull(fixed[number]) if inside[number] else None)
            else:
                found.append(self._cut(corners[number]))
        return found

    def _cut(self, corners: Floats) -> npt.NDArray[np.int32] | None:
        """Returns the outline of the part of a box that lies before the camera."""
        points = [corner for corner in corners if corner[0] > NEAR]
        for first, second in EDGES:
            a, b = corners[first], corners[second]
            if (a[0] > NEAR) != (b[0] > NEAR):
                points.append(a + (b - a) * (NEAR - a[0]) / (b[0] - a[0]))
        if len(points) < 3:
            return None
        local = np.array(points)
        f = self.camera.focal
        columns = self.camera.width / 2 - 0.5 + f * local[:, 1] / local[:, 0]
        rows = self.camera.height / 2 - 0.5 - f * local[:, 2] / local[:, 0]
        pixels = np.clip(np.stack([columns, rows], axis=1), -1e5, 1e5)
        return _hull(np.round(pixels * (1 << SHIFT)).astype(np.int32))


def _hull(points: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    return np.asarray(cv2.convexHull(points), np.int32)
