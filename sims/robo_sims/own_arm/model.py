"""Arm of an MJCF or URDF file as named quantities, in SI units whatever the file's own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.kinematics import HAND, Hand, Kinematics, Quaternion, load_model

Array = npt.NDArray[np.float64]
STIFFNESS, ROTOR = 50.0, 0.01
"""[N m/rad, or N/m] of a servo that this module adds; inertia [kg m^2, or kg] of its motor, without which it oscillates."""


@dataclass(frozen=True)
class Gripper:
    """Gripper with one driven joint."""

    joint: str
    """Name of the gripper's driven joint in the MuJoCo model."""
    closed: float
    """Position of the joint, [rad] or [m], at which the fingers are closed."""
    open: float
    """Position of the joint, [rad] or [m], at which the fingers are open."""
    width: float
    """Distance [m] between the fully open fingers; in between, it is taken as proportional to the joint's position."""


@dataclass(frozen=True, kw_only=True)
class ArmModel:
    """Description of an arm. Joint limits, masses and servos are those of the file."""

    file: Path
    """Path of the arm's MJCF or URDF file; the world frame of the file is the base frame of the arm."""
    joints: tuple[str, ...]
    """Hinge joints from the base to the hand."""
    hand: str | Hand
    """Site or body whose z axis points out of the hand, x in the direction of heading 0; or such a frame"""
    gripper: Gripper
    home: tuple[float, ...]
    """[rad] (J,) posture at the beginning of an episode"""

    def scene(self) -> mujoco.MjSpec:
        """Return the model, to which objects can be added; raises InvalidSetting if the file cannot be loaded."""
        spec = load_model(self.file)
        spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST  # stable with the damping of servos
        for body in spec.bodies:
            body.gravcomp = 1.0  # a real servo holds the arm's weight with its integral part
        if isinstance(self.hand, Hand):
            self.hand.added_to(spec)
        driven = {actuator.target for actuator in spec.actuators}
        for name in (*self.joints, self.gripper.joint):
            if name not in driven and (joint := spec.joint(name)) is not None:
                joint.armature = joint.armature or ROTOR
                servo = spec.add_actuator(name=name, target=name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
                servo.set_to_position(kp=STIFFNESS, dampratio=1.0)
        return spec


class OwnArm:
    """Simulated arm with position servos, among the objects of a scene."""

    def __init__(self, described: ArmModel, scene: mujoco.MjSpec) -> None:
        """Build the MuJoCo model of an arm in a scene.

        Args:
            described: Names of the joints, the hand and the gripper, and settings of the arm.
            scene: MuJoCo description of the arm and its surroundings.

        Raises:
            InvalidSetting: The scene contradicts the description.
            UnknownName: The scene has no part of a described name.
        """
        self.described = described
        try:
            self.model = scene.compile()
        except ValueError as error:
            raise InvalidSetting("The scene cannot be compiled.", got=" ".join(str(error).split())) from None
        self.data = mujoco.MjData(self.model)
        hand = HAND if isinstance(described.hand, Hand) else described.hand
        self._kinematics = Kinematics(self.model, described.joints, hand)
        if len(described.home) != len(described.joints):
            raise InvalidSetting("home has not one angle per joint.", got=described.home, allowed=len(described.joints))
        joints = [self.model.joint(name) for name in described.joints]
        self._positions = np.array([int(joint.qposadr[0]) for joint in joints])
        self._velocities = np.array([int(joint.dofadr[0]) for joint in joints])
        self._servos = np.array([self._servo(name) for name in described.joints])
        self._grips = int(self._finger.qposadr[0]), self._servo(described.gripper.joint)
        self.home: Array = np.array(described.home)
        self.joint_limits: Array = np.stack([self._kinematics.low, self._kinematics.high])
        """Lowest and highest angle of each joint, (2, J) [rad]."""

    @property
    def joint_position(self) -> Array:
        """Return the joint angles (J,) [rad]."""
        found: Array = self.data.qpos[self._positions]
        return found

    @property
    def joint_velocity(self) -> Array:
        """Return the joint speeds (J,) [rad/s]."""
        found: Array = self.data.qvel[self._velocities]
        return found

    @property
    def constraint_torque(self) -> Array:
        """Return the torques (J,) [N m] of contacts and joint limits."""
        found: Array = self.data.qfrc_constraint[self._velocities]
        return found

    @property
    def opening(self) -> float:
        """Return the distance [m] between the fingers."""
        gripper = self.described.gripper
        return gripper.width * (float(self.data.qpos[self._grips[0]]) - gripper.closed) / (gripper.open - gripper.closed)

    def hand(self) -> tuple[Array, Quaternion, Array]:
        """Return position (3,) [m], orientation (w, x, y, z) and Jacobian (6, J) of the hand, frame base."""
        return self._kinematics.hand(self.joint_position)

    def joint_targets(self, position: Array, orientation: Quaternion) -> Array:
        """Return joint positions (J,) [rad] for a pose of the hand, or the nearest that they reach."""
        return self._kinematics.joints(position, orientation, self.joint_position)

    def reset(self, opening: float) -> None:
        """Reset all state: home posture, at rest, fingers at an opening [m]."""
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[self._positions] = self.home
        self.data.qpos[self._grips[0]] = self._finger_at(opening)
        self.servo(self.home)
        self.open_to(opening)

    def servo(self, joints: Array) -> None:
        """Set the target of each joint servo [rad], (J,)."""
        self.data.ctrl[self._servos] = np.clip(joints, *self.joint_limits)

    def open_to(self, opening: float) -> None:
        """Set the target opening [m] of the fingers."""
        self.data.ctrl[self._grips[1]] = self._finger_at(opening)

    def advance(self, steps: int) -> None:
        """Simulate `steps` physics steps. Afterwards positions and contacts are those of the final state."""
        mujoco.mj_step2(self.model, self.data)
        mujoco.mj_step(self.model, self.data, steps - 1)
        mujoco.mj_step1(self.model, self.data)

    @property
    def _finger(self) -> Any:
        return self.model.joint(self.described.gripper.joint)

    def _finger_at(self, opening: float) -> float:
        gripper = self.described.gripper
        share = min(max(opening / gripper.width, 0.0), 1.0)
        return gripper.closed + share * (gripper.open - gripper.closed)

    def _servo(self, joint: str) -> int:
        """Return the number of a joint's position servo."""
        names = [self.model.joint(number).name for number in range(self.model.njnt)]
        if joint not in names:
            raise UnknownName(f"joint of {self.described.file.name}", joint, names)
        model, number = self.model, self.model.joint(joint).id
        drives = (model.actuator_trntype == mujoco.mjtTrn.mjTRN_JOINT) & (model.actuator_trnid[:, 0] == number)
        for servo in np.flatnonzero(drives):
            if model.actuator_gainprm[servo, 0] == -model.actuator_biasprm[servo, 1] != 0:
                return int(servo)
        raise InvalidSetting(
            f"The joint {joint!r} has no position servo.",
            got=f"{np.count_nonzero(drives)} other actuators of {self.described.file.name}",
            allowed="an actuator <position>",
            fix="write <position> for it, or remove its actuator: a joint without one gets a servo here",
        )
