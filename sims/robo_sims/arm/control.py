"""Control modes: Cartesian displacement of the gripper, or joint positions; one class each.

`...` is no axis for one arm, n for n arms of a batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.spec.environment import ActionSpec, Observation
from robo_sims.arm.inverse_kinematics import displacement, pointing_down
from robo_sims.arm.physics import CONTROL_PERIOD, JOINTS, MAX_OPENING, Arm, ArmPhysics, Array, Rows

WORKSPACE = np.array([[0.28, -0.30, 0.012], [0.70, 0.30, 0.40]])
"""[m] lowest and highest target of the gripper, frame base; the hand can point down in all of it."""
MAX_YAW = 1.8
"""Largest heading [rad] of the gripper in either direction; a parallel gripper needs only a quarter turn."""
MAX_STEP = np.array([0.015, 0.015, 0.015, 0.12])
"""Largest step of the gripper in one control period, in either direction: dx, dy, dz [m], then turn about the vertical
[rad]."""
VELOCITY_LIMITS = np.array([2.175, 2.175, 2.175, 2.175, 2.61, 2.61, 2.61])
"""[rad/s] published limits of the joints."""

_LOWEST, _HIGHEST = WORKSPACE
_MAX_JOINT_STEP = VELOCITY_LIMITS * CONTROL_PERIOD


@dataclass(frozen=True)
class Motion:
    """Motion of a scripted expert for one action, independent of the control mode."""

    displacement: Array
    """(3,) [m] of the gripper, frame base"""
    turn: float
    """Turn of the gripper about the vertical axis [rad]."""
    opening: float
    """Wanted distance [m] between the finger pads."""


class ControlMode(Protocol):
    """Protocol of a control mode: the spec of its actions, and how actions become targets of the arm's servos.

    An action lasts `repeat` control periods. A displacement is divided among them; a position is the target in each of them.
    """

    spec: ActionSpec

    def targets(self, action: Array, rows: Rows = ...) -> Array:
        """Return the servo targets (..., 9) that actions in physical units (..., A) mean for one control period.

        `...` is () for one simulation and (N,) for a batch. rows: simulations of the batch that get the actions.
        """

    def encode(self, motion: Motion, observation: Observation) -> npt.NDArray[np.float32]:
        """Return the action in [-1, 1] closest to a motion."""


class EndEffectorDelta(ControlMode):
    """Displacement of the downward gripper: (dx, dy, dz) [m], turn [rad], opening [m]."""

    def __init__(self, arm: Arm, repeat: int = 1) -> None:
        self._arm, self._share = arm, 1 / repeat
        self.spec = ActionSpec(
            names=("dx", "dy", "dz", "turn", "gripper_opening"),
            low=(*-MAX_STEP * repeat, 0.0),
            high=(*MAX_STEP * repeat, MAX_OPENING),
            units=("m", "m", "m", "rad", "m"),
            mode="end_effector_delta",
            control_period=_lasting(repeat),
            frame="base",
        )

    @override
    def targets(self, action: Array, rows: Rows = ...) -> Array:
        """Return servo targets (..., 9) one step of inverse kinematics from the measured pose: no hidden target builds up."""
        arm, motion = self._arm, action[..., :4] * self._share
        position = np.minimum(np.maximum(arm.gripper_position[rows] + motion[..., :3], _LOWEST), _HIGHEST)
        yaw = np.minimum(np.maximum(arm.gripper_yaw[rows] + motion[..., 3], -MAX_YAW), MAX_YAW)
        joints = arm.joint_position[rows] + displacement(arm, position, pointing_down(yaw), rows)
        return _servo_targets(arm, joints, action[..., 4:], rows)

    @override
    def encode(self, motion: Motion, observation: Observation) -> npt.NDArray[np.float32]:
        return self.spec.to_normalized([*motion.displacement, motion.turn, motion.opening])


class EndEffectorDeltaClosed(EndEffectorDelta):
    """Control mode: displacement of the gripper (dx, dy, dz) [m] and turn [rad]; the fingers stay closed."""

    def __init__(self, arm: Arm, repeat: int = 1) -> None:
        super().__init__(arm, repeat)
        spec = self.spec
        self.spec = replace(spec, names=spec.names[:4], low=spec.low[:4], high=spec.high[:4], units=spec.units[:4])

    @override
    def targets(self, action: Array, rows: Rows = ...) -> Array:
        return super().targets(np.concatenate([action, np.zeros_like(action[..., :1])], axis=-1), rows)

    @override
    def encode(self, motion: Motion, observation: Observation) -> npt.NDArray[np.float32]:
        return self.spec.to_normalized([*motion.displacement, motion.turn])


class JointPosition(ControlMode):
    """Absolute joint positions [rad] within the velocity limits, and a gripper opening [m]."""

    def __init__(self, arm: Arm, repeat: int = 1) -> None:
        self._arm, self._largest_motion = arm, MAX_STEP * repeat
        low, high = arm.joint_limits
        self.spec = ActionSpec(
            names=(*(f"joint{i + 1}" for i in range(JOINTS)), "gripper_opening"),
            low=(*low, 0.0),
            high=(*high, MAX_OPENING),
            units=("rad",) * JOINTS + ("m",),
            mode="joint_position",
            control_period=_lasting(repeat),
        )
        self._model_of_arm: ArmPhysics | None = None

    @override
    def targets(self, action: Array, rows: Rows = ...) -> Array:
        """Return servo targets (..., 9): the joint positions of the action, as far as the velocity limits allow."""
        return _servo_targets(self._arm, action[..., :JOINTS], action[..., JOINTS:], rows)

    @override
    def encode(self, motion: Motion, observation: Observation) -> npt.NDArray[np.float32]:
        """Return the action in [-1, 1] of a planned motion: joint angles by inverse kinematics, and the opening."""
        if self._model_of_arm is None:  # the expert's own model: it must not change the simulation
            self._model_of_arm = ArmPhysics(bodies="")
        arm = self._model_of_arm
        arm.joint_position[:] = observation["joint_position"]
        arm.update_kinematics()
        motion_limit = self._largest_motion  # as fast as in the other control mode
        step = np.clip([*motion.displacement, motion.turn], -motion_limit, motion_limit)
        position = np.clip(arm.gripper_position + step[:3], _LOWEST, _HIGHEST)
        joints = arm.joint_position + displacement(arm, position, pointing_down(arm.gripper_yaw + step[3]))
        return self.spec.to_normalized([*joints, motion.opening])


def _lasting(repeat: int) -> float:
    """Return the duration [s] of an action without rounding noise: 0.15, not 0.15000000000000002."""
    return round(CONTROL_PERIOD * repeat, 9)


def _servo_targets(arm: Arm, joints: Array, opening: Array, rows: Rows) -> Array:
    """Return targets (..., 9): joints (..., 7) [rad] clipped to the velocity limits, and openings (..., 1) [m]."""
    present, (lowest, highest) = arm.joint_position[rows], arm.joint_limits
    low, high = np.maximum(present - _MAX_JOINT_STEP, lowest), np.minimum(present + _MAX_JOINT_STEP, highest)
    targets = np.empty((*joints.shape[:-1], JOINTS + 2))
    np.minimum(np.maximum(joints, low), high, out=targets[..., :JOINTS])
    targets[..., JOINTS:] = opening / 2
    return targets


CLOSED = "end_effector_delta_closed"
"""Mode without finger motion."""
CONTROLS: dict[str, type[EndEffectorDelta] | type[JointPosition]] = {
    "end_effector_delta": EndEffectorDelta,
    CLOSED: EndEffectorDeltaClosed,
    "joint_position": JointPosition,
}
