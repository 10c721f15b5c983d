"""Spec and actions of a real arm: identical to those of the simulated arm tasks, units included (a test compares them)."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_real.arm import ArmState, ArmTarget, Array
from robo_real.rotations import heading, pointing_down
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.spec.environment import ActionSpec, ArraySpec, EnvironmentSpec, Observation, ObservationSpec

MAX_STEP = (0.015, 0.015, 0.015, 0.12)
"""Largest displacement of the hand in one control period, in either direction: x, y, z [m] and turn [rad]"""
MAX_OPENING = 0.08
"""[m] largest opening of the gripper in an action"""
CONTROL_PERIOD = 0.05
"""[s] between two actions"""
GRIP = "gripper_opening"
"""Name of the gripper's opening in actions and observations; all other elements of an action displace the hand"""
Action = npt.NDArray[np.float32]
Value = TypeVar("Value")


def arm_arrays(joints: int = 7) -> tuple[ArraySpec, ...]:
    """Return the specs of the observations that every arm has; joints: number of joints."""
    return (
        ArraySpec("joint_position", (joints,), unit="rad"),
        ArraySpec("joint_velocity", (joints,), unit="rad/s"),
        ArraySpec("gripper_opening", (1,), unit="m"),
        ArraySpec("end_effector_position", (3,), unit="m", frame="base"),
        ArraySpec("end_effector_quaternion", (4,), unit="1", frame="base"),
    )


def arm_spec(name: str, joints: int = 7, opening: float = MAX_OPENING) -> EnvironmentSpec:
    """Return the spec of an arm without a task, whose actions displace a hand that points down, at 20 Hz.

    Args:
        name: Name of the environment.
        joints: Number of joints.
        opening: [m] Largest opening of the gripper.
    """
    action = ActionSpec(
        names=("dx", "dy", "dz", "turn", "gripper_opening"),
        low=(*(-step for step in MAX_STEP), 0.0),
        high=(*MAX_STEP, opening),
        units=("m", "m", "m", "rad", "m"),
        mode="end_effector_delta",
        control_period=CONTROL_PERIOD,
        frame="base",
    )
    return EnvironmentSpec(name, observation=ObservationSpec(arm_arrays(joints)), action=action)


def observed(state: ArmState) -> dict[str, npt.NDArray[np.float32]]:
    """Return a measurement as name -> array of a policy's observation.

    The quaternion has the sign with which its x is not negative, since both signs mean the same orientation.
    """
    sign = 1.0 if state.quaternion[1] >= 0 else -1.0
    return {
        "joint_position": state.joint_position.astype(np.float32),
        "joint_velocity": state.joint_velocity.astype(np.float32),
        "gripper_opening": np.array((state.opening,), np.float32),
        "end_effector_position": state.position.astype(np.float32),
        "end_effector_quaternion": np.array([sign * value for value in state.quaternion], np.float32),
    }


@dataclass(frozen=True)
class HandMotion:
    """Conversion between actions of a policy and targets of a hand that points down."""

    spec: ActionSpec

    def target(self, action: npt.ArrayLike, state: ArmState) -> ArmTarget:
        """Return the target of an action (A,) in [-1, 1]: the measured pose plus the action's displacement, and its opening.

        It is not added to the last target, since an offset would then build up against an obstacle. Raises InvalidAction.
        """
        motion = self.spec.to_physical(action)
        yaw = heading(state.quaternion) + float(motion[3])
        return ArmTarget(state.position + motion[:3], pointing_down(yaw), float(motion[4]))

    def action(self, target: ArmTarget, state: ArmState) -> npt.NDArray[np.float32]:
        """Return the action (A,) in [-1, 1] that leads from the measured pose to a target."""
        turn = heading(target.quaternion) - heading(state.quaternion)
        wrapped = (turn + np.pi) % (2 * np.pi) - np.pi
        opening = state.opening if target.opening is None else target.opening
        return self.spec.to_normalized([*(target.position - state.position), wrapped, opening])


