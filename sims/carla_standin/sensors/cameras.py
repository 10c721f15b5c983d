"""Cameras: semantic, colour and depth. Flat ground, boxes, no light and no shadow."""

from __future__ import annotations

from collections.abc import Iterator

import cv2
import numpy as np
import numpy.typing as npt
from typing_extensions import override

from carla_standin.actors import Actor
from carla_standin.layouts import IMAGE_HEADER, SensorType, Tag
from carla_standin.sensors.observed_world import ObservedWorld
from carla_standin.sensors.paint import SMALL
from carla_standin.sensors.projection import FAR, NO_BOXES, SHIFT, Pinhole, View
from carla_standin.sensors.rays import frame_of, through
from carla_standin.sensors.scene import Boxes
from carla_standin.sensors.sensor import Sensor, setting

Picture = npt.NDArray[np.uint8]
Painted = tuple[npt.NDArray[np.int32], tuple[int, int, int, int]]
"""Filled polygon: its corners [pixel], and the value of its pixels (blue, green, red, alpha)."""
LARGEST = 4096
BONNET = 1.0
"""[m] Distance around a car within which its own cameras do not see it."""
LAST_INSTANCE = 0xFFFF
DEEPEST = 1000.0
"""[m] Largest depth in a depth picture."""
PAINT = {
    Tag.ROAD: (90, 90, 90),
    Tag.SIDEWALK: (160, 160, 170),
    Tag.TERRAIN: (70, 130, 90),
    Tag.GROUND: (80, 100, 110),
    Tag.SKY: (235, 190, 140),
    Tag.ROAD_LINE: (235, 235, 235),
}
"""Semantic label of ground or sky -> colour in pictures: blue, green, red."""
_BYTES = np.full((256, 4), 255, np.uint8)
for _tag, _colour in PAINT.items():
    _BYTES[_tag, :3] = _colour
PALETTE = _BYTES.view(np.uint32)[:, 0]
"""Colour of each semantic label (256,), the four bytes of a pixel as one number."""


CONTROL: dict[int, tuple[int, int, int]] = {
    Tag.CAR: (230, 120, 40),
    Tag.TRUCK: (200, 60, 160),
    Tag.BUS: (60, 170, 230),
    Tag.MOTORCYCLE: (120, 230, 120),
    Tag.BICYCLE: (120, 230, 120),
    Tag.PEDESTRIAN: (60, 60, 230),
    Tag.POLE: (150, 150, 150),
    Tag.ROAD_LINE: (255, 255, 255),
}
"""Semantic label -> colour in the control input of a video model: blue, green, red; the rest is black."""
_KINDS = np.zeros((256, 4), np.uint8)
_KINDS[Tag.ROAD_LINE, :3], _KINDS[:, 3] = CONTROL[Tag.ROAD_LINE], 255
KINDS = _KINDS.view(np.uint32)[:, 0]


