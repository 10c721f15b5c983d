"""Bird's-eye view of a scene in the car's frame, drawn with numpy and OpenCV."""

from __future__ import annotations

import math
from collections.abc import Sequence

import cv2
import numpy as np
import numpy.typing as npt

from carla_standin.approach import stopping_way
from robo_sims.carla.boxes import corners
from robo_sims.carla.roads import Floats, Pictures, Roads
from robo_sims.carla.routes import Route
from robo_sims.carla.scene import GREEN, HALF_LENGTH, HALF_WIDTH, RED, VX, VY, WALKER, YAW, YELLOW, Ego, Scene, X, Y

CHANNELS = ("road", "line", "route", "vehicle", "walker", "light")
SCALE = 2.0
"""Scale of the bird's-eye picture [pixels/m]."""
BEHIND = 0.25
"""Share of the picture behind the car's middle."""
SHADES = {RED: 255, YELLOW: 170, GREEN: 80}
"""Light state -> grey value of its stop line."""
SHIFT = 4
"""Fractional bits of OpenCV's coordinates."""
VEHICLE, WALKER_CHANNEL = 3, 4


def meaning(size: int) -> str:
    """Return the text that describes the bird's-eye picture in the spec: range, scale, and what each channel shows.

    size: height and width of the picture [pixel].
    """
    return (
        f"{size / SCALE:g} m from above, {SCALE:g} pixels/m, the car's middle at the middle column and {1 - BEHIND:.0%} of the "
        "rows down, forward is up; channels, 0 or 255: driving lanes, their lines, the route, other vehicles, walkers, and the "
        f"stop line of the next lights ({SHADES[RED]} red, {SHADES[YELLOW]} yellow, {SHADES[GREEN]} green)"
    )


