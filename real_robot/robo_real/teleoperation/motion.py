"""Conversion of the state of any device to actions of the robot: the one place with dead band, speeds and directions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robo_real.arm_spec import GRIP
from robo_real.teleoperation.teleoperator import MotionSettings, Reading
from robo_rl.errors import InvalidSetting, TeleoperatorUnavailable
from robo_rl.spec.environment import ActionSpec
from robo_rl.types import Array

SHARE = 0.4
"""share of the action's limit at full deflection, as on the console's page"""
SPEEDS = {"m": "linear_speed", "rad": "angular_speed"}
"""unit of a displacement -> name of the setting of its speed"""


@dataclass(frozen=True)
class Command:
    """What the person at a device commands in one control period."""

    held: bool
    """True if the person commands: the dead-man switch is held, or a device without one was deflected recently"""
    action: Array
    """(A,) action in [-1, 1]; the gripper's element is always 0"""


class MotionCommand:
    """Conversion from the deflections of a device to actions that displace the hand."""

    def __init__(self, settings: MotionSettings, action: ActionSpec) -> None:
        """Create the conversion for the settings of a device and the spec of the robot's actions.

        Raises:
            InvalidSetting: The actions do not displace the hand, lack an element of `settings.axes`, or have a limit below
                the speed that is set.
        """
        self._spec, self._settings = action, settings
        period = action.control_period
        if not action.mode.startswith("end_effector_delta") or period is None:
            raise InvalidSetting(
                "A device drives the hand of an arm.", got=f"actions of mode {action.mode}", allowed="end_effector_delta"
            )
        if unknown := [part for part in settings.axes if part not in action.names and settings.axes != MotionSettings().axes]:
            raise InvalidSetting("The action has no such part.", got=", ".join(unknown), allowed=", ".join(action.names))
        self._steps = np.zeros(action.size)  # displacement in one control period at full deflection
        self._gripper = np.array([name == GRIP for name in action.names])
        for index, (name, unit) in enumerate(zip(action.names, action.units, strict=True)):
            if name in settings.axes and name != GRIP:
                self._steps[index] = _step(name, unit, action.high[index], period, settings)
        self._axes = {axis.removeprefix("-") for axis in settings.axes.values()}
        self._moved = -np.inf

    def of(self, reading: Reading, now: float) -> Command:
        """Return the command for the state of a device.

        Args:
            reading: State of the device.
            now: [s] Monotonic time of the state.

        Raises:
            TeleoperatorUnavailable: A deflection is not finite.
        """
        deflections = {axis: self._beyond_dead_band(axis, reading.axes.get(axis, 0.0)) for axis in self._axes}
        if reading.is_held is None and (any(deflections.values()) or any("gripper" in press for press in reading.presses)):
            self._moved = now
        held = now - self._moved <= self._settings.release if reading.is_held is None else reading.is_held
        physical = np.zeros(self._spec.size)
        for index, name in enumerate(self._spec.names):
            axis = self._settings.axes.get(name, "")
            sign = -1.0 if axis.startswith("-") else 1.0
            physical[index] = sign * deflections.get(axis.removeprefix("-"), 0.0) * self._steps[index]
        scaled = np.clip(self._spec.to_normalized(physical), -1.0, 1.0)
        return Command(held, np.where(self._gripper, 0.0, scaled).astype(np.float32))

    def _beyond_dead_band(self, axis: str, value: float) -> float:
        if not np.isfinite(value):
            raise TeleoperatorUnavailable("The device reports no number.", got=f"{axis} {value}", allowed="[-1, 1]")
        dead_band = self._settings.dead_band
        return float(np.sign(value) * max(0.0, min(abs(value), 1.0) - dead_band) / (1.0 - dead_band))


def _step(name: str, unit: str, limit: float, period: float, settings: MotionSettings) -> float:
    """Return the displacement of the element `name` in one control period at full deflection, in its unit.

    Raises InvalidSetting if the element is no displacement, or the speed that is set is above its limit.
    """
    if unit not in SPEEDS:
        raise InvalidSetting(f"A device cannot drive {name!r}.", got=f"unit {unit}", allowed=" or ".join(SPEEDS))
    speed: float | None = getattr(settings, SPEEDS[unit])
    if speed is None:
        return SHARE * limit
    if speed * period > limit * (1 + 1e-6):
        raise InvalidSetting(
            f"{SPEEDS[unit]} is beyond the limit of {name!r}.",
            got=f"{speed:g} {unit}/s",
            allowed=f"up to {limit / period:g} {unit}/s",
        )
    return speed * period
