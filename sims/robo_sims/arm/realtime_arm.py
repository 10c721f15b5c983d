"""Simulated arm that runs tick by tick like a real machine: the basis of a robot's twin.

Its controller follows a pose of the hand, as that of a real arm does. An action of the simulated task moves the hand just as
the same displacement does when it is sent to the controller (a test compares them).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import mujoco
import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.spec.environment import EnvironmentSpec, ObservationSpec
from robo_sims.arm.control import VELOCITY_LIMITS
from robo_sims.arm.environment import ArmEnv, cameras_of, hidden
from robo_sims.arm.inverse_kinematics import DAMPING, displacement
from robo_sims.arm.physics import CONTROL_PERIOD, JOINTS, NOMINAL_POSTURE, Array
from robo_sims.cameras import CameraObservations

TICK = 0.01
"""Period [s] of the arm's simulated controller."""
SUBSTEPS = 5
"""physics steps per tick"""
LAG = 0.04
"""[s] lag of the servos: damping over stiffness (robot.xml)"""
QUICKEST = 0.004
"""[s] time constant of the hand's velocity at least inertia: rotation about its own axis"""
CAREFUL = 0.85
"""share of the joints' speed limits that the controller commands: joints push each other"""
SUCCESS_TICKS = round(CONTROL_PERIOD / TICK)
"""Number of ticks between two checks for success: one control period, as in the environment."""


class ClockedArm(ABC):
    """Arm and task that are simulated tick by tick, and follow or hold targets; not thread-safe."""

    tick = TICK
    spec: EnvironmentSpec
    """Spec of the simulated task, with the camera pictures."""

    def __init__(self, success_ticks: int) -> None:
        """Begin the episode of seed 0; success_ticks: ticks between two success checks, as in the environment."""
        self._success_ticks = success_ticks
        self.clip = np.array([0.02, 0.02, 0.02, 0.2, 0.2, 0.2])
        """[m] and [rad] maximum lead of the controller's target, along and about each axis"""
        self.succeeded = False
        """True if the task succeeded at any time since the reset"""
        self.reset(0)

    def reset(self, seed: int) -> None:
        """Set arm and objects to the initial state of the environment's episode of this seed."""
        self._begin(seed)
        self.succeeded, self._ticks = False, 0
        self._joints: Array | None = None
        self._is_held = False
        self.hold()

    def follow(self, position: npt.ArrayLike, quaternion: npt.ArrayLike) -> None:
        """Set the target pose of the hand: position [m] and quaternion (w, x, y, z)."""
        self._position, self._quaternion = np.array(position, np.float64), np.array(quaternion, np.float64)
        self._joints, self._is_held = None, False

    def follow_joints(self, joints: npt.ArrayLike) -> None:
        """Set the target of each joint [rad], (7,); the arm follows in the next ticks."""
        self._joints, self._is_held = np.array(joints, np.float64), False

    def hold(self) -> None:
        """Hold the present joint angles, the elbow's too.

        Further calls keep the angles of the first; with new ones a load would push the arm a little further at each call.
        """
        if not self._is_held:
            self.follow_joints(self._joint_position())
            self._is_held = True

    def advance(self) -> None:
        """Simulate one tick."""
        self._move(self._joints)
        self._ticks += 1
        if self._ticks % self._success_ticks == 0:
            self.succeeded |= self._is_success()

    @abstractmethod
    def _begin(self, seed: int) -> None:
        """Set the simulation to the initial state of a seed."""

    @abstractmethod
    def _joint_position(self) -> Array:
        """Return the joint angles [rad]."""

    @abstractmethod
    def _move(self, joints: Array | None) -> None:
        """Simulate one tick towards joint angles [rad]; None: towards the pose of the hand that is followed."""

    @abstractmethod
    def _is_success(self) -> bool:
        """Return True if the task is done."""


