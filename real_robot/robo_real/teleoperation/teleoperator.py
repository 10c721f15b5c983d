"""Protocol of a device that a person drives with, and the settings that all of them share.

Axes are those of ROS (REP 103), seen by an operator who stands behind the robot: x forward, y left, z up; roll, pitch and yaw
turn counter-clockwise about them. `MotionCommand` makes an action of them.
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


@dataclass(frozen=True)
class Reading:
    """State of a device, and the presses since the last one."""

    axes: Mapping[str, float] = field(default_factory=dict)
    """Name in AXES -> deflection in [-1, 1]; a missing one is at rest."""
    is_held: bool | None = None
    """State of the dead-man switch; None for a device without one, which commands while it is deflected."""
    presses: tuple[Press, ...] = ()


@dataclass(frozen=True)
class MotionSettings:
    """Settings of every device, `--teleoperator.settings.KEY VALUE`."""

    axes: Mapping[str, str] = field(default_factory=lambda: {"dx": "x", "dy": "y", "dz": "z", "turn": "yaw"})
    """Part of the action -> axis of the device, "-" before it to reverse it. An operator who faces the robot takes
    {dx: -x, dy: -y, dz: z, turn: yaw}."""
    linear_speed: float | None = None
    """[m/s] Speed at full deflection; None for 40 % of the action's limit."""
    angular_speed: float | None = None
    """[rad/s] The same for rotations."""
    dead_band: float = 0.05
    """Share of the full deflection that counts as rest; the remainder starts from zero."""
    release: float = 0.3
    """[s] A device without a dead-man switch commands for that long after its last deflection, at rest: a hand that passes
    through the middle does not give back to the policy. HIL-SERL waits 0.5 s."""

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
    """Device that a person drives with. One thread calls `connect`, `read` and `close`, and `connect` again after a loss."""

    options: ClassVar[type[MotionSettings]]
    """Settings, `MotionSettings` and those of the device."""
    keys: ClassVar[str] = ""
    """Help for the operator: what each button does."""

    def __init__(self, options: Any = None) -> None:
        """Raise MissingExtra if the device's package is not installed. Nothing is opened here."""
        self.settings: Any = self.options() if options is None else options

    @abstractmethod
    def connect(self) -> str:
        """Open the device and return its name; raises TeleoperatorUnavailable."""

    @abstractmethod
    def read(self) -> Reading:
        """Return the state within POLL; raises TeleoperatorUnavailable if the device was unplugged or fails."""

    @abstractmethod
    def close(self) -> None:
        """Close the device; may come twice, or before `connect`."""


def make_teleoperator(name: str, settings: Mapping[str, Any]) -> Teleoperator:
    """Return a device by the name of its entry point in `robo_rl.teleoperators`; opens nothing.

    Raises UnknownName, InvalidSetting, MissingExtra.
    """
    kind: type[Teleoperator] = load("teleoperators", name)
    return kind(settings_as(kind.options, settings, source=f"teleoperator.settings of {name}"))
