"""Differential inverse kinematics: damped least squares with a posture task in the null space.

Nakamura and Hanafusa, "Inverse kinematic solutions with singularity robustness for robot manipulator control", 1986.
`...` is no axis for one arm, n for n arms of a batch.
"""

from __future__ import annotations

import mujoco
import numpy as np

from robo_sims.arm.physics import NOMINAL_POSTURE, Arm, ArmPhysics, Array, Rows

DAMPING = np.stack([0.02**2 * np.eye(6), 1e-8 * np.eye(6)])
"""Two damping matrices (2, 6, 6) of the least-squares solution.

The first bounds the step towards the wanted pose near singular postures, the second is for the projection onto the null space.
"""
POSTURE_GAIN = 0.1
"""Share of the distance to the nominal posture that a step covers, in the null space of the hand's motion."""


def pointing_down(yaw: Array | float) -> Array:
    """Return quaternions (..., 4) (w, x, y, z): half a turn about x, then yaw (...) [rad]."""
    half = np.asarray(yaw) / 2
    quaternion = np.zeros((*half.shape, 4))
    quaternion[..., 1], quaternion[..., 2] = np.cos(half), np.sin(half)
    return quaternion


def displacement(arm: Arm, position: Array, quaternion: Array, rows: Rows = ...) -> Array:
    """Return a joint step (..., 7) [rad] towards positions (..., 3) [m] and quaternions (..., 4) (w, x, y, z).

    dq = J^T (J J^T + damping)^-1 e + (I - J^+ J) n, where e is the pose error and n the step towards the posture. The
    projection is undamped: a damped one leaks posture into the pose, and a hand that should hold still creeps away.
    """
    jacobian = arm.jacobian(rows)  # (..., 6, 7)
    transposed = jacobian.mT
    posture = POSTURE_GAIN * (NOMINAL_POSTURE - arm.joint_position[rows])  # (..., 7)
    wanted = np.empty((*position.shape[:-1], 2, 6, 1))  # task space: pose error, and minus the posture step
    np.subtract(position, arm.gripper_position[rows], out=wanted[..., 0, :3, 0])
    wanted[..., 0, 3:, 0] = _rotation_to(arm, quaternion, rows)
    np.negative(jacobian @ posture[..., None], out=wanted[..., 1, :, :])
    solved = np.linalg.solve((jacobian @ transposed)[..., None, :, :] + DAMPING, wanted)
    return (transposed @ (solved[..., 0, :, :] + solved[..., 1, :, :]))[..., 0] + posture


def solve(physics: ArmPhysics, position: Array, yaw: float, iterations: int = 30) -> None:
    """Set the joints, without simulation, so that the gripper reaches the pose to well under a millimetre."""
    low, high = physics.joint_limits
    quaternion = pointing_down(yaw)
    for _ in range(iterations):
        physics.update_kinematics()
        joints = physics.joint_position
        joints[:] = np.minimum(np.maximum(joints + displacement(physics, position, quaternion), low), high)
    physics.update_kinematics()


def _rotation_to(arm: Arm, quaternion: Array, rows: Rows) -> Array:
    """Return rotation vectors (..., 3) [rad] in the base frame from the hands to quaternions."""
    error, present = np.empty((*quaternion.shape[:-1], 3)), arm.orientation[rows]
    each = zip(error, quaternion, present, strict=True) if error.ndim > 1 else [(error, quaternion, present)]
    for vector, wanted, now in each:
        mujoco.mju_subQuat(vector, wanted, now)  # in the hand's frame
    rotation: Array = (arm.gripper_matrix[rows] @ error[..., None])[..., 0]
    return rotation
