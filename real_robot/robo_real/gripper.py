"""Gripper control: by the policy, or kept closed on the object it holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.spec.environment import ActionSpec, Observation

GRIP = "gripper_opening"
"""Name of the gripper's position in actions and observations; all other elements displace the hand."""
Action = npt.NDArray[np.float32]
Value = TypeVar("Value")


class GripperControl(Protocol):
    """Conversion between actions of the policy and of the robot; both are in [-1, 1]."""

    spec: ActionSpec
    """Spec of the policy's actions, each for one control period of the robot."""

    def to_robot(self, action: Action) -> Action:
        """Return the robot's action (A,) for one of the policy."""

    def to_policy(self, executed: Action) -> Action:
        """Return the policy's action for one executed by the robot, (A,)."""


@dataclass
class PolicyGripper(GripperControl):
    """Gripper, if any, commanded by the policy."""

    spec: ActionSpec

    @override
    def to_robot(self, action: Action) -> Action:
        return action

    @override
    def to_policy(self, executed: Action) -> Action:
        return executed


class ClosedGripper(GripperControl):
    """Gripper closed by every action, which has no element for it: for an object in the hand at the start."""

    def __init__(self, robot: ActionSpec) -> None:
        """Raises InvalidSetting if the robot has no gripper."""
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
    """Return the gripper control of a control mode; raises UnknownName, InvalidSetting."""
    if control not in CONTROLS:
        raise UnknownName("control mode of a robot", str(control), CONTROLS)
    return CONTROLS[control](robot)


def hold_action(spec: ActionSpec, observation: Observation) -> Action:
    """Return the action (A,) in [-1, 1] that moves nothing: no displacement, and the measured gripper opening."""
    physical = np.clip(np.zeros(spec.size), spec.low, spec.high)
    if GRIP in spec.names and GRIP in observation:
        physical[spec.names.index(GRIP)] = observation[GRIP][-1]  # the newest of a history
    return np.asarray(np.clip(spec.to_normalized(physical), -1.0, 1.0), np.float32)


def _without(values: tuple[Value, ...], index: int) -> tuple[Value, ...]:
    return (*values[:index], *values[index + 1 :])
