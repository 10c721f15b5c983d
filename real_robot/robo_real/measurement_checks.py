"""Checks of each measurement, independent of commands: conditions that forbid all motion."""

from __future__ import annotations

import numpy as np

from robo_real.arm import ArmState, ArmTarget, Array
from robo_real.limits import Limits
from robo_real.orientation_cone import OrientationCone

NARROWEST, WIDEST = -0.005, 1.1
"""[m] lowest opening that is measured, and share of the gripper's width that is the largest"""
CLOSE_TO_A_TURN = 0.5
"""[rad] between a joint's change and a whole turn, below which its encoder, not the joint, has turned over"""
UNDER_WAY = 0.004
"""[m] between hand and set point, beyond which measurements must change"""


class MeasurementChecks:
    """Checks of successive measurements, for one thread; the previous one reveals a jump."""

    def __init__(self, limits: Limits, low: Array, high: Array, cone: OrientationCone, width: float | None = None) -> None:
        """low, high: (3,) [m] of the box. width: [m] of the open gripper, None if unknown."""
        self._widest = np.inf if width is None else WIDEST * width - NARROWEST
        self._limits, self._low, self._high, self._cone = limits, low, high, cone
        self._joint_low, self._joint_high = np.asarray(limits.joint_low), np.asarray(limits.joint_high)
        self.forget()

    def forget(self) -> None:
        """Forget the previous measurement."""
        self._same: tuple[bytes, float] = (b"", -np.inf)
        self._before: ArmState | None = None

    def fault(self, state: ArmState, sent: ArmTarget | None, now: float) -> str:
        """Return the reason why a measurement forbids all motion, "" if it does not.

        sent: present target of the arm, None if it stands. now: [s] of the measurement's clock.
        """
        if state.fault is not None:
            return f"robot: {state.fault}"
        if not state.is_finite:
            return "state_not_finite"
        if np.linalg.norm(state.force) > self._limits.hard_force or np.linalg.norm(state.torque) > self._limits.hard_torque:
            return "hard_force"
        if not NARROWEST <= state.opening <= self._widest:
            return "opening_out_of_range"
        return self._fault_of_pose(state) or self._fault_since_before(state, sent, now)

    def _fault_of_pose(self, state: ArmState) -> str:
        joints = state.joint_position
        if len(joints) != len(self._joint_low):
            return "other_number_of_joints"
        if self._before is not None:
            change = np.abs(joints - self._before.joint_position)
            if (np.abs(change - 2 * np.pi) < CLOSE_TO_A_TURN).any():
                return "joint_jumped_by_a_whole_turn"
        if (joints < self._joint_low).any() or (joints > self._joint_high).any():
            return "joint_beyond_limit"
        outside = np.maximum(np.maximum(self._low - state.position, state.position - self._high), 0.0)
        is_inside = outside.max() <= self._limits.reach and self._cone.excess(state.quaternion) <= self._limits.reach_turn
        return "" if is_inside else "outside_workspace"

    def _fault_since_before(self, state: ArmState, sent: ArmTarget | None, now: float) -> str:
        before, self._before = self._before, state
        if before is not None and state.stamp > before.stamp:
            most = 3 * (state.stamp - before.stamp) * self._limits.speed + self._limits.reach
            if np.linalg.norm(state.position - before.position) > most:
                return "state_jumped"
        elif before is not None and state.stamp < before.stamp:
            return "state_from_the_past"
        shown = state.joint_position.tobytes() + state.joint_velocity.tobytes()
        if shown != self._same[0]:
            self._same = (shown, now)
        is_under_way = sent is not None and bool(np.abs(sent.position - state.position).max() > UNDER_WAY)
        return "state_frozen" if is_under_way and now - self._same[1] > self._limits.state_age else ""