class CameraSensor(Sensor):
    """Base class of cameras. Each picture is drawn over the last one, in the same array."""

    def __init__(self, actor: Actor, world: ObservedWorld) -> None:
        super().__init__(actor, world)
        width, height = (int(setting(actor, f"image_size_{axis}", 1, LARGEST)) for axis in "xy")
        self.camera = Pinhole(width, height, setting(actor, "fov", 1.0, 170.0))
        message = bytearray(IMAGE_HEADER.pack(width, height, self.camera.fov)) + bytes(4 * width * height)
        self.message = memoryview(message)
        self.picture: Picture = np.frombuffer(message, np.uint8, offset=IMAGE_HEADER.size).reshape(height, width, 4)
        """(height, width, 4): blue, green, red, alpha; a part of the message"""
        self.picture[..., 3] = 255
        self.labels: Picture = np.zeros((height, width), np.uint8)
        self.sky_of: tuple[float, float] | None = None
        self.rides: bool | None = None

    @override
    def measured(self, world: ObservedWorld) -> list[bytes | memoryview]:
        if world.settings.no_rendering:
            return []
        world.look()
        self.draw(View(self.camera, world.bodies.motion[self.actor.row, :6]), world)
        return [self.message]

    def draw(self, view: View, world: ObservedWorld) -> None:
        """Draw the camera's picture into the array `picture`."""
        raise NotImplementedError

    def ground(self, view: View, world: ObservedWorld) -> Picture:
        """Return the semantic labels (H, W) of ground and sky in the picture, before any box is drawn."""
        pose = world.bodies.motion[self.actor.row]
        tilt = float(pose[3]), float(pose[5])
        if tilt != self.sky_of:  # the horizon moves only with pitch and roll
            self._find_sky(view)
            self.sky_of = tilt
        if self.first < self.camera.height:
            view.look(world.town.ground, Tag.TERRAIN, self.labels, self.first)
        self.labels[: self.first] = Tag.SKY
        if self.more_sky is not None:
            self.labels[self.more_sky] = Tag.SKY
        return self.labels

    def _find_sky(self, view: View) -> None:
        """Find the first row with ground, and the mask of the sky from there on."""
        sky = view.sinking() <= 1e-4
        rows = sky.all(1)
        self.first = self.camera.height if rows.all() else int(rows.argmin())
        sky[: self.first] = False
        self.more_sky = sky if sky.any() else None

    def _rides(self, world: ObservedWorld) -> bool:
        """Return True if the camera is so near to its own car that the car is hidden: a box has no low bonnet."""
        if self.rides is None:
            carrier = world.bodies.by_id.get(self.actor.parent)
            (x, y, z), _ = world.attachments.poses.get(self.actor, [[0.0] * 3] * 2)
            length, width, height = carrier.box.extent if carrier else (0.0, 0.0, 0.0)
            outside = max(abs(x) - length, abs(y) - width, z - 2 * height)
            self.rides = carrier is not None and outside < BONNET
        return self.rides

    def boxes(self, view: View, world: ObservedWorld) -> Iterator[tuple[int, npt.NDArray[np.int32]]]:
        """Yield the number of each box in the picture and its outline, farthest first."""
        hidden = world.scene.index.get(self.actor.parent, NO_BOXES) if self._rides(world) else NO_BOXES
        return view.outlines(world.scene.boxes, hidden)


class SemanticCamera(CameraSensor):
    """Camera whose red channel is the semantic class of each pixel."""

    kind = SensorType.SEMANTIC

    @override
    def draw(self, view: View, world: ObservedWorld) -> None:
        labels, tags = self.ground(view, world), world.scene.boxes.tags
        for number, outline in self.boxes(view, world):
            cv2.fillConvexPoly(labels, outline, int(tags[number]), cv2.LINE_8, SHIFT)
        self.picture[..., 2] = labels


class InstanceCamera(CameraSensor):
    """Camera of semantic classes (red) and actors: the low byte of the id in green, the high byte in blue."""

    kind = SensorType.INSTANCE

    @override
    def draw(self, view: View, world: ObservedWorld) -> None:
        self.picture[..., :2], self.picture[..., 2] = 0, self.ground(view, world)
        boxes = world.scene.boxes
        for number, outline in self.boxes(view, world):
            # Objects of the map are not actors: they count down from the last number.
            instance = int(boxes.owners[number]) or LAST_INSTANCE - (number - world.scene.count)
            colour = instance >> 8 & 255, instance & 255, int(boxes.tags[number]), 255
            cv2.fillConvexPoly(self.picture, outline, colour, cv2.LINE_8, SHIFT)


