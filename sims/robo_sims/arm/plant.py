"""The arm and a task as something that runs by itself, tick after tick, like a machine: what a twin of a robot is made of.

A controller in the plant follows a pose of the hand, as the controller of a real arm does. An action of the simulated task and
the same displacement sent to the plant move the hand alike (a test compares them).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from robo_rl.spec.environment import EnvironmentSpec
from robo_sims.arm.control import VELOCITY_LIMITS
from robo_sims.arm.environment import ArmEnv
from robo_sims.arm.inverse_kinematics import DAMPING, displacement
from robo_sims.arm.physics import CONTROL_PERIOD, JOINTS, NOMINAL_POSTURE, Array
from robo_sims.cameras import CameraObservations

TICK = 0.01
"""[s] between two looks of the controller."""
SUBSTEPS = 5
"""steps of the physics in a tick"""
LAG = 0.04
"""[s] by which the servos lag: damping over stiffness (robot.xml)"""
QUICKEST = 0.004
"""[s] time constant of the hand's velocity where it has the least inertia: turning about its own axis"""
CAREFUL = 0.85
"""share of the joints' speed limits that the controller asks for: other joints push them"""
JUDGED = round(CONTROL_PERIOD / TICK)
"""ticks between two judgements of success, as in the environment"""


class ArmPlant:
    """One arm, one task; not safe for several threads."""

    tick = TICK
    lag, quickest = LAG, QUICKEST
    home = NOMINAL_POSTURE
    """[rad] (7,) of a joint reset"""

    def __init__(self, task: str, *, cameras: Sequence[str] = (), image_size: int = 84) -> None:
        """Builds the model; cameras: of "front" and "wrist"."""
        self._environment = ArmEnv(task)
        self._physics = self._environment.physics
        self._images = (tuple(cameras), image_size)
        self.spec: EnvironmentSpec = CameraObservations(self._physics.model, cameras, image_size).added_to(
            self._environment.environment_spec
        )
        """What a policy observes and commands, as in the simulated task."""
        self.clip = np.array([0.02, 0.02, 0.02, 0.2, 0.2, 0.2])
        """[m] and [rad] either way that the controller looks ahead of the hand, along and about each axis"""
        self.succeeded = False
        """whether the task was done at any time since the reset"""
        self.reset(0)

    def reset(self, seed: int) -> None:
        """Puts arm and things where the environment's episode of that seed begins."""
        self._environment.reset(seed=seed)
        self.succeeded, self._ticks = False, 0
        self._joints: Array | None = None
        self.hold()

    def follow(self, position: npt.ArrayLike, quaternion: npt.ArrayLike) -> None:
        """Sends the hand to a position [m] and an orientation (w, x, y, z)."""
        self._position, self._quaternion = np.array(position, np.float64), np.array(quaternion, np.float64)
        self._joints = None

    def follow_joints(self, joints: npt.ArrayLike) -> None:
        """Sends the joints to angles [rad]."""
        self._joints = np.array(joints, np.float64)

    def hold(self) -> None:
        """Stays where the joints are: the elbow, too, goes no further."""
        self.follow_joints(self._physics.joint_position)

    def open_to(self, opening: float) -> None:
        """Sends the fingers to an opening [m]."""
        self._physics.data.ctrl[JOINTS : JOINTS + 2] = opening / 2

    def advance(self) -> None:
        """Simulates one tick."""
        physics = self._physics
        wanted = self._step() if self._joints is None else self._joints - physics.joint_position
        most = CAREFUL * LAG * VELOCITY_LIMITS  # a servo that is led so far ahead goes at that speed
        target = physics.joint_position + np.clip(wanted, -most, most)
        physics.data.ctrl[:JOINTS] = np.clip(target, physics.joint_limits[:, 0], physics.joint_limits[:, 1])
        physics.advance(SUBSTEPS)
        self._ticks += 1
        if self._ticks % JUDGED == 0:
            self.succeeded |= bool(self._environment.task.is_success())

    def measure(self) -> dict[str, Any]:
        """Returns what the arm measures of itself, by the names of robo_real.arm.ArmState, in the frame of the base."""
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
        """Returns what is seen of the task's things."""
        return {name: values.astype(np.float32) for name, values in self._environment.task.observe().items()}

    def copy_state(self, data: mujoco.MjData) -> None:
        """Writes the whole state to another MjData of the same model, for who draws it."""
        mujoco.mj_copyData(data, self._physics.model, self._physics.data)

    def pictures(self) -> PlantPictures:
        """Returns what draws the cameras; to be used by one thread only."""
        names, size = self._images
        return PlantPictures(self, CameraObservations(self._physics.model, names, size))

    @property
    def model(self) -> mujoco.MjModel:
        """The model; for who draws it."""
        return self._physics.model

    def _step(self) -> Array:
        physics, clip = self._physics, self.clip
        away = np.clip(self._position - physics.gripper_position, -clip[:3], clip[:3])
        return displacement(physics, physics.gripper_position + away, self._near(clip[3:]))

    def _near(self, clip: Array) -> Array:
        """Returns the wanted orientation, or the one on the way to it that is as far as the controller looks ahead."""
        here, turn, found = self._physics.gripper_quaternion, np.empty(3), np.empty(4)
        mujoco.mju_subQuat(turn, self._quaternion, here)  # in the hand's frame
        turn = np.clip(turn, -clip, clip)
        found[:] = here
        mujoco.mju_quatIntegrate(found, turn, 1.0)
        return found

    def _force(self, jacobian: Array) -> Array:
        """Returns (6,) [N, N m] of the surroundings on the hand, from the joints' torques: J^T F = torques of the contacts."""
        torques = self._physics.data.qfrc_constraint[:JOINTS]
        force: Array = np.linalg.solve(jacobian @ jacobian.T + DAMPING[0], jacobian @ torques)
        return force


class PlantPictures:
    """Draws the cameras of a plant from copies of its state."""

    def __init__(self, plant: ArmPlant, cameras: CameraObservations) -> None:
        self._cameras, self._data = cameras, mujoco.MjData(plant.model)
        self._plant = plant

    def copy_state(self) -> None:
        """Takes the plant's state; while nothing else advances the plant."""
        self._plant.copy_state(self._data)

    def draw(self) -> dict[str, npt.NDArray[np.uint8]]:
        """Returns `camera_<name>` -> (H, W, 3) uint8 of the state that was copied."""
        return self._cameras.observe(self._data)

    def close(self) -> None:
        """Frees the OpenGL contexts."""
        self._cameras.close()
