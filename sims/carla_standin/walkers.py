"""Walkers, controlled by clients or crossing the street back and forth."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from carla_standin.actors import VX, VY, YAW, Actor, Bodies, X, Y, Z, rows_of
from carla_standin.approach import closest_approach, stopping_way
from carla_standin.errors import Refused

Floats = npt.NDArray[np.float64]
MASS = 80.0
"""Mass of a walker in collisions [kg]."""
SLIDING = 5.0
"""Deceleration [m/s2] of a walker that was thrown by a collision."""
FASTEST = 10.0
"""Largest speed [m/s] that a client may give a walker."""
SPANS, PAUSES = (8.0, 14.0), (2.0, 8.0)
"""[m] Range of a crossing's length, drawn once, and [s] of the wait at each end, both from the walker's seed."""
NEAR = 4.0
"""A walker waits while a car that braked now would still come within this distance [m] of the walker's path."""


@dataclass
class Script:
    """State of a walker that crosses the street again and again: ahead, back, ahead, ..."""

    random: np.random.Generator
    heading: float
    """Direction [rad] in which the walker first crosses."""
    speed: float
    length: float
    waiting: float = 0.0
    left: float = 0.0
    """Distance [m] that is left of the present crossing."""
    sign: float = field(default=-1.0)

    def velocity(self, place: Floats, cars: Floats, dt: float) -> tuple[float, float]:
        """Return the walker's velocity (x, y) [m/s] for a step of `dt` [s].

        Args:
            place: (2,) [m] Position of the walker.
            cars: (n, 4) Position [m] and velocity [m/s] of cars, for which the walker waits.
            dt: Duration of the step [s].
        """
        if self.left <= 0.0:
            self.waiting -= dt
            if self.waiting > 0.0 or self._in_danger(place, cars):
                return 0.0, 0.0
            self.sign, self.left = -self.sign, self.length
        self.left -= self.speed * dt
        if self.left <= 0.0:
            self.waiting = float(self.random.uniform(*PAUSES))
        return self.sign * self.speed * math.cos(self.heading), self.sign * self.speed * math.sin(self.heading)

    def _in_danger(self, place: Floats, cars: Floats) -> bool:
        if not len(cars):
            return False
        aim = -self.sign * self.length * np.array([math.cos(self.heading), math.sin(self.heading)])
        return bool((closest_approach(place[None], aim[None], cars[:, :2], stopping_way(cars[:, 2:]))[0] < NEAR).any())