class RgbCamera(CameraSensor):
    """Camera whose pictures show colours, without light and shadow."""

    kind = SensorType.RGB

    @override
    def draw(self, view: View, world: ObservedWorld) -> None:
        np.take(PALETTE, self.ground(view, world), out=self.picture.view(np.uint32)[..., 0], mode="clip")
        drawn = list(self.boxes(view, world))
        painted = self._painted(view, world)
        for number, outline in drawn:
            if number in painted:
                for panel, colour in painted[number]:
                    cv2.fillConvexPoly(self.picture, panel, colour, cv2.LINE_8, SHIFT)
            else:
                blue, green, red = world.scene.boxes.colours[number].tolist()
                cv2.fillConvexPoly(self.picture, outline, (blue, green, red, 255), cv2.LINE_8, SHIFT)

    def _painted(self, view: View, world: ObservedWorld) -> dict[int, list[Painted]]:
        """Return number of a box -> outlines and colours of its panels, for movable boxes wholly before the camera."""
        scene, lamps = world.scene, world.lamps
        plans = {
            number: scene.coats[number].plan(sides, height < SMALL, lamps.get(scene.actors[number].id, 0))
            for number, (sides, height) in view.whole.items()
            if number < scene.count
        }
        if not plans:
            return {}
        corners = np.concatenate([plan.corners for plan in plans.values()])
        counts = [len(plan.paints) for plan in plans.values()]
        outlines = iter(view.panels(corners, scene.boxes, list(plans), counts))
        return {
            number: [(next(outlines), scene.paints[number].colours[paint]) for paint in plan.paints]
            for number, plan in plans.items()
        }


class CosmosCamera(CameraSensor):
    """Camera of the control input of a video model: lane lines, lamps, and actors in the colour of their kind."""

    kind = SensorType.COSMOS

    @override
    def draw(self, view: View, world: ObservedWorld) -> None:
        np.take(KINDS, self.ground(view, world), out=self.picture.view(np.uint32)[..., 0], mode="clip")
        boxes = world.scene.boxes
        for number, outline in self.boxes(view, world):
            tag = int(boxes.tags[number])
            colour = boxes.colours[number].tolist() if tag == Tag.TRAFFIC_LIGHT else CONTROL.get(tag, (0, 0, 0))
            cv2.fillConvexPoly(self.picture, outline, (*colour, 255), cv2.LINE_8, SHIFT)


class DepthCamera(CameraSensor):
    """Camera of the depth along its axis, in 24 bits over three channels."""

    kind = SensorType.DEPTH

    @override
    def draw(self, view: View, world: ObservedWorld) -> None:
        sinking = view.sinking()
        depth = np.full(sinking.shape, DEEPEST)
        np.divide(max(float(view.place[2]), 0.05), sinking, out=depth, where=sinking > 1e-4)
        for number, outline in self.boxes(view, world):
            nearer(depth, view, world.scene.boxes, number, outline)
        value = np.round(np.minimum(depth, DEEPEST) / DEEPEST * (256**3 - 1)).astype(np.uint32)
        for channel, shift in ((2, 0), (1, 8), (0, 16)):
            self.picture[..., channel] = (value >> shift) & 255


def nearer(
    depth: npt.NDArray[np.float64],
    view: View,
    boxes: Boxes,
    number: int,
    outline: npt.NDArray[np.int32],
    owners: npt.NDArray[np.intp] | None = None,
) -> None:
    """Write the depth of a box at its visible pixels, by rays against three pairs of planes, and its number into `owners`."""
    left, top, width, height = cv2.boundingRect(outline)
    rows = slice(max(top >> SHIFT, 0), max(((top + height) >> SHIFT) + 2, 0))
    columns = slice(max(left >> SHIFT, 0), max(((left + width) >> SHIFT) + 2, 0))
    part = depth[rows, columns]
    if not part.size:
        return
    u, v = np.meshgrid(np.arange(part.shape[1]) + columns.start, np.arange(part.shape[0]) + rows.start)
    directions = np.stack([u, v, np.ones_like(u)], axis=-1) @ view.directions.T
    turn, corners = frame_of(boxes.numbers[number])
    begin, end = through((view.place - [*boxes.numbers[number, :2], 0.0]) @ turn, directions @ turn, corners)
    seen = (begin < end) & (begin > 0) & (begin < np.minimum(part, FAR * 2))
    part[seen] = begin[seen]
    if owners is not None:
        owners[rows, columns][seen] = number
