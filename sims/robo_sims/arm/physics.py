"""Simulated arm as named quantities, single or batched; independent of tasks, rewards and actions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from types import EllipsisType
from typing import Any, TypeAlias

import mujoco
import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_sims.simulation import DivergenceMonitor

Array = npt.NDArray[np.float64]
Mask: TypeAlias = npt.NDArray[np.bool_] | np.bool_
Rows: TypeAlias = slice | list[int] | EllipsisType
"""Rows of a batch: a slice or a list of indices; `...` stands for all rows, and for a single simulation."""
EVERYWHERE, NOWHERE = np.True_, np.False_

JOINTS = 7
CONTROL_PERIOD = 0.05
"""[s] between two actions: 20 Hz."""
MAX_OPENING = 0.08
"""[m] published stroke of the gripper."""
FASTEST = 1_000.0
"""[m/s, rad/s] divergence limit: a thousand times the speed that the arm can give to an object."""
NOMINAL_POSTURE = np.array([0.0, -0.3, 0.0, -2.3, 0.0, 2.0, np.pi / 4])
"""[rad] elbow up, hand pointing down over the middle of the table; target of the controller's null space."""


class Arm(ABC):
    """Measured quantities of the simulated arm by name.

    `...` in a shape is N for a batch of N simulations, and nothing for one.

    Arrays are views of the present state. The arm's base is the origin: frames "world" and "base" are identical.
    """

    def __init__(self, model: mujoco.MjModel, qpos: Array, qvel: Array) -> None:
        """qpos: (..., nq), qvel: (..., nv) of the simulation."""
        self.model, self.qpos, self.qvel = model, qpos, qvel
        self.joint_limits: Array = model.jnt_range[:JOINTS].T.copy()
        """(2, 7) [rad] lowest and highest"""
        self.joint_position: Array = qpos[..., :JOINTS]
        """Joint angles (..., 7) [rad]."""
        self.joint_velocity: Array = qvel[..., :JOINTS]
        """Joint velocities (..., 7) [rad/s]."""
        self.finger_position: Array = qpos[..., JOINTS : JOINTS + 2]
        """(..., 2) [m] of each finger from the middle"""
        self.gripper_position = self.view(lambda data: data.site("gripper").xpos)
        """(..., 3) [m] of the point between the finger pads, frame base"""
        self.gripper_matrix = matrices(self.view(lambda data: data.site("gripper").xmat))
        """(..., 3, 3) columns are the hand's axes in the base frame: x forward, y opening direction, z out of the hand"""

    @abstractmethod
    def view(self, select: Callable[[mujoco.MjData], npt.NDArray[Any]]) -> Array:
        """Return (..., size): a vector of the simulation that follows the present state."""

    @abstractmethod
    def jacobian(self, rows: Rows = ...) -> Array:
        """Return (..., 6, 7): linear and angular velocity of the gripper in the base frame per joint velocity."""

    @property
    @abstractmethod
    def orientation(self) -> Array:
        """(..., 4) quaternion (w, x, y, z) of the hand, of arbitrary sign."""

    @abstractmethod
    def is_grasping(self, geom: int, among: Mask = EVERYWHERE) -> Mask:
        """Return (...): True if both finger pads touch the geom; contacts are checked only where `among` is True."""

    @property
    def gripper_yaw(self) -> Array:
        """(...) [rad] heading of the hand's x axis about the vertical."""
        return yaw_of(self.gripper_matrix)

    @property
    def gripper_quaternion(self) -> Array:
        """(..., 4) (w, x, y, z) with x not negative, which is continuous for a downward hand."""
        orientation = self.orientation
        return orientation * np.copysign(1.0, orientation[..., 1:2] + 0.0)  # -0.0 counts as not negative

    @property
    def gripper_opening(self) -> Array:
        """(...) [m] between the finger pads."""
        return self.finger_position[..., 0] + self.finger_position[..., 1]


