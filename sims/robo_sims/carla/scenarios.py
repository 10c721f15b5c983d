"""Traffic scenarios on the route, by name; they use only calls that every server supports."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from typing_extensions import override

from robo_rl.errors import ServerUnavailable
from robo_sims.carla import pedestrians
from robo_sims.carla.roads import SPACING, WIDTH, Roads, X, Y
from robo_sims.carla.routes import Route
from robo_sims.carla.session import Session, as_server_unavailable

SOON, NEAREST = 3.0, 12.0
"""[s] and [m] before arrival of the car at which a walker steps out."""
PACE = 1.6
"""Speed [m/s] of a walker who crosses the road."""
LIFT = 0.3
"""Height [m] above the ground at which the scenario's car appears."""


class Scenario(Protocol):
    """Traffic event of one episode, such as a walker who crosses the road.

    The driving task creates it at the reset with (session, roads, route, random) and calls `step` at each step. The session
    removes its actors at the next episode.
    """

    actors: list[Any]
    """CARLA actors that the scenario has spawned."""

    def step(self, s: float, speed: float) -> None:
        """Advance one step; s: [m] along the route, speed: [m/s] of the ego vehicle."""
        return


class PedestrianCrossing(Scenario):
    """A walker who crosses the road in front of the car without looking."""

    def __init__(self, session: Session, roads: Roads, route: Route, random: np.random.Generator) -> None:
        index = _place(route, random)
        pose = pedestrians.kerb_pose(session.carla, roads, route, index)
        self._walker = _spawned(session, session.library.find(str(random.choice(pedestrians.MODELS))), pose)
        self.actors = [self._walker]
        self._where, self._carla, self._stage = index * SPACING, session.carla, 0
        self._across = pose.get_forward_vector()
        away = math.hypot(pose.location.x - route.points[index, X], pose.location.y - route.points[index, Y])
        self._left = 2.0 * away + route.points[index, WIDTH]  # [m] to the other side of a road of two lanes

    @override
    def step(self, s: float, speed: float) -> None:
        """Let the walker start when the car is near, and stop the walker on the other side.

        Args:
            s: Position of the car along the route [m].
            speed: Speed of the car [m/s].
        """
        left = self._where - s
        if self._stage == 0 and left < max(SOON * speed, NEAREST):
            self._stage = 1
            self._go(PACE)
        elif self._stage == 1:
            self._left -= PACE * 0.1
            if self._left <= 0.0:
                self._stage = 2
                self._go(0.0)

    def _go(self, pace: float) -> None:
        with as_server_unavailable("The server takes no controls any more."):
            self._walker.apply_control(self._carla.WalkerControl(self._across, pace, False))


class BlockedLane(Scenario):
    """A parked car in the lane that must be passed."""

    def __init__(self, session: Session, roads: Roads, route: Route, random: np.random.Generator) -> None:
        pose = session.pose(route.points[_place(route, random)], LIFT)
        car = _spawned(session, session.library.find("vehicle.audi.a2"), pose)
        with as_server_unavailable("The server takes no controls any more."):
            car.apply_control(session.carla.VehicleControl(hand_brake=True, brake=1.0))
        self.actors = [car]


SCENARIOS: dict[str, Callable[..., Scenario]] = {"pedestrian-crossing": PedestrianCrossing, "blocked-lane": BlockedLane}


def _place(route: Route, random: np.random.Generator) -> int:
    found = pedestrians.draw_points(route, random, 1)
    return found[0] if found else len(route.points) // 2


def _spawned(session: Session, blueprint: Any, pose: Any) -> Any:
    actor = session.spawn(blueprint, pose)
    if actor is None:
        raise ServerUnavailable("There is no room for the scenario.", got=str(pose.location), fix="try another seed")
    return actor
