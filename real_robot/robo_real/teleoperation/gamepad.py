"""Layout of a gamepad, the same for every driver: the standard layout of browsers, which the console's page has, too.

The labels of an episode are on the directional pad, because drivers disagree about the buttons X and Y.
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
"""name of a button -> what its press means"""


@dataclass(frozen=True)
class GamepadSettings(MotionSettings):
    """Settings of a gamepad through any driver."""

    dead_band: float = 0.15
    """share of the full deflection that counts as rest, 0 to 0.9; the command grows from zero at its edge"""


@dataclass(frozen=True)
class PadState:
    """State of the sticks and buttons of a gamepad."""

    left: tuple[float, float]
    """deflection of the left stick to the right and down, each in [-1, 1]"""
    right: tuple[float, float]
    """deflection of the right stick to the right and down, each in [-1, 1]"""
    pressed: frozenset[str]
    """names of the buttons that are down: SWITCH, and keys of PRESSES"""


class Gamepad(Teleoperator):
    """Gamepad in the standard layout. A subclass for each driver reads the `PadState`."""

    options: ClassVar[type[MotionSettings]] = GamepadSettings
    keys = (
        "hold the right shoulder button to drive; left stick: move, right stick: up, down, turn; A: gripper, B: STOP; "
        "Start: begin; cross up: success, down: failure, left: discard"
    )
    _pressed: frozenset[str] | None = None  # of the last reading, None before the first: what is down then was not pressed

    def reading(self, pad: PadState) -> Reading:
        """Return the deflections, the dead-man switch and the new presses of a state; each press is returned once."""
        new = frozenset() if self._pressed is None else pad.pressed - self._pressed
        self._pressed = pad.pressed
        axes = {"x": -pad.left[1], "y": -pad.left[0], "z": -pad.right[1], "yaw": -pad.right[0]}
        return Reading(axes, SWITCH in pad.pressed, tuple(press for button, press in PRESSES.items() if button in new))
