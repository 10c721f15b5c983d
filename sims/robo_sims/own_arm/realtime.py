"""An owner's arm and task, simulated tick by tick like a real machine: the basis of its twin.

It offers what robo_sims.arm.realtime_arm.RealtimeArm offers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import mujoco
import numpy as np
import numpy.typing as npt

from robo_rl.spec.environment import EnvironmentSpec
from robo_sims.arm.inverse_kinematics import DAMPING
from robo_sims.arm.realtime_arm import TICK, RealtimeCameras, limit_lead
from robo_sims.cameras import CameraObservations
from robo_sims.own_arm.model import Array, OwnArm
from robo_sims.simulation import Simulation

LEAD = 0.3
"""[rad] most by which a servo's target leads its joint: a weak servo pushes no harder"""


class TaskOfArm(Protocol):
    """An owner's task, as its twin uses it."""

    arm: OwnArm
    environment_spec: EnvironmentSpec

    @property
    def period(self) -> float:
        """Control period: time [s] between two actions."""

    @property
    def simulation(self) -> Simulation:
        """Simulation, which resets the task."""

    def observe(self) -> Mapping[str, npt.ArrayLike]:
        """Return the observations of its objects."""

    def is_success(self) -> bool:
        """Return whether it is done."""


class RealtimeOwnArm:
    """An owner's simulated arm and task with a controller that runs tick by tick, for a twin. Not thread-safe."""

    tick = TICK
    lag = quickest = None
    """Response of the hand to targets; None, since it is unknown. Set points are then limited in speed and acceleration
    alone."""

    def __init__(self, task: TaskOfArm, cameras: Callable[[], CameraObservations]) -> None:
        """Reset the simulated arm to its home posture.

        Args:
            task: Task whose arm and objects are simulated.
            cameras: Returns new cameras of the task. The thread that draws calls it.
        """
        self._task, self._arm, self._cameras = task, task.arm, cameras
        self.spec, self.home, self.model = task.environment_spec, task.arm.home, task.arm.model
        self._substeps = round(TICK / self.model.opt.timestep)
        self._success_ticks = round(task.period / TICK)
        self.clip = np.array([0.02, 0.02, 0.02, 0.2, 0.2, 0.2])
        """[m] and [rad] maximum lead of the controller's target, along and about each axis"""
        self.succeeded = False
        """True if the task succeeded at any time since the reset"""
        self.reset(0)

    def reset(self, seed: int) -> None:
        """Set arm and objects to the initial state of the environment's episode of this seed."""
        self._task.simulation.reset(seed)  # not the environment's, which draws: another thread owns the OpenGL context
        self.succeeded, self._ticks = False, 0
        self._joints: Array | None = None
        self._is_held = False
        self.hold()

    def follow(self, position: npt.ArrayLike, quaternion: npt.ArrayLike) -> None:
        """Set the target pose of the hand: position [m] and quaternion (w, x, y, z)."""
        self._position, self._quaternion = np.array(position, np.float64), np.array(quaternion, np.float64)
        self._joints, self._is_held = None, False

    def follow_joints(self, joints: npt.ArrayLike) -> None:
        """Set the target of each joint [rad], (J,); the arm follows in the next ticks."""
        self._joints, self._is_held = np.array(joints, np.float64), False

    def hold(self) -> None:
        """Hold the joint angles of the first of several calls, so that a load cannot push the arm further at each."""
        if not self._is_held:
            self.follow_joints(self._arm.joint_position)
            self._is_held = True

    def open_to(self, opening: float) -> None:
        """Set the target opening [m] of the fingers."""
        self._arm.open_to(opening)

    def advance(self) -> None:
        """Simulate one tick."""
        arm = self._arm
        here = arm.joint_position
        target = self._followed() if self._joints is None else self._joints
        arm.servo(here + np.clip(target - here, -LEAD, LEAD))
        arm.advance(self._substeps)
        self._ticks += 1
        if self._ticks % self._success_ticks == 0:
            self.succeeded |= bool(self._task.is_success())

    def measure(self) -> dict[str, Any]:
        """Return the measured state in the base frame, with the names and units of the fields of robo_real.arm.ArmState."""
        arm = self._arm
        place, direction, jacobian = arm.hand()
        force = np.linalg.solve(jacobian @ jacobian.T + DAMPING[0], jacobian @ arm.constraint_torque)
        return {
            "position": place,
            "quaternion": direction,
            "velocity": jacobian @ arm.joint_velocity,
            "force": force[:3],
            "torque": force[3:],
            "joint_position": arm.joint_position,
            "joint_velocity": arm.joint_velocity,
            "jacobian": jacobian,
            "opening": arm.opening,
        }

    def things(self) -> dict[str, npt.NDArray[Any]]:
        """Return the task's observations of its objects, name -> float32 array."""
        return {name: np.array(values, np.float32) for name, values in self._task.observe().items()}

    def copy_state(self, data: mujoco.MjData) -> None:
        """Copy the whole state to another MjData of the same model, for drawing."""
        mujoco.mj_copyData(data, self.model, self._arm.data)

    def pictures(self) -> RealtimeCameras:
        """Return a renderer of the cameras, for one thread only."""
        return RealtimeCameras(self, self._cameras())

    def _followed(self) -> Array:
        place, direction, _ = self._arm.hand()
        position = np.clip(self._position, place - self.clip[:3], place + self.clip[:3])
        w, x, y, z = limit_lead(np.array(direction), self._quaternion, self.clip[3:]).tolist()
        return self._arm.joint_targets(position, (w, x, y, z))
