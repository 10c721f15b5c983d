"""Layout of a gamepad, the same for every way to read one: the standard layout of browsers, and of the console's page.

Labels are on the cross, whose directions all drivers agree on; on X and Y they do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from robo_real.teleoperation.teleoperator import MotionSettings, Press, Reading, Teleoperator

SWITCH = "right_shoulder"
PRESSES: dict[str, Press] = {
    "b": "stop",
    "a": "toggle_gripper",
    "start": "start",
    "up": "success",
    "down": "failure",
    "left": "discard",
}
"""button -> press"""


@dataclass(frozen=True)
class GamepadSettings(MotionSettings):
    """Settings of a gamepad."""

    dead_band: float = 0.15
    """Share of the full deflection that counts as rest; the remainder starts from zero."""


@dataclass(frozen=True)
class PadState:
    """State of a gamepad."""

    left: tuple[float, float]
    """Left stick, right and down, in [-1, 1]."""
    right: tuple[float, float]
    """Right stick."""
    pressed: frozenset[str]
    """Buttons that are down: SWITCH, and those of PRESSES."""


class Gamepad(Teleoperator):
    """Gamepad in the standard layout; a driver reads its `PadState`."""

    options: ClassVar[type[MotionSettings]] = GamepadSettings
    keys = (
        "hold the right shoulder button to drive; left stick: move, right stick: up, down, turn; A: gripper, B: STOP; "
        "Start: begin; cross up: success, down: failure, left: discard"
    )
    _pressed: frozenset[str] | None = None  # of the last reading, None before the first: what is down then was not pressed

    def reading(self, pad: PadState) -> Reading:
        """Return the reading of a state."""
        new = frozenset() if self._pressed is None else pad.pressed - self._pressed
        self._pressed = pad.pressed
        axes = {"x": -pad.left[1], "y": -pad.left[0], "z": -pad.right[1], "yaw": -pad.right[0]}
        return Reading(axes, SWITCH in pad.pressed, tuple(press for button, press in PRESSES.items() if button in new))
