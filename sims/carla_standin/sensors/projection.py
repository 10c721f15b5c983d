"""Camera geometry: rays, projection of the ground into the picture, and boxes in view.

Camera frame: x forward, y to the right, z up [m]; pixels from the upper left corner.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import cv2
import numpy as np
import numpy.typing as npt

from carla_standin.maps.ground import Ground
from carla_standin.sensors.scene import SIGNS, Boxes, Floats

NEAR, FAR = 0.1, 150.0
"""Nearest and farthest distance [m] from the camera at which boxes are drawn."""
SHIFT = 4
"""Fractional bits of corners in OpenCV."""
NO_BOXES = slice(0)
EDGES = [(a, b) for a in range(8) for b in range(a) if np.abs(SIGNS[a] - SIGNS[b]).astype(bool).sum() == 1]


def axes(pitch: float, yaw: float, roll: float) -> Floats:
    """Return the rotation matrix (3, 3) whose columns are the directions forward, right and up of a frame.

    Angles in degrees.
    """
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
class Pinhole:
    """Pinhole camera."""

    width: int
    height: int
    fov: float
    """Horizontal field of view [degree]."""

    @cached_property
    def focal(self) -> float:
        """Focal length [pixel], the same in both directions."""
        return self.width / (2 * math.tan(math.radians(self.fov) / 2))

    @cached_property
    def rays(self) -> Floats:
        """Matrix (3, 3) that turns a pixel (column, row, 1) into its ray in the camera's frame: forward 1, right, up."""
        f = self.focal
        return np.array([[0, 0, 1.0], [1 / f, 0, (0.5 - self.width / 2) / f], [0, -1 / f, (self.height / 2 - 0.5) / f]])

    @cached_property
    def projection(self) -> Floats:
        """Matrix from (x, y, z) in the camera's frame to (depth, column times depth, row times depth)."""
        f = self.focal
        return np.array([[1.0, self.width / 2 - 0.5, self.height / 2 - 0.5], [0.0, f, 0.0], [0.0, 0.0, -f]])


