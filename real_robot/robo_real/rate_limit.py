"""Bounds the speed of a moving target, and how fast it speeds up. Slowing down is never delayed: a stop must not wait."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robo_real.arm import Array


@dataclass
class RateLimit:
    """Remembers how a target of three elements moves."""

    speed: float
    """[1/s] of the elements' unit"""
    acceleration: float
    """[1/s^2]"""
    jerk: float
    """[1/s^3]"""

    def __post_init__(self) -> None:
        self.rest()

    def rest(self) -> None:
        """The target stands still."""
        self._velocity = np.zeros(3)
        self._acceleration = 0.0

    def limited(self, step: Array, duration: float) -> Array:
        """Return the part of a step (3,) that may be made in a duration [s]: nothing in no time. Changes nothing."""
        if duration <= 0:
            return np.zeros(3)
        most = min(self.acceleration, self._acceleration + self.jerk * duration) * duration
        return sped_up(self._velocity, step / duration, self.speed, most) * duration

    def moved(self, step: Array, duration: float) -> None:
        """The target has made a step, as `limited` returned it or shorter."""
        if duration <= 0:
            return
        velocity = step / duration
        self._acceleration = float(np.linalg.norm(velocity - _slowed_towards(self._velocity, velocity))) / duration
        self._velocity = velocity


def sped_up(velocity: Array, wanted: Array, speed: float, most: float) -> Array:
    """Return the velocity (3,) nearest to a wanted one that slowing down, and speeding up by `most`, leads to.

    speed: what is wanted at most.
    """
    wanted = shortened(wanted, speed)
    before = _slowed_towards(velocity, wanted)
    return before + shortened(wanted - before, most)


def shortened(vector: Array, most: float) -> Array:
    """Return a vector, or one of the same direction that is as long as allowed."""
    length = float(np.linalg.norm(vector))
    return vector if length <= most else vector * (most / length)


def _slowed_towards(velocity: Array, wanted: Array) -> Array:
    """Return the velocity nearest to the wanted one that slowing down alone leads to."""
    square = float(velocity @ velocity)
    if square < 1e-18:
        return np.zeros(3)
    share = min(max(float(wanted @ velocity) / square, 0.0), 1.0)
    return share * velocity
