"""The simulated arm as named quantities; nothing here knows of tasks, rewards or actions."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from robo_sims.divergence import DivergenceMonitor

Array = npt.NDArray[np.float64]

JOINTS = 7
CONTROL_PERIOD = 0.05
"""[s] between two actions: 20 Hz."""
MAX_OPENING = 0.08
"""[m] published stroke of the gripper."""
FASTEST = 1_000.0
"""[m/s, rad/s] of anything at the table: thousand times what arm and gripper can throw."""
NOMINAL_POSTURE = np.array([0.0, -0.3, 0.0, -2.3, 0.0, 2.0, np.pi / 4])
"""[rad] elbow up, hand pointing down over the middle of the table; the nullspace of the controller leans towards it."""


class ArmPhysics:
    """One arm at one table with the bodies of a task. The arm's base is the origin: frames "world" and "base" are one."""

    def __init__(self, bodies: str, model: mujoco.MjModel | None = None) -> None:
        """Compiles the model, unless one of the same bodies is given to be shared."""
        self.model = load_model(bodies) if model is None else model
        self.data = mujoco.MjData(self.model)
        self.monitor = DivergenceMonitor(self.model, self.data, FASTEST)
        self._substeps = round(CONTROL_PERIOD / self.model.opt.timestep)
        self._gripper = self.data.site("gripper")
        self._gripper_id = self.model.site("gripper").id
        self._pads = [self.model.geom(name).id for name in ("left_pad", "right_pad")]
        self._jacobian = np.zeros((6, self.model.nv))
        self.joint_limits: Array = self.model.jnt_range[:JOINTS].copy()
        """(7, 2) [rad]"""
        # Views into the simulation: they always show the present state.
        self.joint_position: Array = self.data.qpos[:JOINTS]
        """(7,) [rad]"""
        self.joint_velocity: Array = self.data.qvel[:JOINTS]
        """(7,) [rad/s]"""
        self.finger_position: Array = self.data.qpos[JOINTS : JOINTS + 2]
        """(2,) [m] of each finger from the middle"""
        self.gripper_position: Array = self._gripper.xpos
        """(3,) [m] of the point between the finger pads, frame base"""
        self.gripper_matrix: Array = self._gripper.xmat.reshape(3, 3)
        """(3, 3) columns are the hand's axes in the base frame: x forward, y opening direction, z out of the hand"""

    def reset(self) -> None:
        """Returns to the model's initial state with every cache of MuJoCo cleared, hand open, arm in its nominal posture."""
        mujoco.mj_resetData(self.model, self.data)
        self.joint_position[:] = NOMINAL_POSTURE
        self.set_opening(MAX_OPENING)

    def settle_initial_state(self) -> None:
        """Makes derived quantities agree with the initial state, and the servos hold it."""
        self.data.ctrl[:JOINTS] = self.joint_position
        mujoco.mj_forward(self.model, self.data)
        self.monitor.reset()

    def advance(self, substeps: int | None = None) -> None:
        """Simulates one control period, or as many steps of the physics as given.

        The halves of the first and last step are swapped so that positions and contacts belong to the final state, at no cost.
        """
        mujoco.mj_step2(self.model, self.data)
        mujoco.mj_step(self.model, self.data, (substeps or self._substeps) - 1)
        mujoco.mj_step1(self.model, self.data)

    def update_kinematics(self) -> None:
        """Makes poses and Jacobians agree with joint positions that were written by hand."""
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_comPos(self.model, self.data)

    def jacobian(self) -> Array:
        """Returns (6, 7): linear and angular velocity of the gripper in the base frame per joint velocity."""
        mujoco.mj_jacSite(self.model, self.data, self._jacobian[:3], self._jacobian[3:], self._gripper_id)
        return self._jacobian[:, :JOINTS]

    @property
    def gripper_yaw(self) -> float:
        """[rad] heading of the hand's x axis about the vertical."""
        return float(np.arctan2(self.gripper_matrix[1, 0], self.gripper_matrix[0, 0]))

    @property
    def gripper_quaternion(self) -> Array:
        """(4,) (w, x, y, z), the sign chosen so that x is not negative: continuous wherever the hand points down."""
        quaternion = np.empty(4)
        mujoco.mju_mat2Quat(quaternion, self._gripper.xmat)
        return quaternion if quaternion[1] >= 0 else -quaternion

    @property
    def gripper_opening(self) -> float:
        """[m] between the finger pads."""
        return float(self.finger_position[0] + self.finger_position[1])

    def set_opening(self, opening: float) -> None:
        """Puts the fingers at an opening [m] and makes their servos hold it; only at a reset."""
        self.finger_position[:] = opening / 2
        self.data.ctrl[JOINTS : JOINTS + 2] = opening / 2

    def hold(self, width: float) -> None:
        """Puts the fingers at the sides of something that wide [m], closing with full force; only at a reset."""
        self.finger_position[:] = width / 2
        self.data.ctrl[JOINTS : JOINTS + 2] = 0.0

    def is_grasping(self, geom: int) -> bool:
        """Returns whether both finger pads touch the geom."""
        pairs = self.data.contact.geom
        if len(pairs) == 0:
            return False
        with_geom = pairs[(pairs == geom).any(axis=1)]
        return all((with_geom == pad).any() for pad in self._pads)


class FreeBody:
    """An object that moves freely, as named quantities."""

    def __init__(self, physics: ArmPhysics, name: str) -> None:
        joint, body = physics.model.joint(name), physics.data.body(name)
        self._qpos: Array = physics.data.qpos[joint.qposadr[0] : joint.qposadr[0] + 7]
        self.geom = int(physics.model.geom(name).id)
        self.position: Array = body.xpos
        """(3,) [m] frame base"""
        self.matrix: Array = body.xmat.reshape(3, 3)
        """(3, 3) columns are the body's axes in the base frame"""
        self.velocity: Array = physics.data.qvel[joint.dofadr[0] : joint.dofadr[0] + 6]
        """(6,) linear [m/s] in the base frame, then angular [rad/s] in the body's own frame"""

    @property
    def yaw(self) -> float:
        """[rad] heading of the body's x axis about the vertical."""
        return float(np.arctan2(self.matrix[1, 0], self.matrix[0, 0]))

    def place(self, position: npt.ArrayLike, yaw: float) -> None:
        """Puts the body upright at a position [m] and heading [rad]; only at a reset."""
        self._qpos[:3] = position
        self._qpos[3:] = np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2)


def load_model(bodies: str) -> mujoco.MjModel:
    """Returns the scene with a task's bodies, given as the MJCF elements that belong into <worldbody>."""
    text = f"""<mujoco>
      <include file="scene.xml"/> <include file="robot.xml"/>
      <worldbody>{bodies}</worldbody>
    </mujoco>"""
    return mujoco.MjModel.from_xml_string(text, _assets())


@cache
def _assets() -> dict[str, Any]:
    folder = files("robo_sims.arm") / "assets"
    return {item.name: item.read_bytes() for item in folder.iterdir() if item.name.endswith(".xml")}
