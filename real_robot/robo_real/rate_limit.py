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
        """Returns the part of a step (3,) that may be made in a duration [s]; changes nothing."""
        wanted = _shortened(step / duration, self.speed)
        before = self._slowed_towards(wanted)
        most = min(self.acceleration, self._acceleration + self.jerk * duration) * duration
        velocity = before + _shortened(wanted - before, most)
        return velocity * duration

    def moved(self, step: Array, duration: float) -> None:
        """The target has made a step, as `limited` returned it or shorter."""
        velocity = step / duration
        self._acceleration = float(np.linalg.norm(velocity - self._slowed_towards(velocity))) / duration
        self._velocity = velocity

    def _slowed_towards(self, wanted: Array) -> Array:
        """Returns the velocity nearest to the wanted one that slowing down alone leads to."""
        square = float(self._velocity @ self._velocity)
        if square < 1e-18:
            return np.zeros(3)
        share = min(max(float(wanted @ self._velocity) / square, 0.0), 1.0)
        return share * self._velocity


def _shortened(vector: Array, most: float) -> Array:
    length = float(np.linalg.norm(vector))
    return vector if length <= most else vector * (most / length)
