"""Differential inverse kinematics: damped least squares, with the free axis leaning towards a posture.

Nakamura and Hanafusa, "Inverse kinematic solutions with singularity robustness for robot manipulator control", 1986.
"""

from __future__ import annotations

import mujoco
import numpy as np

from robo_sims.arm.physics import NOMINAL_POSTURE, ArmPhysics, Array

DAMPING = np.stack([0.02**2 * np.eye(6), 1e-8 * np.eye(6)])
"""(2, 6, 6) of the way to the pose, to keep it bounded where the arm is stretched, and of the projection, which always is."""
POSTURE_GAIN = 0.1  # share of the way to the nominal posture that the free axis goes in one step


class InverseKinematics:
    """Turns a wanted pose of the gripper, pointing straight down, into a joint displacement."""

    def __init__(self, physics: ArmPhysics) -> None:
        self._physics = physics
        self._wanted = np.empty((2, 6, 1))  # motion in the task space: towards the pose, and against the posture's share
        self._rotation_error = np.empty(3)
        self._present_quaternion = np.empty(4)

    def displacement(self, position: Array, yaw: float) -> Array:
        """Returns (7,) [rad], one linearised step towards a position (3,) [m] and heading [rad] of the downward hand.

        dq = J^T (J J^T + damping)^-1 e + (I - J^+ J) n, where e is the pose error and n the step towards the posture. The
        projection is undamped: a damped one leaks posture into the pose, and a hand told to hold still creeps away.
        """
        # turn about z after half a turn about x
        return self.displacement_to(position, np.array((0.0, np.cos(yaw / 2), np.sin(yaw / 2), 0.0)))

    def displacement_to(self, position: Array, quaternion: Array) -> Array:
        """Returns the same towards any orientation (w, x, y, z)."""
        physics = self._physics
        jacobian = physics.jacobian()  # (6, 7)
        posture = POSTURE_GAIN * (NOMINAL_POSTURE - physics.joint_position)  # (7,)
        self._wanted[0, :3, 0] = position - physics.gripper_position
        self._wanted[0, 3:, 0] = self._rotation_to(quaternion)
        self._wanted[1, :, 0] = -(jacobian @ posture)
        solved = np.linalg.solve(jacobian @ jacobian.T + DAMPING, self._wanted)  # (2, 6, 1)
        step: Array = jacobian.T @ (solved[0, :, 0] + solved[1, :, 0]) + posture
        return step

    def solve(self, position: Array, yaw: float, iterations: int = 30) -> None:
        """Moves the joints of the physics, without simulating, until the gripper has the pose to well under a millimetre."""
        low, high = self._physics.joint_limits.T
        for _ in range(iterations):
            self._physics.update_kinematics()
            joints = self._physics.joint_position
            joints[:] = np.clip(joints + self.displacement(position, yaw), low, high)
        self._physics.update_kinematics()

    def _rotation_to(self, quaternion: Array) -> Array:
        """Returns (3,) [rad], the rotation vector in the base frame from the hand to an orientation."""
        mujoco.mju_mat2Quat(self._present_quaternion, self._physics.gripper_matrix.ravel())
        mujoco.mju_subQuat(self._rotation_error, quaternion, self._present_quaternion)  # in the hand's frame
        return self._physics.gripper_matrix @ self._rotation_error