class RealtimeArm(ClockedArm):
    """The arm of robo_sims.arm and its task, with the controller of a real one."""

    lag, quickest = LAG, QUICKEST
    home = NOMINAL_POSTURE
    """[rad] (7,) of a joint reset"""

    def __init__(self, task: str, *, cameras: Sequence[str] = (), image_size: int = 84, sees: str | None = None) -> None:
        """Build the model; arguments as in ArmEnv."""
        self._environment = ArmEnv(task)
        self._physics = self._environment.physics
        names = cameras_of(cameras, sees)
        self._images = (tuple(names), image_size)
        spec = self._environment.environment_spec
        spec = replace(spec, observation=ObservationSpec(hidden(spec.observation.arrays, sees)))
        self.spec = CameraObservations(self._physics.model, names, image_size).added_to(spec)
        super().__init__(SUCCESS_TICKS)

    def open_to(self, opening: float) -> None:
        """Set the target opening [m] of the fingers."""
        self._physics.data.ctrl[JOINTS : JOINTS + 2] = opening / 2

    @override
    def _begin(self, seed: int) -> None:
        self._environment.reset(seed=seed)

    @override
    def _joint_position(self) -> Array:
        return self._physics.joint_position

    @override
    def _is_success(self) -> bool:
        return bool(self._environment.task.is_success())

    @override
    def _move(self, joints: Array | None) -> None:
        physics = self._physics
        wanted = self._step() if joints is None else joints - physics.joint_position
        most = CAREFUL * LAG * VELOCITY_LIMITS  # a servo with this lead moves at that speed
        wanted = wanted / max(1.0, float((np.abs(wanted) / most).max()))  # as a whole: else the hand leaves its way
        target = physics.joint_position + wanted
        physics.data.ctrl[:JOINTS] = np.clip(target, *physics.joint_limits)
        physics.advance(SUBSTEPS)

    def measure(self) -> dict[str, Any]:
        """Return the measured state in the base frame, with the names and units of the fields of robo_real.arm.ArmState."""
        physics = self._physics
        jacobian = physics.jacobian()
        force = self._force(jacobian)
        return {
            "position": physics.gripper_position.copy(),
            "quaternion": tuple(physics.gripper_quaternion.tolist()),
            "velocity": jacobian @ physics.joint_velocity,
            "force": force[:3],
            "torque": force[3:],
            "joint_position": physics.joint_position.copy(),
            "joint_velocity": physics.joint_velocity.copy(),
            "jacobian": jacobian.copy(),
            "opening": float(physics.gripper_opening),
        }

    def things(self) -> dict[str, npt.NDArray[Any]]:
        """Return the task's observations of its objects, name -> float32 array."""
        return {name: values.astype(np.float32) for name, values in self._environment.task.observe().items()}

    def copy_state(self, data: mujoco.MjData) -> None:
        """Copy the whole state to another MjData of the same model, for drawing."""
        mujoco.mj_copyData(data, self._physics.model, self._physics.data)

    def pictures(self) -> RealtimeCameras:
        """Return a renderer of the cameras, for one thread only."""
        names, size = self._images
        return RealtimeCameras(self, CameraObservations(self._physics.model, names, size))

    @property
    def model(self) -> mujoco.MjModel:
        """MuJoCo model, for drawing."""
        return self._physics.model

    def _step(self) -> Array:
        physics, clip = self._physics, self.clip
        away = np.clip(self._position - physics.gripper_position, -clip[:3], clip[:3])
        near = limit_lead(physics.gripper_quaternion, self._quaternion, clip[3:])
        return displacement(physics, physics.gripper_position + away, near)

    def _force(self, jacobian: Array) -> Array:
        """Return the external wrench on the hand (6,) [N, N m]: J^T F = contact torques of the joints."""
        torques = self._physics.data.qfrc_constraint[:JOINTS]
        force: Array = np.linalg.solve(jacobian @ jacobian.T + DAMPING[0], jacobian @ torques)
        return force


def limit_lead(here: Array, target: Array, clip: Array) -> Array:
    """Return a target orientation (w, x, y, z), limited to a lead (3,) [rad] about the hand's axes before its present one."""
    turn, found = np.empty(3), here.copy()
    mujoco.mju_subQuat(turn, target, here)  # in the hand's frame
    mujoco.mju_quatIntegrate(found, np.clip(turn, -clip, clip), 1.0)
    return found


class Drawable(Protocol):
    """Arm whose state can be drawn."""

    @property
    def model(self) -> mujoco.MjModel:
        """MuJoCo model whose states are drawn."""

    def copy_state(self, data: mujoco.MjData) -> None:
        """Copy the whole simulation state to another MjData of the same model."""


class RealtimeCameras:
    """Renderer of a RealtimeArm's cameras, from copies of its state."""

    def __init__(self, arm: Drawable, cameras: CameraObservations) -> None:
        self._cameras, self._data = cameras, mujoco.MjData(arm.model)
        self._arm = arm

    def copy_state(self) -> None:
        """Copy the arm's state; not while another thread advances it."""
        self._arm.copy_state(self._data)

    def draw(self) -> dict[str, npt.NDArray[np.uint8]]:
        """Return `camera_<name>` -> (H, W, 3) uint8 of the copied state."""
        return self._cameras.observe(self._data)

    def close(self) -> None:
        """Free the OpenGL contexts."""
        self._cameras.close()
