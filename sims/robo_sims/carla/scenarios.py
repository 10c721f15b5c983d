"""Scenarios on the way, by name, made with calls that any server knows."""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np

from robo_rl.errors import ServerUnavailable
from robo_sims.carla import crowd
from robo_sims.carla.link import Link, told
from robo_sims.carla.roads import SPACING, WIDTH, Roads, X, Y
from robo_sims.carla.routes import Route

SOON, NEAREST = 3.0, 12.0
"""[s] and [m] before the car arrives, at which a walker steps out."""
PACE = 1.6
"""[m/s]"""
LIFT = 0.3
"""[m] above the ground, where a car is spawned."""


class Scenario(Protocol):
    """One episode's event."""

    actors: list[Any]
    """That it has brought."""

    def step(self, s: float, speed: float) -> None:
        """Goes on; s: [m] along the route, and speed [m/s] of the car that is driven."""


class PedestrianCrossing:
    """A walker at the kerb who steps out before the car without a look, and goes to the other side."""

    def __init__(self, link: Link, roads: Roads, route: Route, random: np.random.Generator) -> None:
        index = _place(route, random)
        pose = crowd.kerb(link.carla, roads, route, index)
        self._walker = _spawned(link, link.library.find(str(random.choice(crowd.MODELS))), pose)
        self.actors = [self._walker]
        self._where, self._carla, self._stage = index * SPACING, link.carla, 0
        self._across = pose.get_forward_vector()
        away = math.hypot(pose.location.x - route.points[index, X], pose.location.y - route.points[index, Y])
        self._left = 2.0 * away + route.points[index, WIDTH]  # [m] to the other side of a road of two lanes

    def step(self, s: float, speed: float) -> None:
        """Sends the walker off once, and has it stand once it is there."""
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
        with told("The server takes no controls any more."):
            self._walker.apply_control(self._carla.WalkerControl(self._across, pace, False))


class BlockedLane:
    """A car that stands in the lane and stays: it must be passed."""

    def __init__(self, link: Link, roads: Roads, route: Route, random: np.random.Generator) -> None:
        pose = link.pose(route.points[_place(route, random)], LIFT)
        car = _spawned(link, link.library.find("vehicle.audi.a2"), pose)
        with told("The server takes no controls any more."):
            car.apply_control(link.carla.VehicleControl(hand_brake=True, brake=1.0))
        self.actors = [car]

    def step(self, s: float, speed: float) -> None:
        """Does nothing: it stands."""


SCENARIOS: dict[str, type[PedestrianCrossing] | type[BlockedLane]] = {
    "pedestrian-crossing": PedestrianCrossing,
    "blocked-lane": BlockedLane,
}


def _place(route: Route, random: np.random.Generator) -> int:
    found = crowd.beside(route, random, 1)
    return found[0] if found else len(route.points) // 2


def _spawned(link: Link, blueprint: Any, pose: Any) -> Any:
    actor = link.spawn(blueprint, pose)
    if actor is None:
        raise ServerUnavailable("There is no room for the scenario.", got=str(pose.location), fix="try another seed")
    return actor
