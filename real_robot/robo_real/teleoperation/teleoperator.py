"""Base class of the devices with which a person drives a robot, and the settings that all devices share.

Axes are those of ROS (REP 103), seen by an operator who stands behind the robot: x forward, y left, z up; roll, pitch and yaw
turn counter-clockwise about these. `MotionCommand` converts the deflections of the axes to an action of the robot.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from robo_rl.entry_points import load
from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.settings import settings_as

AXES = ("x", "y", "z", "roll", "pitch", "yaw")
POLL = 0.02
"""[s] longest time that `Teleoperator.read` may take"""
Press = Literal["stop", "start", "success", "failure", "discard", "rearm", "toggle_gripper", "open_gripper", "close_gripper"]
"""Meaning of the press of a button"""


@dataclass(frozen=True)
class Reading:
    """Result of one call of `Teleoperator.read`: present deflections, and buttons that were pressed since the last call."""

    axes: Mapping[str, float] = field(default_factory=dict)
    """name in AXES -> deflection in [-1, 1]; a missing axis is at rest"""
    is_held: bool | None = None
    """True while the dead-man switch is held; None for a device without one, which commands while it is deflected"""
    presses: tuple[Press, ...] = ()
    """meaning of each new press, in order"""


@dataclass(frozen=True)
class MotionSettings:
    """Settings that every device has, `--teleoperator.settings.KEY VALUE`."""

    axes: Mapping[str, str] = field(default_factory=lambda: {"dx": "x", "dy": "y", "dz": "z", "turn": "yaw"})
    """element of the action -> axis of the device, with "-" before the axis to reverse it; for an operator who faces the robot
    {dx: -x, dy: -y, dz: z, turn: yaw}"""
    linear_speed: float | None = None
    """[m/s] speed of the hand at full deflection, above 0; None for 40 % of the action's limit"""
    angular_speed: float | None = None
    """[rad/s] rotation speed of the hand at full deflection, above 0; None for 40 % of the action's limit"""
    dead_band: float = 0.05
    """share of the full deflection that counts as rest, 0 to 0.9; the command grows from zero at its edge"""
    release: float = 0.3
    """[s] time for which a device without a dead-man switch still commands, at rest, after its last deflection, 0 to 5: a
    deflection that passes through the middle must not hand the arm back to the policy. HIL-SERL waits 0.5 s"""

    def __post_init__(self) -> None:
        for part, axis in self.axes.items():
            if axis.removeprefix("-") not in AXES:
                allowed = f"{', '.join(AXES)}, with - before it to reverse it"
                raise InvalidSetting(f"A device has no axis for {part!r}.", got=axis, allowed=allowed)
        speeds = {name: getattr(self, name) for name in ("linear_speed", "angular_speed")}
        require_allowed(
            self,
            {
                "dead_band": (0.0 <= self.dead_band <= 0.9, "0 to 0.9"),
                "release": (0.0 <= self.release <= 5.0, "0 to 5 s"),
                **{name: (speed is None or 0.0 < speed < np.inf, "above 0, or None") for name, speed in speeds.items()},
            },
        )


class Teleoperator(ABC):
    """Device with which a person drives a robot.

    One thread makes all calls: `connect`, `read` again and again, `close`, and `connect` again after a loss.
    """

    options: ClassVar[type[MotionSettings]]
    """Dataclass of the settings: a subclass of `MotionSettings` with those of the device"""
    keys: ClassVar[str] = ""
    """Help for the operator: what each button does"""

    def __init__(self, options: Any = None) -> None:
        """Keep the settings, and open nothing yet. Raises MissingExtra if the device's package is not installed.

        options: an instance of the class attribute `options`; None for the default settings.
        """
        self.settings: Any = self.options() if options is None else options

    @abstractmethod
    def connect(self) -> str:
        """Open the device and return its name; raises TeleoperatorUnavailable."""

    @abstractmethod
    def read(self) -> Reading:
        """Return the state of the device within POLL; raises TeleoperatorUnavailable if it was unplugged or fails."""

    @abstractmethod
    def close(self) -> None:
        """Close the device; this may be called twice, and before `connect`."""


def make_teleoperator(name: str, settings: Mapping[str, Any]) -> Teleoperator:
    """Return a device by the name of its entry point in `robo_rl.teleoperators`; it is not opened yet.

    Args:
        name: Name of the entry point, such as gamepad.
        settings: Name -> value of the device's settings.

    Raises:
        UnknownName: There is no such device or setting.
        InvalidSetting: A setting is impossible.
        MissingExtra: A package that the device needs is not installed.
    """
    kind: type[Teleoperator] = load("teleoperators", name)
    return kind(settings_as(kind.options, settings, source=f"teleoperator.settings of {name}"))