def plain_numbers(values: npt.ArrayLike) -> Array:
    """Return numbers, or nested lists of numbers, as a float64 array; None becomes NaN.

    Raises:
        TypeError: A value is no number, such as a text (also one of digits) or a truth value.
        ValueError: A list is ragged.
    """
    if not (isinstance(values, np.ndarray) and values.dtype.kind in "iuf"):
        for value in np.ravel(np.asarray(values, object)):
            if isinstance(value, bool | np.bool_) or not (value is None or isinstance(value, numbers.Real | list | tuple)):
                raise TypeError(f"{value!r} is no number")
    return np.asarray(values, np.float64)


class GripperControl(Protocol):
    """Conversion between the actions of a policy and those of a robot, which differ in the gripper; both are in [-1, 1]."""

    spec: ActionSpec
    """Spec of the policy's actions, each for one control period of the robot"""

    def to_robot(self, action: Action) -> Action:
        """Return the robot's action (A,) for an action of the policy."""

    def to_policy(self, executed: Action) -> Action:
        """Return the policy's action for an action (A,) that the robot has executed."""


@dataclass
class PolicyGripper(GripperControl):
    """Gripper control in which the policy commands the opening itself, if there is a gripper.

    The policy's action and the robot's action are identical.
    """

    spec: ActionSpec

    @override
    def to_robot(self, action: Action) -> Action:
        return action

    @override
    def to_policy(self, executed: Action) -> Action:
        return executed


class ClosedGripper(GripperControl):
    """Gripper that stays closed, around an object that is in the hand from the start; the policy's actions leave it out."""

    def __init__(self, robot: ActionSpec) -> None:
        """Create the conversion for a robot's actions; raises InvalidSetting if the robot has no gripper."""
        if GRIP not in robot.names:
            raise InvalidSetting(
                "This robot has no fingers to be kept closed.", got=robot.names, allowed=f"names with {GRIP!r}"
            )
        self._at = robot.names.index(GRIP)
        self._closed = np.float32(-1.0)  # the lowest opening
        names, units = (_without(words, self._at) for words in (robot.names, robot.units))
        low, high = (_without(limits, self._at) for limits in (robot.low, robot.high))
        self.spec = replace(robot, names=names, low=low, high=high, units=units)

    @override
    def to_robot(self, action: Action) -> Action:
        return np.insert(action, self._at, self._closed)

    @override
    def to_policy(self, executed: Action) -> Action:
        return np.delete(executed, self._at)


CONTROLS: dict[str, Callable[[ActionSpec], GripperControl]] = {
    "end_effector_delta": PolicyGripper,
    "end_effector_delta_closed": ClosedGripper,
}
"""Control mode, named as in the simulated tasks -> gripper control"""


def gripper_control(control: str, robot: ActionSpec) -> GripperControl:
    """Return the gripper control of a control mode.

    Args:
        control: Control mode, a key of CONTROLS.
        robot: Spec of the robot's actions.

    Raises:
        UnknownName: There is no such control mode.
        InvalidSetting: The mode needs a gripper, and the robot has none.
    """
    if control not in CONTROLS:
        raise UnknownName("control mode of a robot", str(control), CONTROLS)
    return CONTROLS[control](robot)


def hold_action(spec: ActionSpec, observation: Observation) -> Action:
    """Return the action (A,) in [-1, 1] that moves nothing: no displacement, and the observed opening of the gripper."""
    physical = np.clip(np.zeros(spec.size), spec.low, spec.high)
    if GRIP in spec.names and GRIP in observation:
        physical[spec.names.index(GRIP)] = observation[GRIP][-1]  # the newest of a history
    return np.asarray(np.clip(spec.to_normalized(physical), -1.0, 1.0), np.float32)


def _without(values: tuple[Value, ...], index: int) -> tuple[Value, ...]:
    return (*values[:index], *values[index + 1 :])
