"""A simple lidar: a fan of rays that turns, against the ground and the boxes; no noise and no dropped points."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from robo_sims.carla.standin.actors import Actor
from robo_sims.carla.standin.layouts import LIDAR_HEADER, SensorType
from robo_sims.carla.standin.sensors.camera import axes
from robo_sims.carla.standin.sensors.pictures import through
from robo_sims.carla.standin.sensors.sensor import Sensor, setting

if TYPE_CHECKING:
    from robo_sims.carla.standin.world import World

Floats = npt.NDArray[np.float64]


class Lidar(Sensor):
    """Points in its own frame, channel after channel."""

    kind = SensorType.LIDAR

    def __init__(self, actor: Actor, world: World) -> None:
        super().__init__(actor, world)
        self.channels = int(setting(actor, "channels", 1, 256))
        self.range = setting(actor, "range", 0.1, 500)
        self.rate = setting(actor, "points_per_second", 1, 5_000_000)
        self.turns = setting(actor, "rotation_frequency", 0.0, 1000)
        self.field = setting(actor, "horizontal_fov", 1, 360)
        self.fade = setting(actor, "atmosphere_attenuation_rate", 0, 10)
        upper, lower = (setting(actor, f"{which}_fov", -90, 90) for which in ("upper", "lower"))
        self.rises = np.radians(np.linspace(upper, lower, self.channels))
        self.angle = 0.0
        """[degree] where the next measurement begins"""

    def measured(self, world: World) -> list[bytes | memoryview]:
        """Returns the points of one step."""
        dt = world.step_seconds
        swept = min(self.turns * 360.0 * dt, 360.0)
        count = max(int(self.rate * dt / self.channels), 1)
        bearings = (self.angle + np.arange(count) * swept / count) % 360.0 / 360.0 * self.field - self.field / 2
        self.angle = (self.angle + swept) % 360.0
        directions = self._directions(np.radians(bearings))
        pose = world.bodies.motion[self.actor.row, :6]
        distance = self._distances(pose, directions, world)
        seen = distance <= self.range
        distance = np.minimum(distance, self.range)
        points = np.concatenate([directions * distance[..., None], np.exp(-self.fade * distance)[..., None]], axis=-1)
        counts = seen.sum(1).astype("<u4")
        header = LIDAR_HEADER.pack(math.radians(self.angle), self.channels)
        return [header + counts.tobytes() + points[seen].astype("<f4").tobytes()]

    def _directions(self, bearings: Floats) -> Floats:
        """Returns (channels, n, 3) in its own frame."""
        rise, bearing = self.rises[:, None], bearings[None, :]
        flat = np.cos(rise) * np.ones_like(bearing)
        return np.stack([flat * np.cos(bearing), flat * np.sin(bearing), np.sin(rise) * np.ones_like(bearing)], axis=-1)

    def _distances(self, pose: Floats, directions: Floats, world: World) -> Floats:
        ahead = directions @ axes(*pose[3:6]).T
        falling = -ahead[..., 2]
        distance = np.full(falling.shape, np.inf)
        np.divide(max(float(pose[2]), 0.01), falling, out=distance, where=falling > 1e-6)
        world.look()
        boxes = world.scene.boxes
        near = np.hypot(*(boxes.numbers[:, :2] - pose[:2]).T) < self.range + boxes.numbers[:, 3] + boxes.numbers[:, 4]
        near &= boxes.owners != self.actor.parent if self.actor.parent else True
        for x, y, yaw, half_length, half_width, bottom, top in boxes.numbers[near]:
            turn = np.array([[np.cos(yaw), -np.sin(yaw), 0], [np.sin(yaw), np.cos(yaw), 0], [0, 0, 1]])
            corners = [-half_length, -half_width, bottom], [half_length, half_width, top]
            begin, end = through((pose[:3] - [x, y, 0]) @ turn, ahead @ turn, corners)
            hit = (begin < end) & (begin > 0)
            distance[hit] = np.minimum(distance[hit], begin[hit])
        return distance
