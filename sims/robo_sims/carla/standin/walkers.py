"""Walkers: they go where a client tells them, or to and fro between two places."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from robo_sims.carla.standin.actors import VX, VZ, YAW, Actor, Bodies, X, Y, Z, rows_of
from robo_sims.carla.standin.responses import Refused

Floats = npt.NDArray[np.float64]
HEIGHT = 0.9
"""[m] of a walker's origin above the ground."""
FASTEST = 10.0
"""[m/s]"""


class Walkers:
    """All walkers and their velocities."""

    def __init__(self) -> None:
        self.velocity: dict[Actor, tuple[float, float]] = {}
        self.reindex(Bodies())

    def reindex(self, bodies: Bodies) -> None:
        """Notes rows anew; a new walker stands."""
        self.actors = [actor for actor in bodies if actor.type_id.startswith("walker.")]
        self.velocity = {actor: self.velocity.get(actor, (0.0, 0.0)) for actor in self.actors}
        self.rows = rows_of(self.actors)
        self.going: Floats = np.array([self.velocity[actor] for actor in self.actors]).reshape(-1, 2)

    def control(self, actor: Actor, bodies: Bodies, direction: list[float], speed: float) -> None:
        """Takes a client's direction and speed."""
        if actor not in self.velocity:
            raise Refused(f"actor {actor.id} ({actor.type_id}) is no walker")
        length = math.hypot(direction[0], direction[1])
        speed = min(max(speed, 0.0), FASTEST)
        share = speed / length if length > 0 else 0.0
        self.velocity[actor] = direction[0] * share, direction[1] * share
        self.going[self.actors.index(actor)] = self.velocity[actor]
        record = bodies.records[actor.row]
        record["direction"], record["walking"] = direction, speed

    def step(self, bodies: Bodies, dt: float) -> None:
        """Moves all walkers; they look where they go."""
        if not self.actors:
            return
        block = bodies.motion[self.rows]
        moving = self.going.any(1)
        block[:, X] += dt * self.going[:, 0]
        block[:, Y] += dt * self.going[:, 1]
        block[:, Z] = HEIGHT
        block[:, YAW] = np.where(moving, np.degrees(np.arctan2(self.going[:, 1], self.going[:, 0])), block[:, YAW])
        block[:, VX : VZ + 1] = np.pad(self.going, ((0, 0), (0, 1)))
        bodies.motion[self.rows] = block
