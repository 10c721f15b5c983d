"""Differential inverse kinematics: damped least squares, with the free axis leaning towards a posture.

Nakamura and Hanafusa, "Inverse kinematic solutions with singularity robustness for robot manipulator control", 1986.
"""

from __future__ import annotations

import mujoco
import numpy as np

from robo_sims.arm.physics import NOMINAL_POSTURE, ArmPhysics, Array

_DAMPING = 0.05**2 * np.eye(6)
_POSTURE_GAIN = 0.1  # share of the way to the nominal posture that the free axis goes in one step


class InverseKinematics:
    """Turns a wanted pose of the gripper, pointing straight down, into a joint displacement."""

    def __init__(self, physics: ArmPhysics) -> None:
        self._physics = physics
        self._error = np.empty(6)
        self._rotation_error = np.empty(3)
        self._current, self._wanted = np.empty(4), np.empty(4)

    def displacement(self, position: Array, yaw: float) -> Array:
        """Returns (7,) [rad], one linearised step towards a position (3,) [m] and heading [rad] of the downward hand.

        dq = J^T (J J^T + damping)^-1 (e - J n) + n, where e is the pose error and n the step towards the posture.
        """
        physics = self._physics
        jacobian = physics.jacobian()  # (6, 7)
        posture = _POSTURE_GAIN * (NOMINAL_POSTURE - physics.joint_position)  # (7,)
        self._error[:3] = position - physics.gripper_position
        self._error[3:] = self._rotation_to(yaw)
        task = np.linalg.solve(jacobian @ jacobian.T + _DAMPING, self._error - jacobian @ posture)  # (6,)
        step: Array = jacobian.T @ task + posture
        return step

    def solve(self, position: Array, yaw: float, iterations: int = 30) -> None:
        """Moves the joints of the physics, without simulating, until the gripper has the pose to well under a millimetre."""
        low, high = self._physics.joint_limits.T
        for _ in range(iterations):
            self._physics.update_kinematics()
            joints = self._physics.joint_position
            joints[:] = np.clip(joints + self.displacement(position, yaw), low, high)
        self._physics.update_kinematics()

    def _rotation_to(self, yaw: float) -> Array:
        """Returns (3,) [rad], the rotation vector in the base frame from the hand to pointing down with a heading."""
        self._wanted[:] = 0.0, np.cos(yaw / 2), np.sin(yaw / 2), 0.0  # turn about z after half a turn about x
        mujoco.mju_mat2Quat(self._current, self._physics.gripper_matrix.ravel())
        mujoco.mju_subQuat(self._rotation_error, self._wanted, self._current)  # in the hand's frame
        return self._physics.gripper_matrix @ self._rotation_error