class Walkers:
    """All walkers of the world, and the velocity that each keeps."""

    def __init__(self) -> None:
        self.velocity: dict[Actor, tuple[float, float]] = {}
        self.scripts: dict[Actor, Script] = {}
        self.led: dict[Actor, Floats] = {}
        """Walker that a client's AI controller has moved since the last step -> its velocity [m/s]."""
        self.thrown: dict[Actor, Floats] = {}
        """Walker that was hit -> velocity [m/s] that the collision has added."""
        self.reindex(Bodies())

    def reindex(self, bodies: Bodies) -> None:
        """Find the walkers' rows of the state array again, after actors came or went; new walkers stand still."""
        self.actors = [actor for actor in bodies if actor.type_id.startswith("walker.")]
        self.velocity = {actor: self.velocity.get(actor, (0.0, 0.0)) for actor in self.actors}
        self.scripts = {actor: script for actor, script in self.scripts.items() if actor in self.velocity}
        self.thrown = {actor: velocity for actor, velocity in self.thrown.items() if actor in self.velocity}
        self.rows = rows_of(self.actors)
        self.grounded = np.array([not actor.is_aloft for actor in self.actors], bool)
        self.heights = np.array([actor.standing for actor in self.actors])
        self.cars = rows_of([actor for actor in bodies if actor.type_id.startswith("vehicle.")])
        self.going: Floats = np.array([self.velocity[actor] for actor in self.actors]).reshape(-1, 2)

    def direct(self, actor: Actor, yaw: float) -> None:
        """Start the script of a walker, first along its yaw [degree]."""
        try:
            seed, speed = int(actor.attributes["driver_seed"]), float(actor.attributes["speed"])
        except ValueError:
            raise Refused("A walker's driver_seed and speed are numbers.", got=actor.attributes) from None
        random = np.random.default_rng([abs(seed), actor.place])
        length, wait = float(random.uniform(*SPANS)), float(random.uniform(0.0, PAUSES[1]))
        self.scripts[actor] = Script(random, math.radians(yaw), min(max(speed, 0.1), FASTEST), length, wait)

    def control(self, actor: Actor, bodies: Bodies, direction: list[float], speed: float) -> None:
        """Set a walker's direction and speed."""
        if actor not in self.velocity:
            raise Refused(f"actor {actor.id} ({actor.type_id}) is no walker")
        length = math.hypot(direction[0], direction[1])
        speed = min(max(speed, 0.0), FASTEST)
        share = speed / length if length > 0 else 0.0
        self.velocity[actor] = direction[0] * share, direction[1] * share
        self.going[self.actors.index(actor)] = self.velocity[actor]
        record = bodies.records[actor.row]
        record["direction"], record["walking"] = direction, speed

    def lead(self, actor: Actor, way: Floats, speed: float) -> None:
        """Set the velocity of a walker that a client has moved by `way` (2,) [m], at a speed [m/s]."""
        length = float(np.hypot(*way))
        self.led[actor] = way * (min(max(speed, 0.0), FASTEST) / length) if length else np.zeros(2)

    def step(self, bodies: Bodies, dt: float) -> None:
        """Move all walkers by a step of `dt` [s], and turn them into their direction of motion."""
        if not self.actors:
            return
        block = bodies.motion[self.rows]
        if self.scripts:
            cars = bodies.motion[self.cars][:, [X, Y, VX, VY]]
            for number, actor in enumerate(self.actors):
                if actor in self.scripts:
                    self.going[number] = self.scripts[actor].velocity(block[number, [X, Y]], cars, dt)
                    self.velocity[actor] = tuple(self.going[number].tolist())
        moving = self.going.any(1)
        velocity = self.going + self._throw(dt) if self.thrown else self.going
        block[:, X] += dt * velocity[:, 0]
        block[:, Y] += dt * velocity[:, 1]
        block[self.grounded, Z] = self.heights[self.grounded]
        block[:, YAW] = np.where(moving, np.degrees(np.arctan2(self.going[:, 1], self.going[:, 0])), block[:, YAW])
        block[:, VX : VY + 1] = velocity
        for actor, led in self.led.items():
            if actor in self.velocity:
                block[self.actors.index(actor), VX : VY + 1] += led
        self.led.clear()
        bodies.motion[self.rows] = block

    def _throw(self, dt: float) -> Floats:
        """Return the velocities (n, 2) of thrown walkers, and slow them down."""
        found = np.zeros((len(self.actors), 2))
        for actor, velocity in list(self.thrown.items()):
            speed = float(np.hypot(*velocity))
            left = max(speed - SLIDING * dt, 0.0)
            found[self.actors.index(actor)] = velocity
            self.thrown[actor] = velocity * (left / speed) if speed else velocity
            if not left:
                del self.thrown[actor]
        return found

    def struck(self, actor: Actor, bodies: Bodies, normal: tuple[float, float], depth: float, throw: float) -> None:
        """Separate a walker from another body, remove the velocity into it, and add the velocity [m/s] of a throw."""
        motion = bodies.motion[actor.row]
        motion[X] += normal[0] * depth
        motion[Y] += normal[1] * depth
        away = max(-(motion[VX] * normal[0] + motion[VY] * normal[1]), 0.0) + throw
        motion[VX] += normal[0] * away
        motion[VY] += normal[1] * away
        if throw:
            self.thrown[actor] = self.thrown.get(actor, np.zeros(2)) + throw * np.array(normal)
        script = self.scripts.get(actor)
        if script is not None and script.left > 0.0:  # a stopped walker has not covered the distance counted
            ahead = math.cos(script.heading) * normal[0] + math.sin(script.heading) * normal[1]
            script.left -= script.sign * ahead * depth
