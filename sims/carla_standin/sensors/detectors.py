"""Radar and obstacle detector."""

from __future__ import annotations

import math

import msgpack
import numpy as np
import numpy.typing as npt
from typing_extensions import override

from carla_standin.actors import VX, VZ, Actor
from carla_standin.collisions import BUILDING
from carla_standin.layouts import RADAR_POINT, SensorType
from carla_standin.sensors.observed_world import ObservedWorld
from carla_standin.sensors.projection import axes
from carla_standin.sensors.rays import GROUND, cast
from carla_standin.sensors.sensor import Sensor, flag, setting

Floats = npt.NDArray[np.float64]
RINGS, ROUND = np.array([0.5, 1.0]), 8
"""Rays of an obstacle detector besides the central one: radius of each ring as a share of the detector's, and rays per ring."""


class Radar(Sensor):
    """Radar: points at random directions within an ellipse ahead, each with the rate of its distance."""

    kind = SensorType.RADAR

    def __init__(self, actor: Actor, world: ObservedWorld) -> None:
        super().__init__(actor, world)
        fields = [setting(actor, f"{axis}_fov", 0.0, 179.0) for axis in ("horizontal", "vertical")]
        self.spread = np.tan(np.radians(fields) / 2)
        self.range = setting(actor, "range", 0.1, 500)
        self.rate = setting(actor, "points_per_second", 1, 1_000_000)
        self.random = np.random.default_rng([int(setting(actor, "noise_seed", 0, 2**31)), actor.place])

    @override
    def measured(self, world: ObservedWorld) -> list[bytes | memoryview]:
        count = int(self.rate * world.step_seconds)
        radius, angle = self.random.random(count), self.random.random(count) * 2 * math.pi
        aside = self.spread * np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
        directions = np.concatenate([np.ones((count, 1)), aside], axis=1)
        directions /= np.linalg.norm(directions, axis=1)[:, None]
        pose = world.bodies.motion[self.actor.row, :6]
        ahead = directions @ axes(*pose[3:6]).T
        hits = cast(pose[:3], ahead, self.range, world, self.actor.parent)
        seen = hits.distance <= self.range
        points = np.empty(int(seen.sum()), RADAR_POINT)
        moving = self._velocities(hits.box[seen], world) - world.bodies.motion[self.actor.row, VX : VZ + 1]
        points["velocity"] = np.einsum("ij,ij->i", moving, ahead[seen])
        points["azimuth"] = np.arctan2(directions[seen, 1], directions[seen, 0])
        points["altitude"] = np.arcsin(directions[seen, 2])
        points["depth"] = hits.distance[seen]
        return [points.tobytes()]

    def _velocities(self, box: npt.NDArray[np.intp], world: ObservedWorld) -> Floats:
        """Return the velocities (n, 3) [m/s] of boxes; zero for the ground and the map's objects."""
        found = np.zeros((len(box), 3))
        for number in np.unique(box[box != GROUND]):
            owner = world.bodies.by_id.get(int(world.scene.boxes.owners[number]))
            if owner is not None:
                found[box == number] = world.bodies.motion[owner.row, VX : VZ + 1]
        return found


class Obstacle(Sensor):
    """Obstacle detector: the first body ahead, in each step in which there is one."""

    kind = SensorType.OBSTACLE

    def __init__(self, actor: Actor, world: ObservedWorld) -> None:
        super().__init__(actor, world)
        self.reach = setting(actor, "distance", 0.0, 1000.0)
        self.radius = setting(actor, "hit_radius", 0.0, 100.0)
        self.only_dynamics = flag(actor, "only_dynamics")
        flag(actor, "debug_linetrace")

    @override
    def measured(self, world: ObservedWorld) -> list[bytes | memoryview]:
        """Return one message with the obstacle and its distance [m]; an empty list if nothing is in the way."""
        pose = world.bodies.motion[self.actor.row, :6]
        turn = axes(*pose[3:6])
        starts = pose[:3] + self._starts() @ turn.T
        hits = cast(starts, np.broadcast_to(turn[:, 0], starts.shape), self.reach + self.radius, world, self.actor.parent)
        found = [
            (distance, box)
            for distance, box in zip(hits.distance.tolist(), hits.box.tolist(), strict=True)
            if box != GROUND and distance <= self.reach and self._counts(world, box)
        ]
        if not found:
            return []
        distance, box = min(found)
        carrier = world.bodies.by_id.get(self.actor.parent, self.actor)
        return [msgpack.packb([carrier.encoded(), self._owner(world, box).encoded(), distance])]

    def _starts(self) -> Floats:
        """Return the origins (n, 3) [m] of its rays, in its own frame: a disc, for the sweep of a sphere."""
        angle = np.arange(ROUND) * 2 * math.pi / ROUND
        ring = np.stack([np.zeros(ROUND), np.cos(angle), np.sin(angle)], axis=1)
        rings = (self.radius * RINGS[:, None, None] * ring).reshape(-1, 3)
        return np.concatenate([np.zeros((1, 3)), rings])

    def _owner(self, world: ObservedWorld, box: int) -> Actor:
        return world.bodies.by_id.get(int(world.scene.boxes.owners[box]), BUILDING)

    def _counts(self, world: ObservedWorld, box: int) -> bool:
        return not self.only_dynamics or self._owner(world, box).type_id.startswith(("vehicle.", "walker."))
