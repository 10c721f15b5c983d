"""Lidars of the stand-in: a rotating fan of laser rays that hits the ground and the boxes of actors and buildings."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from carla_standin.actors import Actor
from carla_standin.layouts import LIDAR_HEADER, LIDAR_POINT, SEMANTIC_POINT, SensorType
from carla_standin.sensors.observed_world import ObservedWorld
from carla_standin.sensors.projection import axes
from carla_standin.sensors.rays import GROUND, Hits, cast
from carla_standin.sensors.sensor import Sensor, setting

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


class Scanner(Sensor):
    """Base class of lidars: it measures points (x, y, z) in the sensor's own frame, grouped by laser channel."""

    def __init__(self, actor: Actor, world: ObservedWorld) -> None:
        super().__init__(actor, world)
        self.channels = int(setting(actor, "channels", 1, 256))
        self.range = setting(actor, "range", 0.1, 500)
        self.rate = setting(actor, "points_per_second", 1, 5_000_000)
        self.turns = setting(actor, "rotation_frequency", 0.0, 1000)
        self.field = setting(actor, "horizontal_fov", 1, 360)
        upper, lower = (setting(actor, f"{which}_fov", -90, 90) for which in ("upper", "lower"))
        self.rises = np.radians(np.linspace(upper, lower, self.channels))
        self.angle = 0.0
        """Direction [degree] in which the next measurement starts."""

    @override
    def measured(self, world: ObservedWorld) -> list[bytes | memoryview]:
        dt = world.step_seconds
        swept = min(self.turns * 360.0 * dt, 360.0)
        count = max(int(self.rate * dt / self.channels), 1)
        bearings = (self.angle + np.arange(count) * swept / count) % 360.0 / 360.0 * self.field - self.field / 2
        self.angle = (self.angle + swept) % 360.0
        directions = self._directions(np.radians(bearings))
        pose = world.bodies.motion[self.actor.row, :6]
        hits = cast(pose[:3], directions @ axes(*pose[3:6]).T, self.range, world, self.actor.parent)
        seen, points = self.points(directions, hits, hits.distance <= self.range, world)
        header = LIDAR_HEADER.pack(math.radians(self.angle), self.channels)
        return [header + seen.sum(1).astype("<u4").tobytes() + points.tobytes()]

    def points(self, directions: Floats, hits: Hits, seen: Flags, world: ObservedWorld) -> tuple[Flags, npt.NDArray[np.void]]:
        """Return a mask of the rays (channels, n) with a return, and their points in this order."""
        raise NotImplementedError

    def _directions(self, bearings: Floats) -> Floats:
        """Return unit vectors (channels, n, 3) of the rays at some bearings, in the lidar's frame."""
        rise, bearing = self.rises[:, None], bearings[None, :]
        flat = np.cos(rise) * np.ones_like(bearing)
        return np.stack([flat * np.cos(bearing), flat * np.sin(bearing), np.sin(rise) * np.ones_like(bearing)], axis=-1)


class Lidar(Scanner):
    """Lidar: points with an intensity that fades with distance; some are lost, and their distance is noisy."""

    kind = SensorType.LIDAR

    def __init__(self, actor: Actor, world: ObservedWorld) -> None:
        super().__init__(actor, world)
        self.fade = setting(actor, "atmosphere_attenuation_rate", 0, 10)
        self.lost = setting(actor, "dropoff_general_rate", 0, 1)
        self.lost_at_zero = setting(actor, "dropoff_zero_intensity", 0, 1)
        self.bright = setting(actor, "dropoff_intensity_limit", 0, 1e6)
        self.noise = setting(actor, "noise_stddev", 0, 1e3)
        self.random = np.random.default_rng([int(setting(actor, "noise_seed", 0, 2**31)), actor.place])

    @override
    def points(self, directions: Floats, hits: Hits, seen: Flags, world: ObservedWorld) -> tuple[Flags, npt.NDArray[np.void]]:
        distance = np.where(seen, hits.distance, self.range)
        intensity = np.exp(-self.fade * distance)
        seen = seen & self._returns(intensity)
        if self.noise:
            distance = distance + self.noise * self.random.standard_normal(distance.shape)
        points = np.empty(int(seen.sum()), LIDAR_POINT)
        points["place"] = (directions * distance[..., None])[seen]
        points["intensity"] = intensity[seen]
        return seen, points

    def _returns(self, intensity: Floats) -> Flags:
        """Return a mask of the rays with a return: rays are lost at random, faint ones more often."""
        returns = np.ones(intensity.shape, np.bool_)
        if self.lost:
            returns &= self.random.random(intensity.shape) >= self.lost
        if self.lost_at_zero and self.bright:
            faint = self.lost_at_zero * (1.0 - intensity / self.bright)
            returns &= self.random.random(intensity.shape) >= faint
        return returns


class SemanticLidar(Scanner):
    """Semantic lidar: points with labels and actors; exact, and none is lost."""

    kind = SensorType.SEMANTIC_LIDAR

    @override
    def points(self, directions: Floats, hits: Hits, seen: Flags, world: ObservedWorld) -> tuple[Flags, npt.NDArray[np.void]]:
        """Return the points that were hit.

        Each is a record of the place, the cosine of the angle of incidence, the actor's id and the semantic class.
        """
        points = np.empty(int(seen.sum()), SEMANTIC_POINT)
        box = hits.box[seen]
        points["place"] = place = directions[seen] * hits.distance[seen][:, None]
        points["cosine"] = hits.incidence[seen]
        pose = world.bodies.motion[self.actor.row, :6]
        below = world.town.ground.at((place @ axes(*pose[3:6]).T + pose[:3])[:, :2])
        boxes = world.scene.boxes
        points["tag"] = np.where(box == GROUND, world.town.ground.labels.ravel()[below], boxes.tags[box])
        points["actor"] = np.where(box == GROUND, 0, boxes.owners[box])
        return seen, points
