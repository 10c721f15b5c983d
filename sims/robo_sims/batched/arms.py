"""The arms of all environments as named quantities, and the two control modes, over all of them at once.

N environments; each quantity is an array (N, ...) that holds the present state. The arithmetic is that of robo_sims.arm, to
the bit: stacked matrix products and solutions take the same BLAS and LAPACK calls as single ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mujoco
import numpy as np
import numpy.typing as npt

from robo_sims.arm.control import MAX_YAW, VELOCITY_LIMITS, WORKSPACE
from robo_sims.arm.inverse_kinematics import DAMPING, POSTURE_GAIN
from robo_sims.arm.physics import CONTROL_PERIOD, JOINTS, NOMINAL_POSTURE, ArmPhysics
from robo_sims.batched.simulations import Simulations

Array = npt.NDArray[np.float64]
Rows = slice | list[int]
Control = Callable[["Arms", Array, Rows, int], Array]
"""(arms, physical actions (n, A), which environments, control periods to an action) -> servo targets (n, 9) of one period"""


class Arms:
    """Implements for many what ArmPhysics shows of one."""

    def __init__(self, simulations: Simulations, physics: Sequence[ArmPhysics]) -> None:
        self.simulations, self.physics = simulations, physics
        self.joint_position: Array = simulations.qpos.values[:, :JOINTS]  # [rad]
        self.joint_velocity = simulations.qvel.values[:, :JOINTS]  # [rad/s]
        self._fingers: Array = simulations.qpos.values[:, JOINTS : JOINTS + 2]
        self.gripper_position: Array = simulations.gather(lambda data: data.site("gripper").xpos).values  # (N, 3) [m]
        self._matrix = simulations.gather(lambda data: data.site("gripper").xmat).values  # (N, 9)
        self.gripper_matrix = self._matrix.reshape(-1, 3, 3)
        self.joint_limits = physics[0].joint_limits  # (7, 2) [rad]
        self.orientation = np.zeros((len(physics), 4))  # of the gripper, as mju_mat2Quat gives it
        self._jacobians = np.zeros((len(physics), 6, simulations.model.nv))
        self._site = simulations.model.site("gripper").id

    def read_orientations(self) -> None:
        """Fills `orientation` from the present state."""
        for quaternion, matrix in zip(self.orientation, self._matrix, strict=True):
            mujoco.mju_mat2Quat(quaternion, matrix)

    @property
    def gripper_opening(self) -> Array:
        """(N, 1) [m] between the finger pads."""
        return self._fingers[:, :1] + self._fingers[:, 1:]

    @property
    def gripper_yaw(self) -> Array:
        """(N,) [rad] headings of the hands."""
        return heading(self.gripper_matrix)

    @property
    def gripper_quaternion(self) -> Array:
        """(N, 4) with the sign that ArmPhysics chooses."""
        return np.where(self.orientation[:, 1:2] >= 0, self.orientation, -self.orientation)

    def jacobians(self, rows: Rows) -> Array:
        """Returns (n, 6, 7) of some environments."""
        model, datas = self.simulations.model, self.simulations.datas
        for index in np.arange(len(datas))[rows].tolist():
            jacobian = self._jacobians[index]
            mujoco.mj_jacSite(model, datas[index], jacobian[:3], jacobian[3:], self._site)
        return self._jacobians[rows][:, :, :JOINTS]


def heading(matrices: Array) -> Array:
    """Returns (N,) [rad], headings of the x axes of (N, 3, 3) about the vertical."""
    return np.arctan2(matrices[:, 1, 0], matrices[:, 0, 0])


def follow_displacement(arms: Arms, action: Array, rows: Rows, repeat: int) -> Array:
    """Takes one step of inverse kinematics from the measured poses, as EndEffectorDelta does."""
    motion = action[:, :4] * (1 / repeat)
    position = np.minimum(np.maximum(arms.gripper_position[rows] + motion[:, :3], WORKSPACE[0]), WORKSPACE[1])
    yaw = np.minimum(np.maximum(arms.gripper_yaw[rows] + motion[:, 3], -MAX_YAW), MAX_YAW)
    joints = arms.joint_position[rows] + _displacement(arms, position, yaw, rows)
    return _targets(arms, joints, action[:, 4:5], rows)


def follow_displacement_closed(arms: Arms, action: Array, rows: Rows, repeat: int) -> Array:
    """The same with the fingers closed, as EndEffectorDeltaClosed does."""
    return follow_displacement(arms, np.pad(action, ((0, 0), (0, 1))), rows, repeat)


def follow_joints(arms: Arms, action: Array, rows: Rows, repeat: int) -> Array:
    """Sends each joint towards its target as far as its velocity limit allows, as JointPosition does."""
    return _targets(arms, action[:, :JOINTS], action[:, JOINTS:], rows)


def _targets(arms: Arms, joints: Array, opening: Array, rows: Rows) -> Array:
    present, reach = arms.joint_position[rows], VELOCITY_LIMITS * CONTROL_PERIOD
    low = np.maximum(present - reach, arms.joint_limits[:, 0])
    high = np.minimum(present + reach, arms.joint_limits[:, 1])
    finger = opening / 2
    return np.concatenate([np.minimum(np.maximum(joints, low), high), finger, finger], axis=1)


def _displacement(arms: Arms, position: Array, yaw: Array, rows: Rows) -> Array:
    """Returns (n, 7) [rad]: InverseKinematics.displacement for a stack of arms."""
    jacobian = arms.jacobians(rows)
    transposed = jacobian.transpose(0, 2, 1)
    posture = POSTURE_GAIN * (NOMINAL_POSTURE - arms.joint_position[rows])
    wanted = np.empty((len(yaw), 2, 6, 1))
    wanted[:, 0, :3, 0] = position - arms.gripper_position[rows]
    wanted[:, 0, 3:, 0] = _rotations_to(arms, yaw, rows)
    wanted[:, 1, :, 0] = -_apply(jacobian, posture)
    solved = np.linalg.solve((jacobian @ transposed)[:, None] + DAMPING, wanted)
    return _apply(transposed, solved[:, 0, :, 0] + solved[:, 1, :, 0]) + posture


def _rotations_to(arms: Arms, yaw: Array, rows: Rows) -> Array:
    """Returns (n, 3) [rad], rotation vectors in the base frame from the hands to pointing down with a heading."""
    wanted = np.zeros((len(yaw), 4))
    wanted[:, 1], wanted[:, 2] = np.cos(yaw / 2), np.sin(yaw / 2)
    error = np.empty((len(yaw), 3))
    for one, wish, present in zip(error, wanted, arms.orientation[rows], strict=True):
        mujoco.mju_subQuat(one, wish, present)
    return _apply(arms.gripper_matrix[rows], error)


def _apply(matrices: Array, vectors: Array) -> Array:
    """Returns (n, m) of (n, m, k) times (n, k)."""
    product: Array = (matrices @ vectors[:, :, None])[:, :, 0]
    return product


CONTROLS: dict[str, Control] = {
    "end_effector_delta": follow_displacement,
    "end_effector_delta_closed": follow_displacement_closed,
    "joint_position": follow_joints,
}
