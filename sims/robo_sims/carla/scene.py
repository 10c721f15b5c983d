"""Contents of a frame as numbers: the ego vehicle, all other actors, and the traffic lights on the way."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from robo_rl.errors import ServerUnavailable
from robo_sims.carla.roads import JUNCTION, SPACING, Floats
from robo_sims.carla.routes import Route

X, Y, YAW, VX, VY, HALF_LENGTH, HALF_WIDTH, WALKER = range(8)
"""Columns of `Scene.others`."""
RED, YELLOW, GREEN = 0, 1, 2
STATES = {"Red": RED, "Yellow": YELLOW, "Green": GREEN}
UNLIT = -1


@dataclass(frozen=True)
class Ego:
    """The car that is driven; world frame, angles clockwise."""

    x: float
    y: float
    yaw: float
    """[rad]"""
    vx: float
    vy: float
    """[m/s]"""
    ax: float
    ay: float
    """[m/s2]"""
    turning: float
    """[rad/s]"""
    limit: float
    """[m/s]"""

    @property
    def speed(self) -> float:
        """Returns it in m/s."""
        return math.hypot(self.vx, self.vy)

    def own(self, x: float, y: float) -> tuple[float, float]:
        """Returns a vector of the world in the car's frame: forward and to the right."""
        cosine, sine = math.cos(self.yaw), math.sin(self.yaw)
        return x * cosine + y * sine, y * cosine - x * sine

    def seen(self, places: Floats) -> Floats:
        """Returns places (n, 2) in the car's frame: forward and to the right of its middle."""
        cosine, sine = math.cos(self.yaw), math.sin(self.yaw)
        own: Floats = (places - (self.x, self.y)) @ np.array([[cosine, -sine], [sine, cosine]])
        return own


@dataclass(frozen=True)
class Light:
    """A traffic light on the way."""

    stop: float
    """[m] along the route, of its stop line."""
    actor: Any

    @property
    def state(self) -> int:
        """Returns RED, YELLOW, GREEN or UNLIT."""
        return STATES.get(str(self.actor.state), UNLIT)


@dataclass(frozen=True)
class Scene:
    """One frame."""

    frame: int
    ego: Ego
    others: Floats
    """(n, 8): x, y [m], yaw [rad], velocity [m/s], half length, half width [m], 1 for a walker."""
    lights: list[tuple[float, int]] = field(default_factory=list)
    """Stop line [m] along the route, and state, of each light on the way."""


class Reader:
    """Reads the frames of an episode; sizes are asked for once, because that is a call."""

    def __init__(self, ego: Any, others: list[Any], lights: list[Light]) -> None:
        self.ego, self.lights = ego, lights
        self.numbers = [actor.id for actor in others]
        self.still = np.zeros((len(others), 8))
        sizes: dict[str, tuple[float, float]] = {}
        for row, actor in zip(self.still, others, strict=True):
            if actor.type_id not in sizes:
                extent = actor.bounding_box.extent
                sizes[actor.type_id] = extent.x, extent.y
            row[HALF_LENGTH], row[HALF_WIDTH] = sizes[actor.type_id]
            row[WALKER] = actor.type_id.startswith("walker.")

    def read(self, snapshot: Any) -> Scene:
        """Returns what a snapshot holds; who is not in it any more is left out."""
        others, rows = self.still.copy(), []
        for number, identity in enumerate(self.numbers):
            actor = snapshot.find(identity)
            if actor is not None:
                pose, velocity = actor.get_transform(), actor.get_velocity()
                place = pose.location
                others[number, :5] = place.x, place.y, math.radians(pose.rotation.yaw), velocity.x, velocity.y
                rows.append(number)
        lights = [(light.stop, light.state) for light in self.lights]
        return Scene(snapshot.frame, self._ego(snapshot), others[rows], lights)

    def _ego(self, snapshot: Any) -> Ego:
        actor = snapshot.find(self.ego.id)
        if actor is None:
            raise ServerUnavailable("The car is not in the world any more.", fix="let one environment at a time use a server")
        pose, velocity, acceleration = actor.get_transform(), actor.get_velocity(), actor.get_acceleration()
        return Ego(
            pose.location.x,
            pose.location.y,
            math.radians(pose.rotation.yaw),
            velocity.x,
            velocity.y,
            acceleration.x,
            acceleration.y,
            math.radians(actor.get_angular_velocity().z),
            self.ego.get_speed_limit() / 3.6,
        )


def lights_on(route: Route, actors: list[Any]) -> list[Light]:
    """Returns the lights whose area before the stop line the route crosses, in its order."""
    found = []
    for actor in actors:
        box, pose = actor.trigger_volume, actor.get_transform()
        yaw = math.radians(pose.rotation.yaw)
        dx, dy = route.points[:, 0] - pose.location.x, route.points[:, 1] - pose.location.y
        along = dx * math.cos(yaw) + dy * math.sin(yaw) - box.location.x
        across = dy * math.cos(yaw) - dx * math.sin(yaw) - box.location.y
        inside = (np.abs(along) <= box.extent.x) & (np.abs(across) <= box.extent.y) & (route.points[:, JUNCTION] == 0)
        for end in np.flatnonzero(np.diff(np.append(inside, False).astype(int)) == -1):  # a route may pass it again
            found.append(Light(float(end) * SPACING, actor))
    return sorted(found, key=lambda light: light.stop)
