"""Limits of speed, acceleration and jerk of a moving target. Slowing down is never delayed: a stop must not wait."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robo_real.arm import Array


@dataclass
class RateLimit:
    """Rate limit of a target of three elements."""

    speed: float
    """[1/s] of the elements' unit"""
    acceleration: float
    """[1/s^2]"""
    jerk: float
    """[1/s^3]"""

    def __post_init__(self) -> None:
        self.rest()

    def rest(self) -> None:
        """Set the target's velocity and acceleration to zero."""
        self._velocity = np.zeros(3)
        self._acceleration = 0.0

    def limited(self, step: Array, duration: float) -> Array:
        """Return the allowed part of a step (3,) within a duration [s]; does not change the state."""
        if duration <= 0:
            return np.zeros(3)
        most = min(self.acceleration, self._acceleration + self.jerk * duration) * duration
        return sped_up(self._velocity, step / duration, self.speed, most) * duration

    def moved(self, step: Array, duration: float) -> None:
        """Record a step (3,) within a duration [s], as returned by `limited` or shorter."""
        if duration <= 0:
            return
        velocity = step / duration
        self._acceleration = float(np.linalg.norm(velocity - _slowed_towards(self._velocity, velocity))) / duration
        self._velocity = velocity


def sped_up(velocity: Array, wanted: Array, speed: float, most: float) -> Array:
    """Return the velocity (3,) nearest to a wanted one, after free slowing down and speeding up by at most `most`.

    speed: bound of the wanted speed.
    """
    wanted = shortened(wanted, speed)
    before = _slowed_towards(velocity, wanted)
    return before + shortened(wanted - before, most)


def shortened(vector: Array, most: float) -> Array:
    """Return a vector scaled down to a norm of at most `most`."""
    length = float(np.linalg.norm(vector))
    return vector if length <= most else vector * (most / length)


def _slowed_towards(velocity: Array, wanted: Array) -> Array:
    """Return the velocity nearest to the wanted one that is reachable by slowing down alone."""
    square = float(velocity @ velocity)
    if square < 1e-18:
        return np.zeros(3)
    share = min(max(float(wanted @ velocity) / square, 0.0), 1.0)
    return share * velocity
