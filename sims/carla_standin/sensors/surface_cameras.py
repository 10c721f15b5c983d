"""Cameras of the surface behind each pixel: normals and optical flow."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from carla_standin.actors import Actor
from carla_standin.layouts import FLOW_PIXEL, IMAGE_HEADER, SensorType
from carla_standin.sensors.cameras import CameraSensor, nearer
from carla_standin.sensors.observed_world import ObservedWorld
from carla_standin.sensors.projection import NEAR, View
from carla_standin.sensors.rays import GROUND, crossings, frame_of

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.intp]
SKY = 1e5
"""Depth [m] that is reported for the sky."""
UP = np.array([0.0, 0.0, 1.0])
MOST = 2.0
"""Largest motion, in halves of a picture."""


class SurfaceSensor(CameraSensor):
    """Base of cameras that need the location behind each pixel."""

    def surfaces(self, view: View, world: ObservedWorld) -> tuple[Floats, Numbers, Floats]:
        """Find what each pixel of the picture shows.

        Returns:
            Depth [m] along the camera's axis (h, w), `SKY` above the horizon; number of the visible box or GROUND (h, w); and
            the
            pixel's ray (h, w, 3) with depth 1.
        """
        sinking = view.sinking()
        depth, owners = np.full(sinking.shape, SKY), np.full(sinking.shape, GROUND, np.intp)
        np.divide(max(float(view.place[2]), 0.05), sinking, out=depth, where=sinking > 1e-4)
        for number, outline in self.boxes(view, world):
            nearer(depth, view, world.scene.boxes, number, outline, owners)
        u, v = np.meshgrid(np.arange(self.camera.width), np.arange(self.camera.height))
        return depth, owners, np.stack([u, v, np.ones_like(u)], axis=-1) @ view.directions.T


class NormalsCamera(SurfaceSensor):
    """Surface normals in the world's frame: red, green, blue are (x, y, z + 1) / 2; the sky is black."""

    kind = SensorType.NORMALS

    @override
    def draw(self, view: View, world: ObservedWorld) -> None:
        depth, owners, rays = self.surfaces(view, world)
        normals = np.broadcast_to(UP, rays.shape).copy()
        boxes = world.scene.boxes
        for number in np.unique(owners[owners != GROUND]).tolist():
            seen = owners == number
            turn, corners = frame_of(boxes.numbers[number])
            local = rays[seen] @ turn
            planes = crossings((view.place - [*boxes.numbers[number, :2], 0.0]) @ turn, local, corners)
            axis = np.minimum(*planes).argmax(-1)[:, None]
            own = np.zeros_like(local)
            np.put_along_axis(own, axis, -np.sign(np.take_along_axis(local, axis, -1)), -1)
            normals[seen] = own @ turn.T
        self.picture[..., 2::-1] = np.round((normals + 1.0) * 127.5)
        self.picture[depth == SKY, :3] = 0


class OpticalFlowCamera(SurfaceSensor):
    """Optical flow of each pixel since the camera's last picture, in halves of the picture: right and up."""

    kind = SensorType.OPTICAL_FLOW

    def __init__(self, actor: Actor, world: ObservedWorld) -> None:
        super().__init__(actor, world)
        width, height = self.camera.width, self.camera.height
        message = bytearray(IMAGE_HEADER.pack(width, height, self.camera.fov))
        message += bytes(FLOW_PIXEL.itemsize * width * height)
        self.message = memoryview(message)
        self.flow = np.frombuffer(message, FLOW_PIXEL, offset=IMAGE_HEADER.size).reshape(height, width)
        self.before: tuple[View, dict[tuple[int, int], Floats]] | None = None
        """The last view, and the poses of boxes in it."""

    @override
    def draw(self, view: View, world: ObservedWorld) -> None:
        poses, movable = self._poses(world)
        last, were = self.before or (view, poses)
        self.before = view, poses
        depth, owners, rays = self.surfaces(view, world)
        places = view.place + depth[..., None] * rays
        for number in np.unique(owners[owners != GROUND]).tolist():
            if number < len(movable) and movable[number] in were:
                seen = owners == number
                places[seen] = _moved(places[seen], poses[movable[number]], were[movable[number]])
        local = (places - last.place) @ last.turn
        local[depth == SKY] = (SKY * rays[depth == SKY]) @ last.turn  # so far away that only turns show
        projected = local @ self.camera.projection
        was = projected[..., 1:] / np.maximum(projected[..., :1], NEAR)
        u, v = np.meshgrid(np.arange(self.camera.width), np.arange(self.camera.height))
        for name, now, then, size in (("x", u, was[..., 0], self.camera.width), ("y", v, was[..., 1], -self.camera.height)):
            self.flow[name] = np.where(local[..., 0] > NEAR, np.clip(2.0 * (now - then) / size, -MOST, MOST), 0.0)

    def _poses(self, world: ObservedWorld) -> tuple[dict[tuple[int, int], Floats], list[tuple[int, int]]]:
        """Return x, y, yaw and bottom of all boxes that may move by actor and part, and the key of each box by its number."""
        scene = world.scene
        keys = [(actor.id, number - scene.index[actor.id].start) for number, actor in enumerate(scene.actors)]
        return dict(zip(keys, scene.boxes.numbers[: scene.count][:, [0, 1, 2, 5]].copy(), strict=True)), keys


def _moved(places: Floats, start: Floats, end: Floats) -> Floats:
    """Return places (n, 3) on a box, carried along from its pose `start` to `end`: x, y, yaw, bottom."""
    turned = float(end[2] - start[2])
    cosine, sine = math.cos(turned), math.sin(turned)
    x, y, z = (places - [start[0], start[1], start[3]]).T
    return np.stack([end[0] + cosine * x - sine * y, end[1] + sine * x + cosine * y, end[3] + z], axis=1)
