"""Gripper control: by the policy, or kept closed on the object it holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.spec.environment import ActionSpec

GRIP = "gripper_opening"
"""The part of actions and observations that is a position of the fingers; the others displace the hand."""
Action = npt.NDArray[np.float32]
Value = TypeVar("Value")


class Fingers(Protocol):
    """Stands between the actions of a policy and those of the robot; both are in [-1, 1]."""

    spec: ActionSpec
    """Of the policy's actions, each of one control period of the robot."""

    def sent(self, action: Action) -> Action:
        """Returns the robot's action (A,) for one of the policy."""

    def seen(self, executed: Action) -> Action:
        """Returns the policy's action for one that the robot executed."""


@dataclass
class FreeFingers(Fingers):
    """Commanded by the policy, where the robot has any."""

    spec: ActionSpec

    @override
    def sent(self, action: Action) -> Action:
        return action

    @override
    def seen(self, executed: Action) -> Action:
        return executed


class ClosedFingers(Fingers):
    """Sent to close with every action, which has no element for them: for what the hand holds when an episode begins."""

    def __init__(self, robot: ActionSpec) -> None:
        """Raises InvalidSetting if the robot has no fingers."""
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
    def sent(self, action: Action) -> Action:
        return np.insert(action, self._at, self._closed)

    @override
    def seen(self, executed: Action) -> Action:
        return np.delete(executed, self._at)


CONTROLS: dict[str, Callable[[ActionSpec], Fingers]] = {
    "end_effector_delta": FreeFingers,
    "end_effector_delta_closed": ClosedFingers,
}
"""By the names of the simulated tasks' control modes."""


def fingers(control: str, robot: ActionSpec) -> Fingers:
    """Returns what a control mode does with the fingers of a robot; raises UnknownName, InvalidSetting."""
    if control not in CONTROLS:
        raise UnknownName("control mode of a robot", str(control), CONTROLS)
    return CONTROLS[control](robot)


def _without(values: tuple[Value, ...], index: int) -> tuple[Value, ...]:
    return (*values[:index], *values[index + 1 :])