class ArmPhysics(Arm):
    """Simulation of the arm with the bodies of a task."""

    def __init__(self, bodies: str, model: mujoco.MjModel | None = None) -> None:
        """Compile the model, or share a given one with the same bodies."""
        model = load_model(bodies) if model is None else model
        self.data = mujoco.MjData(model)
        super().__init__(model, self.data.qpos, self.data.qvel)
        self.monitor = DivergenceMonitor(model, self.data, FASTEST)
        self.substeps = round(CONTROL_PERIOD / model.opt.timestep)
        """Steps of the physics in a control period."""
        self._gripper_id, self._orientation = model.site("gripper").id, np.empty(4)
        self._pads = [model.geom(name).id for name in ("left_pad", "right_pad")]
        self._jacobian = np.zeros((6, model.nv))

    @override
    def view(self, select: Callable[[mujoco.MjData], npt.NDArray[Any]]) -> Array:
        return select(self.data)

    def reset(self) -> None:
        """Reset all state of MuJoCo: nominal posture, open hand."""
        mujoco.mj_resetData(self.model, self.data)
        self.joint_position[:] = NOMINAL_POSTURE
        self.set_opening(MAX_OPENING)

    def settle_initial_state(self) -> None:
        """Update derived quantities of the initial state, and let the servos hold it."""
        self.data.ctrl[:JOINTS] = self.joint_position
        mujoco.mj_forward(self.model, self.data)
        self.monitor.reset()

    def advance(self, substeps: int | None = None) -> None:
        """Simulate one control period, or `substeps` physics steps.

        It starts with the second half of a step and ends with the first half: positions and contacts belong to the final state.
        """
        mujoco.mj_step2(self.model, self.data)
        mujoco.mj_step(self.model, self.data, (substeps or self.substeps) - 1)
        mujoco.mj_step1(self.model, self.data)

    def update_forces(self) -> None:
        """Compute the contact forces of the present state, which `advance` leaves out to save time.

        Later states stay the same.
        """
        mujoco.mj_fwdActuation(self.model, self.data)
        mujoco.mj_fwdAcceleration(self.model, self.data)
        mujoco.mj_fwdConstraint(self.model, self.data)

    def update_kinematics(self) -> None:
        """Update poses and Jacobians after joint positions were written."""
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_comPos(self.model, self.data)

    @override
    def jacobian(self, rows: Rows = ...) -> Array:
        mujoco.mj_jacSite(self.model, self.data, self._jacobian[:3], self._jacobian[3:], self._gripper_id)
        return self._jacobian[:, :JOINTS]

    @property
    @override
    def orientation(self) -> Array:
        mujoco.mju_mat2Quat(self._orientation, self.gripper_matrix.ravel())
        return self._orientation

    @property
    @override
    def gripper_quaternion(self) -> Array:
        orientation = self.orientation
        return -orientation if orientation[1] < 0 else orientation.copy()

    @override
    def is_grasping(self, geom: int, among: Mask = EVERYWHERE) -> Mask:
        pairs = self.data.contact.geom
        if not among or len(pairs) == 0:
            return NOWHERE
        with_geom = pairs[(pairs == geom).any(axis=1)]
        return np.bool_(all((with_geom == pad).any() for pad in self._pads))

    def set_opening(self, opening: float) -> None:
        """Set the fingers to an opening [m], held by their servos; only at a reset."""
        self.finger_position[:] = opening / 2
        self.data.ctrl[JOINTS : JOINTS + 2] = opening / 2

    def hold(self, width: float) -> None:
        """Close the fingers on an object of this width [m] with full force; only at a reset."""
        self.finger_position[:] = width / 2
        self.data.ctrl[JOINTS : JOINTS + 2] = 0.0

    def place(self, name: str, position: npt.ArrayLike, yaw: float = 0.0) -> None:
        """Set a body upright to a position (3,) [m] and yaw [rad]; only at a reset."""
        quaternion = np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2)
        number = self.model.body(name).mocapid[0]
        if number >= 0:
            self.data.mocap_pos[number], self.data.mocap_quat[number] = position, quaternion
        else:
            start = self.model.joint(name).qposadr[0]
            self.data.qpos[start : start + 3], self.data.qpos[start + 3 : start + 7] = position, quaternion


class Body:
    """Position and orientation of one body of the simulation. Dimensions written `...` are those of `Arm`."""

    def __init__(self, arm: Arm, name: str) -> None:
        self.position = arm.view(lambda data: data.body(name).xpos)
        """Position (..., 3) [m] of the body, frame base."""
        self.matrix = matrices(arm.view(lambda data: data.body(name).xmat))
        """(..., 3, 3) columns are the body's axes in the base frame"""

    @property
    def yaw(self) -> Array:
        """(...) [rad] heading of the body's x axis about the vertical."""
        return yaw_of(self.matrix)


class FreeBody(Body):
    """Body that moves freely (MuJoCo's free joint); its joint and its geom have the body's name."""

    def __init__(self, arm: Arm, name: str) -> None:
        super().__init__(arm, name)
        start = int(arm.model.joint(name).dofadr[0])
        self.geom = int(arm.model.geom(name).id)
        self.velocity: Array = arm.qvel[..., start : start + 6]
        """(..., 6) linear [m/s] in the base frame, then angular [rad/s] in the body's own frame"""


def matrices(rows: Array) -> Array:
    """Return (..., 3, 3), a view of (..., 9)."""
    return rows.reshape(*rows.shape[:-1], 3, 3)


def yaw_of(matrix: Array) -> Array:
    """Return the yaw (...) [rad] of rotation matrices (..., 3, 3)."""
    yaw: Array = np.arctan2(matrix[..., 1, 0], matrix[..., 0, 0])
    return yaw


def length(vectors: Array) -> Array:
    """Return the Euclidean norm over the last axis: vectors (..., size) -> (...)."""
    norms: Array = np.sqrt(np.vecdot(vectors, vectors))  # same bits as np.linalg.norm of one vector
    return norms


def load_model(bodies: str, assets: str = "") -> mujoco.MjModel:
    """Return the scene with a task's bodies and further assets: MJCF elements for <worldbody> and <asset>."""
    text = f"""<mujoco>
      <include file="scene.xml"/> <include file="robot.xml"/>
      <asset>{assets}</asset>
      <worldbody>{bodies}</worldbody>
    </mujoco>"""
    return mujoco.MjModel.from_xml_string(text, _assets())


@cache
def _assets() -> dict[str, Any]:
    folder = files("robo_sims.arm") / "assets"
    return {item.name: item.read_bytes() for item in folder.iterdir() if item.name.endswith(".xml")}
