"""An owner's arm and task, simulated tick by tick like a real machine: the basis of its twin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import mujoco
import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.spec.environment import EnvironmentSpec
from robo_sims.arm.inverse_kinematics import DAMPING
from robo_sims.arm.realtime_arm import TICK, ClockedArm, RealtimeCameras, limit_lead
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
        """[s] of one control period."""

    @property
    def simulation(self) -> Simulation:
        """Simulation, which resets the task."""

    def observe(self) -> Mapping[str, npt.ArrayLike]:
        """Return the observations of its objects."""

    def is_success(self) -> bool:
        """Return whether it is done."""


class RealtimeOwnArm(ClockedArm):
    """An owner's arm and task, whose servos follow targets a little before the joints."""

    lag = quickest = None
    """None, since they are unknown: the guard's set points themselves keep speed and acceleration."""

    def __init__(self, task: TaskOfArm, cameras: Callable[[], CameraObservations]) -> None:
        """cameras: returns the task's cameras, for the thread that draws."""
        self._task, self._arm, self._cameras = task, task.arm, cameras
        self.spec, self.home, self.model = task.environment_spec, task.arm.home, task.arm.model
        self._substeps = round(TICK / self.model.opt.timestep)
        super().__init__(success_ticks=round(task.period / TICK))

    def open_to(self, opening: float) -> None:
        """Set the target opening [m] of the fingers."""
        self._arm.open_to(opening)

    @override
    def _begin(self, seed: int) -> None:
        self._task.simulation.reset(seed)  # not the environment's, which draws: another thread owns the OpenGL context

    @override
    def _joint_position(self) -> Array:
        return self._arm.joint_position

    @override
    def _is_success(self) -> bool:
        return bool(self._task.is_success())

    @override
    def _move(self, joints: Array | None) -> None:
        arm = self._arm
        here = arm.joint_position
        target = self._followed() if joints is None else joints
        arm.servo(here + np.clip(target - here, -LEAD, LEAD))
        arm.advance(self._substeps)

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
