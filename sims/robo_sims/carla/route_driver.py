"""A policy as the driver of a car on a route that another program simulates, such as the CARLA leaderboard.

The program steps the world, places the car and the traffic, and judges. The policy sees what it saw in its environment: through
the client, the map, the route and all actors. In the leaderboard's words it is a privileged agent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidSetting
from robo_rl.protocols.components import Policy
from robo_sims.carla.connection import client_package
from robo_sims.carla.environment import DrivingEnv
from robo_sims.carla.frames import ClientFrame
from robo_sims.carla.rewards import PERIOD
from robo_sims.carla.roads import SPACING
from robo_sims.carla.routes import Route, arc_lengths, resample
from robo_sims.carla.sensors import MOUNT, Camera
from robo_sims.carla.session import ANSWER_TIMEOUT, WorldView

FRONT = "front"
"""Id of the front camera among the agent's sensors."""
SHORTEST = 20.0
"""[m] shortest route."""


class RouteDriver:
    """Decides every 0.1 s of simulated time, and keeps its controls between two decisions."""

    def __init__(self, policy: Policy, environment: Any) -> None:
        """environment: the one that the policy was made for; it is used for its observation, never stepped."""
        bare = environment.unwrapped
        if not isinstance(bare, DrivingEnv) or bare is not environment:
            raise InvalidSetting(
                "This run drives no car by itself.", got=str(environment), allowed="a run on carla/..., without wrappers"
            )
        self.policy, self.environment = policy, bare
        self.carla = client_package()
        self._front = LastPicture()
        self._controls, self._due = np.zeros(2), -math.inf

    def sensors(self) -> list[dict[str, Any]]:
        """Return the sensors that the program must attach, in the leaderboard's form."""
        size = self.environment.camera_size
        place = {"x": MOUNT[0], "y": 0.0, "z": MOUNT[1], "roll": 0.0, "pitch": 0.0, "yaw": 0.0}
        camera = {"type": "sensor.camera.rgb", **place, "width": size, "height": size, "fov": 90, "id": FRONT}
        return [camera] if size else []

    def begin(self, world: Any, vehicle: Any, plan: Sequence[Any]) -> None:
        """Begin to drive a new route.

        Args:
            world: CARLA's world.
            vehicle: The vehicle that is driven.
            plan: Poses (`carla.Transform`) along the route.

        Raises:
            InvalidSetting: The route is too short.
        """
        guest = GuestView(self.carla, world)
        camera = self._front if self.environment.camera_size else None
        self.environment.join(guest, vehicle, route_along(guest.map(), plan), camera)
        self._controls, self._due = np.zeros(2), -math.inf
        if callable(reset := getattr(self.policy, "reset", None)):
            reset()

    def control(self, world: Any, seconds: float, pictures: Mapping[str, Any]) -> Any:
        """Return the car's control; seconds: simulated time. pictures: name -> (frame, picture in BGRA) of the sensors."""
        if seconds >= self._due - 1e-6:
            self._due = seconds + PERIOD
            if FRONT in pictures:
                self._front.shown = np.ascontiguousarray(pictures[FRONT][1][:, :, 2::-1])
            seen = self.environment.watch(ClientFrame(world.get_snapshot()), self._others(world), self._controls)
            action = self.policy.act(seen, deterministic=True)
            self._controls = self.environment.environment_spec.action.to_physical(action)
        steer, longitudinal = (float(value) for value in self._controls)
        return self.carla.VehicleControl(throttle=max(longitudinal, 0.0), steer=steer, brake=max(-longitudinal, 0.0))

    def _others(self, world: Any) -> list[Any]:
        """Return all vehicles and walkers but the own car."""
        own = self.environment.vehicle.id
        actors = world.get_actors()
        return [actor for kind in ("vehicle.*", "walker.*") for actor in actors.filter(kind) if actor.id != own]


class GuestView(WorldView):
    """World that another program simulates."""

    def __init__(self, carla: Any, world: Any) -> None:
        self.carla, self.world, self.patience = carla, world, ANSWER_TIMEOUT

    def map(self) -> Any:
        """Return the client's map object."""
        return self.world.get_map()

    def signals(self, kind: str) -> list[Any]:
        """Return the actors of all signals of a kind, such as "traffic.stop"."""
        return list(self.world.get_actors().filter(f"{kind}*"))


class LastPicture(Camera):
    """Front camera whose pictures another program delivers."""

    shown: npt.NDArray[np.uint8]

    def picture(self, frame: int, patience: float) -> npt.NDArray[np.uint8]:
        """Return the last RGB picture (H, W, 3)."""
        return self.shown


def route_along(carla_map: Any, plan: Sequence[Any]) -> Route:
    """Return the route through poses (`carla.Transform`), with width and junction of the lanes below them.

    Raises InvalidSetting if it is shorter than 20 m.
    """
    rows = []
    for pose in plan:
        below, place = carla_map.get_waypoint(pose.location), pose.location
        yaw = math.radians(pose.rotation.yaw)
        rows.append((place.x, place.y, place.z, yaw, below.lane_width, float(below.is_junction)))
    points = np.array(rows, float).reshape(-1, 6)
    points = points[np.append(True, np.hypot(*np.diff(points[:, :2], axis=0).T) > 1e-3)] if len(points) else points
    length = float(arc_lengths(points)[-1]) if len(points) > 1 else 0.0
    if length < SHORTEST:
        raise InvalidSetting("The route is too short.", got=f"{length:.1f} m", allowed=f"at least {SHORTEST:g} m")
    return Route(resample(points, math.floor(length / SPACING) * SPACING))