class View:
    """A camera at a pose: what it sees of the ground and of boxes."""

    def __init__(self, camera: Pinhole, pose: Floats) -> None:
        self.camera = camera
        self.place = pose[:3]
        self.turn = axes(*pose[3:6])
        self.directions = self.turn @ camera.rays
        """Matrix from (column, row, 1) to a direction in the world's frame."""
        self.whole: dict[int, tuple[int, float]] = {}
        """Boxes of `outlines` that are wholly before the camera -> their visible sides, as in OUTLINES, and their height in the
        picture [pixels]."""

    def look(self, ground: Ground, border: int, labels: npt.NDArray[np.uint8], first: int) -> None:
        """Write the labels of the ground into a picture (H, W), from a row on; undefined above the horizon."""
        x, y, z = self.place.tolist()
        scale, height = ground.scale, max(z, 0.05)
        left, top = ground.low
        # A ray meets the ground at (x, y) + height * (dx, dy) / -dz; the texture begins at `low`.
        steps = [
            [scale * height, 0.0, 0.5 - scale * (x - left)],
            [0.0, scale * height, 0.5 - scale * (y - top)],
            [0.0, 0.0, -1.0],
        ]
        matrix = np.array(steps) @ self.directions
        matrix[:, 2] += first * matrix[:, 1]
        flags = cv2.INTER_NEAREST | cv2.WARP_INVERSE_MAP
        size = self.camera.width, self.camera.height - first
        cv2.warpPerspective(ground.labels, matrix, size, labels[first:], flags, cv2.BORDER_CONSTANT, border)

    def sinking(self) -> Floats:
        """Return (H, W) by how many m each pixel's ray descends per 1 m of depth; not positive above the horizon."""
        dz = self.directions[2]
        return np.asarray(-(dz[0] * np.arange(self.camera.width) + dz[2] + (dz[1] * np.arange(self.camera.height))[:, None]))

    def outlines(self, boxes: Boxes, hidden: slice = NO_BOXES) -> Iterator[tuple[int, npt.NDArray[np.int32]]]:
        """Yield the boxes in the picture, farthest first, and their outlines in pixels with SHIFT fractional bits.

        hidden: numbers of the boxes to leave out.
        """
        chosen = self._before(boxes, hidden)
        if not len(chosen):
            return
        # Position of the camera relative to a box: its sign along each axis selects the corners of the outline.
        offset, turns = self.place - boxes.middles[chosen], boxes.turns[chosen]
        seen_from = np.empty_like(offset)
        seen_from[:, 0] = offset[:, 0] * turns[:, 0] + offset[:, 1] * turns[:, 1]
        seen_from[:, 1] = offset[:, 1] * turns[:, 0] - offset[:, 0] * turns[:, 1]
        seen_from[:, 2] = offset[:, 2]
        gap = np.maximum(np.abs(seen_from) - boxes.halves[chosen], 0.0)
        squares = np.einsum("ij,ij->i", gap, gap)
        order = np.argsort(-squares, kind="stable")
        order = order[squares[order] > 0.0]
        sides = ((np.sign(seen_from[order]) * (gap[order] > 0.0)).astype(np.intp) + 1) @ (9, 3, 1)
        chosen = chosen[order]
        yield from self._drawn(chosen, (boxes.corners[chosen] - self.place) @ self.turn, sides)

    def panels(self, corners: Floats, boxes: Boxes, chosen: list[int], counts: list[int]) -> npt.NDArray[np.int32]:
        """Project painted rectangles of boxes into the picture.

        Args:
            corners: (p, 4, 3) Corners of the rectangles, in units of the half sizes of their boxes.
            boxes: All boxes.
            chosen: Indices of the boxes that have rectangles.
            counts: Number of rectangles of each chosen box.

        Returns:
            (p, 4, 2) pixels as integers with SHIFT fractional bits.
        """
        turns, turn, places = boxes.turns[chosen], self.turn, np.empty((len(chosen), 4, 3))
        places[:, 0] = turns[:, :1] * turn[0] + turns[:, 1:] * turn[1]
        places[:, 1] = turns[:, :1] * turn[1] - turns[:, 1:] * turn[0]
        places[:, 2] = turn[2]
        places[:, :3] *= boxes.halves[chosen][:, :, None]
        places[:, 3] = (boxes.middles[chosen] - self.place) @ turn
        projected = places @ self.camera.projection
        found = projected.repeat(counts, 0)
        local = corners @ found[:, :3] + found[:, 3:]
        return fixed_point(local[..., 1:] / local[..., :1])

    def _before(self, boxes: Boxes, hidden: slice) -> npt.NDArray[np.intp]:
        """Return the boxes above the ground with spheres before the camera, between the picture's left and right."""
        local, reach, half = (boxes.middles - self.place) @ self.turn, boxes.reach, math.radians(self.camera.fov) / 2
        ahead, aside = local[:, 0], np.abs(local[:, 1])
        seen = (np.abs(ahead - FAR / 2) < reach + FAR / 2) & (aside * math.cos(half) - ahead * math.sin(half) < reach)
        seen &= boxes.numbers[:, 6] > 0.0
        seen[hidden] = False
        return np.flatnonzero(seen)

    def _drawn(
        self, chosen: npt.NDArray[np.intp], corners: Floats, sides: npt.NDArray[np.intp]
    ) -> Iterator[tuple[int, npt.NDArray[np.int32]]]:
        """Yield the boxes in the picture; corners (n, 8, 3) are in the camera's frame, sides (n,) numbers in OUTLINES."""
        outline = corners[np.arange(len(corners))[:, None], OUTLINES[sides]]
        pixels = outline[..., 1:] * (self.camera.focal, -self.camera.focal) / np.maximum(outline[..., :1], 1e-6)
        pixels += self.camera.width / 2 - 0.5, self.camera.height / 2 - 0.5
        before = corners[..., 0].min(1) > NEAR
        low, high = pixels.min(1), pixels.max(1)
        inside = ((high >= 0) & (low < (self.camera.width, self.camera.height))).all(1)
        fixed = fixed_point(pixels)
        columns = chosen, sides, (high - low)[:, 1], before, inside
        for number, (box, side, height, is_before, is_inside) in enumerate(
            zip(*(column.tolist() for column in columns), strict=True)
        ):
            if is_before and is_inside:
                self.whole[box] = side, height
                yield box, fixed[number]
            elif not is_before and (cut := self._cut(corners[number])) is not None:
                yield box, cut

    def _cut(self, corners: Floats) -> npt.NDArray[np.int32] | None:
        """Return the outline of the part of a box that lies before the camera; None if no part does."""
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
        return np.asarray(cv2.convexHull(fixed_point(np.stack([columns, rows], axis=1))), np.int32)


def fixed_point(pixels: Floats) -> npt.NDArray[np.int32]:
    """Return pixels in OpenCV's fixed-point format, clipped to +-1e5."""
    return np.asarray(np.rint(np.minimum(np.maximum(pixels, -1e5), 1e5) * (1 << SHIFT)), np.int32)


def _outline(side: Floats) -> list[int]:
    """Return the six corners of a box's outline seen from a side; if there are four, the last is repeated."""
    turn = axes(math.degrees(math.atan2(-side[2], math.hypot(*side[:2]))), math.degrees(math.atan2(-side[1], -side[0])), 0.0)
    local = (SIGNS - 2.0 * side) @ turn
    hull: list[int] = cv2.convexHull((local[:, 1:] / local[:, :1]).astype(np.float32), returnPoints=False)[:, 0].tolist()
    return (hull + 2 * hull[-1:])[:6]


OUTLINES = np.array(
    [
        _outline(np.array([x, y, z])) if (x, y, z) != (0, 0, 0) else [0] * 6
        for x in (-1, 0, 1)
        for y in (-1, 0, 1)
        for z in (-1, 0, 1)
    ]
)
"""Corners of a box's outline as seen from each side, (27, 6) corner numbers.

The row for a camera at x, y, z (-1, 0 or 1 each: before, beside or behind the box along its axes) is 9 x + 3 y + z, negative
numbers counted from the end.
"""
