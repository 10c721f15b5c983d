"""Motion of actors in one frame, from a client's snapshot or from a world in this process."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from robo_sims.carla.roads import Floats

Motion = tuple[float, float, float, float, float, float, float, float]
"""State of motion in CARLA's frame: x, y [m], yaw [degree], vx, vy [m/s], ax, ay [m/s2], yaw rate [degree/s]."""


class Frame(Protocol):
    """Protocol of one frame of the simulation: positions and velocities of all actors at that moment."""

    frame: int

    def motion(self, number: int) -> Motion | None:
        """Return the motion of an actor by its id, or None if it no longer exists."""

    def places(self, numbers: Sequence[int]) -> Floats:
        """Return x, y [m], yaw [degree] and velocity in x and y [m/s] (n, 5) of actors; NaN for those that no longer exist."""


class ClientFrame(Frame):
    """Frame of a client's snapshot."""

    def __init__(self, snapshot: Any) -> None:
        self.snapshot, self.frame = snapshot, snapshot.frame

    def motion(self, number: int) -> Motion | None:
        """Return the motion of an actor by its id, or None if it no longer exists."""
        actor = self.snapshot.find(number)
        if actor is None:
            return None
        pose, velocity, acceleration = actor.get_transform(), actor.get_velocity(), actor.get_acceleration()
        place, turning = pose.location, actor.get_angular_velocity().z
        return place.x, place.y, pose.rotation.yaw, velocity.x, velocity.y, acceleration.x, acceleration.y, turning

    def places(self, numbers: Sequence[int]) -> Floats:
        """Return x, y [m], yaw [degree] and velocity in x and y [m/s] (n, 5) of actors; NaN for those that no longer exist."""
        found = np.full((len(numbers), 5), math.nan)
        for row, number in enumerate(numbers):
            actor = self.snapshot.find(number)
            if actor is not None:
                pose, velocity = actor.get_transform(), actor.get_velocity()
                found[row] = pose.location.x, pose.location.y, pose.rotation.yaw, velocity.x, velocity.y
        return found
