"""Allowed orientations of a hand: bounded tilt and turn from a reference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robo_real.rotations import Quaternion, between, from_tilt_and_turn, tilt_and_turn

SLACK = 1e-6
"""[rad]"""


@dataclass(frozen=True)
class OrientationCone:
    """Orientations within `tilt` and `turn` of a reference."""

    tilt: float
    """[rad]"""
    turn: float
    """[rad] in either direction"""
    reference: Quaternion

    def nearest(self, direction: Quaternion) -> Quaternion:
        """Return the nearest orientation inside the cone."""
        tilt, turn = tilt_and_turn(direction, self.reference)
        size = float(np.linalg.norm(tilt))
        if size <= self.tilt and abs(turn) <= self.turn:
            return direction
        share = min(1.0, self.tilt / size) if size > 0 else 1.0
        turn = min(max(turn, -self.turn), self.turn)
        return from_tilt_and_turn([share * value for value in tilt], turn, self.reference)

    def excess(self, direction: Quaternion) -> float:
        """Return the angle [rad] by which an orientation is outside."""
        return float(np.linalg.norm(between(self.nearest(direction), direction)))

    def contains(self, direction: Quaternion) -> bool:
        """Return whether an orientation is inside."""
        return self.excess(direction) <= SLACK
