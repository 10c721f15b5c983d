"""Set points of a joint motion: a straight line between two postures, one point per control tick, within the limits."""

from __future__ import annotations

import math

import numpy as np

from robo_real.arm import ArmState, Array, JointTarget
from robo_real.limits import Limits

ARRIVED = 0.01
"""[rad] of each joint"""
SPEEDS_UP = 0.25
"""[s] in which a joint may reach its speed"""
SHARE = 0.9
"""used share of each limit: joints that follow with a lag leave the line a little"""


class JointSetPoints:
    """Set points of one motion; for one thread."""

    def __init__(self, limits: Limits, box: tuple[Array, Array], start: Array, home: Array) -> None:
        """start, home: (J,) [rad]. box: lowest and highest position (3,) [m] of the hand."""
        self._limits, self._box, self._start, self._home = limits, box, start, home
        self._way = self._speed = 0.0  # share of the line, and [1/s]

    def blocked(self, state: ArmState) -> str:
        """Return the reason to end the motion, "" to go on."""
        if float(np.abs(state.force).max()) > self._limits.soft_force:
            return "soft_force"
        twist = state.jacobian @ (self._home - self._start) * self._speed
        room = np.where(twist[:3] > 0, self._box[1] - state.position, state.position - self._box[0])
        slow = np.sqrt(self._limits.acceleration * np.maximum(room, 0.0))
        return "workspace" if (np.abs(twist[:3]) > slow + 1e-6).any() else ""

    def arrived(self, state: ArmState) -> bool:
        """Return whether the joints have arrived."""
        return self._way >= 1.0 and float(np.abs(self._home - state.joint_position).max()) < ARRIVED

    def next(self, state: ArmState, duration: float) -> JointTarget:
        """Return the next set point; duration: [s] since the last."""
        line = self._home - self._start
        twist = state.jacobian @ line
        fastest, soonest = self._bounds(np.abs(line), *(float(np.linalg.norm(part)) for part in (twist[:3], twist[3:])))
        stopping = math.sqrt(2 * soonest * max(1.0 - self._way, 0.0))
        self._speed = min(self._speed + soonest * duration, fastest, stopping)
        self._way = min(self._way + max(self._speed * duration, 1e-6), 1.0)
        return JointTarget(self._start + self._way * line)

    def _bounds(self, line: Array, moved: float, turned: float) -> tuple[float, float]:
        """Return the highest speed [1/s] and acceleration [1/s^2] along the line."""
        limits, joint_speed = self._limits, np.asarray(self._limits.joint_speed)
        of_joints = float(np.min(joint_speed / np.maximum(line, 1e-9)))
        speeds = (of_joints, limits.speed / max(moved, 1e-9), limits.turn_speed / max(turned, 1e-9))
        gains = (
            of_joints / SPEEDS_UP,
            limits.acceleration / max(moved, 1e-9),
            limits.turn_acceleration / max(turned, 1e-9),
        )
        return SHARE * min(speeds), SHARE * min(gains)