class BirdsEye:
    """Draws bird's-eye pictures of scenes along one route."""

    def __init__(self, roads: Roads, route: Route, size: int, scale: float = SCALE) -> None:
        self.roads, self.route, self.size, self.scale = roads, route, size, scale
        self.middle = np.array([0.5 * size, (1.0 - BEHIND) * size])

    def draw(self, scene: Scene, s: float, index: int) -> Pictures:
        """Return a new picture (size, size, 6) uint8; s [m], index: position of the car on its route."""
        picture = np.zeros((len(CHANNELS), self.size, self.size), np.uint8)
        ground = cv2.warpAffine(
            self.roads.ground,
            self._to_ground(scene.ego),
            (self.size, self.size),
            flags=cv2.INTER_NEAREST | cv2.WARP_INVERSE_MAP,
        )
        picture[0], picture[1] = ground[..., 0], ground[..., 1]
        self._turn_to(scene.ego)
        self._route(picture[2], index)
        self._boxes(picture, scene)
        for stop, state in scene.lights:
            if state in SHADES and -5.0 < stop - s < self.size / self.scale:
                self._stop_line(picture[5], stop, SHADES[state])
        drawn: Pictures = np.asarray(cv2.merge(list(picture)), np.uint8)  # a third of the time of a transposed copy
        return drawn

    def draw_stopping_ways(self, shown: Pictures, scene: Scene) -> None:
        """Draw into a coloured picture of the last scene how far each body goes before it can stand."""
        ego, others = scene.ego, scene.others
        places = np.concatenate([[[ego.x, ego.y]], others[:, [X, Y]]])
        ways = stopping_way(np.concatenate([[[ego.vx, ego.vy]], others[:, [VX, VY]]]))
        ends = np.stack([self._pixels(places), self._pixels(places + ways)], axis=1)
        lines = list(ends[np.hypot(ways[:, 0], ways[:, 1]) > 1.0])
        cv2.polylines(shown, lines, False, WAY, max(1, round(0.4 * self.scale)), cv2.LINE_8, SHIFT)

    def _to_ground(self, ego: Ego) -> Floats:
        """Return the matrix (2, 3) from pixels of the picture to pixels of the ground."""
        cosine, sine = math.cos(ego.yaw), math.sin(ego.yaw)
        ratio = self.roads.scale / self.scale
        turn = ratio * np.array([[-sine, -cosine], [cosine, -sine]])
        centre = (np.array([ego.x, ego.y]) - self.roads.low) * self.roads.scale
        return np.concatenate([turn, (centre - turn @ self.middle)[:, None]], axis=1)

    def _turn_to(self, ego: Ego) -> None:
        """Set the transform of `_pixels` to a frame."""
        cosine, sine, fine = math.cos(ego.yaw), math.sin(ego.yaw), self.scale * (1 << SHIFT)
        self._turn = fine * np.array([[-sine, -cosine], [cosine, -sine]])
        self._shift = (self.middle - 0.5) * (1 << SHIFT) - np.array([ego.x, ego.y]) @ self._turn

    def _pixels(self, positions: Floats) -> npt.NDArray[np.int32]:
        """Return world positions (n, 2) as pixels (column, row) with fractional bits."""
        return np.rint(positions @ self._turn + self._shift).astype(np.int32)

    def _route(self, picture: Pictures, index: int) -> None:
        reach = int(1.2 * self.size / self.scale)
        points = self.route.points[max(index - reach // 2, 0) : index + reach : 2, :2]
        thickness = max(1, round(1.5 * self.scale))
        cv2.polylines(picture, [self._pixels(points)], False, 255, thickness, cv2.LINE_8, SHIFT)

    def _boxes(self, picture: Pictures, scene: Scene) -> None:
        reach = self.size / self.scale + 5.0
        others = scene.others
        near = others[(np.abs(others[:, X] - scene.ego.x) < reach) & (np.abs(others[:, Y] - scene.ego.y) < reach)]
        if len(near):
            outlines = corners(near[:, :2], near[:, YAW], near[:, HALF_LENGTH], near[:, HALF_WIDTH])
            pixels = self._pixels(outlines.reshape(-1, 2)).reshape(-1, 4, 2)
            for outline, walks in zip(pixels, near[:, WALKER], strict=True):
                cv2.fillConvexPoly(picture[VEHICLE + int(walks)], outline, 255, cv2.LINE_8, SHIFT)

    def _stop_line(self, picture: Pictures, stop: float, shade: int) -> None:
        start, end = self.route.ahead(stop, np.array([0.0, 0.5]))
        across = np.array([start[1] - end[1], end[0] - start[0]]) / 0.5 * 1.75
        thickness = max(1, round(self.scale))
        cv2.polylines(
            picture, [self._pixels(np.stack([start - across, start + across]))], False, shade, thickness, cv2.LINE_8, SHIFT
        )


COLOURS = np.array([(70, 70, 78), (235, 235, 225), (70, 130, 240), (240, 190, 60), (240, 90, 200), (255, 255, 255)], np.uint8)
BAR = 24
"""[pixels] height of a text line below a rendered picture."""
GRASS, OWN, NOSE, WAY = (120, 150, 110), (230, 60, 60), (255, 255, 255), (255, 120, 0)
FRONT = 0.25
"""Share of the car's length that is drawn as its front."""
WIDER = 0.35
"""Margin [m], at least one pixel, by which walkers are drawn larger on every side; true to scale a walker is two pixels
wide."""
LAMPS = {255: (255, 40, 40), 170: (255, 210, 40), 80: (60, 220, 80)}


def coloured(picture: Pictures, half_size: tuple[float, float], scale: float) -> Pictures:
    """Return the bird's-eye picture in colours, RGB (H, W, 3), with the ego vehicle drawn on it; the vehicle's front is white.

    Args:
        picture: (H, W, 6) channels of the bird's-eye view.
        half_size: Half length and half width [m] of the ego vehicle.
        scale: Scale of the picture [pixels/m].
    """
    size = len(picture)
    shown = np.full((size, size, 3), GRASS, np.uint8)
    for channel, colour in enumerate(COLOURS[:-1]):
        drawn = picture[..., channel]
        if channel == WALKER_CHANNEL and drawn.any():
            reach = 2 * max(1, round(WIDER * scale)) + 1
            drawn = np.asarray(cv2.dilate(drawn, np.ones((reach, reach), np.uint8)), np.uint8)
        shown[drawn > 0] = colour
    for shade, lamp in LAMPS.items():
        shown[picture[..., len(CHANNELS) - 1] == shade] = lamp
    half_length, half_width = (scale * part for part in half_size)
    column, row = 0.5 * size, (1.0 - BEHIND) * size
    low, high = (round(column - half_width), round(row - half_length)), (round(column + half_width), round(row + half_length))
    cv2.rectangle(shown, low, high, OWN, cv2.FILLED)
    cv2.rectangle(shown, low, (high[0], round(row - (1.0 - 2.0 * FRONT) * half_length)), NOSE, cv2.FILLED)
    return shown


def captioned(picture: Pictures, lines: Sequence[str], background: tuple[int, int, int]) -> Pictures:
    """Return the picture with a bar below it that shows lines of white text.

    background: colour of the bar, RGB.
    """
    bar = np.full((BAR * len(lines), picture.shape[1], 3), background, np.uint8)
    for number, text in enumerate(lines, 1):
        cv2.putText(bar, text, (6, BAR * number - 8), cv2.FONT_HERSHEY_SIMPLEX, 0.4, (255, 255, 255), 1, cv2.LINE_AA)
    return np.concatenate([picture, bar])
