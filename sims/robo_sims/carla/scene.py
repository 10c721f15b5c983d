"""Scene of a frame as arrays: ego vehicle, other actors, and traffic lights on the route."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from robo_rl.errors import ServerUnavailable
from robo_sims.carla.frames import Frame
from robo_sims.carla.roads import JUNCTION, SPACING, Floats
from robo_sims.carla.routes import Route

X, Y, YAW, VX, VY, HALF_LENGTH, HALF_WIDTH, WALKER = range(8)
"""Indices of the columns of `Scene.others`."""
EGO_SIZE = 2.45, 1.06
"""[m] default half length and half width of the ego vehicle."""
RED, YELLOW, GREEN = 0, 1, 2
STATES = {"Red": RED, "Yellow": YELLOW, "Green": GREEN}
UNLIT = -1
SIGNS = {"traffic.stop": "to stop", "traffic.yield": "to give way"}
"""Type of a sign's actor -> meaning."""
DEGREE = math.pi / 180


@dataclass(frozen=True)
class Ego:
    """State of the ego vehicle in the world frame; angles turn clockwise."""

    x: float
    y: float
    yaw: float
    """Heading [rad] of the ego vehicle, clockwise."""
    vx: float
    vy: float
    """Velocity of the ego vehicle along y of the world frame [m/s]."""
    ax: float
    ay: float
    """Acceleration of the ego vehicle along y of the world frame [m/s2]."""
    turning: float
    """Yaw rate [rad/s] of the ego vehicle, clockwise."""
    limit: float
    """Speed limit [m/s] at the ego vehicle's position."""

    @property
    def speed(self) -> float:
        """Speed of the ego vehicle [m/s]."""
        return math.hypot(self.vx, self.vy)

    def to_ego(self, x: float, y: float) -> tuple[float, float]:
        """Return a world vector in the ego frame: forward, right."""
        cosine, sine = math.cos(self.yaw), math.sin(self.yaw)
        return x * cosine + y * sine, y * cosine - x * sine

    def positions_in_ego(self, places: Floats) -> Floats:
        """Return positions (n, 2) in the ego frame: forward and right of the car's middle."""
        cosine, sine = math.cos(self.yaw), math.sin(self.yaw)
        own: Floats = (places - (self.x, self.y)) @ np.array([[cosine, -sine], [sine, cosine]])
        return own


@dataclass(frozen=True)
class Light:
    """Traffic light on the route: its stop line and its state."""

    stop: float
    """Position [m along the route] of the light's stop line."""
    actor: Any

    @property
    def state(self) -> int:
        """Present state of the light: RED, YELLOW, GREEN or UNLIT."""
        return STATES.get(str(self.actor.state), UNLIT)


@dataclass(frozen=True)
class Scene:
    """Ego vehicle, other actors, lights and signs in one frame of the simulation."""

    frame: int
    ego: Ego
    others: Floats
    """Other actors, (n, 8): x, y [m], yaw [rad], velocity x, y [m/s], half length, half width [m], and 1 for a walker, else
    0."""
    lights: list[tuple[float, int]] = field(default_factory=list)
    """Position of the stop line [m along the route] and state of each traffic light."""
    signs: list[tuple[float, str]] = field(default_factory=list)
    """Position of the stop line [m along the route] and type in `SIGNS` of each sign."""


class SceneReader:
    """Reads scenes from frames; actor sizes are queried once, because each query is a call."""

    def __init__(self, ego: Any, others: list[Any], lights: list[Light], signs: Sequence[tuple[float, str]] = ()) -> None:
        """signs: as `Scene.signs`."""
        self.ego, self.lights, self.signs = ego, lights, list(signs)
        self.numbers = [actor.id for actor in others]
        self.still = np.zeros((len(others), 8))
        sizes: dict[str, tuple[float, float]] = {}
        for row, actor in zip(self.still, others, strict=True):
            if actor.type_id not in sizes:
                extent = actor.bounding_box.extent
                sizes[actor.type_id] = extent.x, extent.y
            row[HALF_LENGTH], row[HALF_WIDTH] = sizes[actor.type_id]
            row[WALKER] = actor.type_id.startswith("walker.")

    def read(self, frame: Frame) -> Scene:
        """Return positions of all actors, states of the lights and the signs at a frame.

        Actors that no longer exist are left out.
        """
        others, places = self.still.copy(), frame.places(self.numbers)
        others[:, :5] = places
        others[:, YAW] *= DEGREE
        gone = np.isnan(places[:, 0])
        lights = [(light.stop, light.state) for light in self.lights]
        return Scene(frame.frame, self._ego(frame), others[~gone] if gone.any() else others, lights, self.signs)

    def _ego(self, frame: Frame) -> Ego:
        motion = frame.motion(self.ego.id)
        if motion is None:
            raise ServerUnavailable("The car is not in the world any more.", fix="let one environment at a time use a server")
        x, y, yaw, vx, vy, ax, ay, turning = motion
        return Ego(x, y, yaw * DEGREE, vx, vy, ax, ay, turning * DEGREE, self.ego.get_speed_limit() / 3.6)


def lights_on(route: Route, actors: list[Any]) -> list[Light]:
    """Return the lights whose trigger volume the route crosses, in route order."""
    return sorted((Light(end, actor) for actor in actors for end in ends_on(route, actor)), key=lambda light: light.stop)


def stops_on(route: Route, actors: list[Any]) -> list[float]:
    """Return the positions [m along the route] of the stop signs that count on a route, in order.

    A sign counts if the route crosses its trigger volume.
    """
    return sorted(end for actor in actors for end in ends_on(route, actor))


def ends_on(route: Route, actor: Any) -> list[float]:
    """Return where [m] a route, which may pass it twice, leaves the trigger volume of a signal outside junctions."""
    box, pose = actor.trigger_volume, actor.get_transform()
    yaw = math.radians(pose.rotation.yaw)
    dx, dy = route.points[:, 0] - pose.location.x, route.points[:, 1] - pose.location.y
    along = dx * math.cos(yaw) + dy * math.sin(yaw) - box.location.x
    across = dy * math.cos(yaw) - dx * math.sin(yaw) - box.location.y
    inside = (np.abs(along) <= box.extent.x) & (np.abs(across) <= box.extent.y) & (route.points[:, JUNCTION] == 0)
    return [float(end) * SPACING for end in np.flatnonzero(np.diff(np.append(inside, False).astype(int)) == -1)]
