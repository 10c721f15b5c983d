"""Gamepad through SDL (pygame-ce), which knows the layout of most models by name. It opens no window.

The layout is the standard one of browsers, which the console's page has, too. The labels of an episode are on the directional
pad, because drivers disagree about the buttons X and Y.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from robo_real.teleoperation.teleoperator import POLL, MotionSettings, Press, Reading, Teleoperator
from robo_rl.errors import MissingExtra, TeleoperatorUnavailable

FULL = 32767
STICKS = (0, 1, 2, 3)
"""numbers of SDL_CONTROLLER_AXIS_LEFTX, LEFTY, RIGHTX, RIGHTY"""
SWITCH = 10
"""number of SDL_CONTROLLER_BUTTON_RIGHTSHOULDER, the dead-man switch"""
PRESSES: dict[int, Press] = {
    1: "stop",
    0: "toggle_gripper",
    6: "start",
    11: "success",
    12: "failure",
    13: "discard",
}
"""SDL_CONTROLLER_BUTTON_B, A, START, DPAD_UP, DPAD_DOWN, DPAD_LEFT -> what its press means"""
ENVIRONMENT = {
    "PYGAME_HIDE_SUPPORT_PROMPT": "1",
    "SDL_VIDEODRIVER": "dummy",  # its events need a video system, and no window
    "SDL_JOYSTICK_ALLOW_BACKGROUND_EVENTS": "1",  # there is no window to have the focus
}


@dataclass(frozen=True)
class GamepadSettings(MotionSettings):
    """Settings of a gamepad."""

    dead_band: float = 0.15
    """share of the full deflection that counts as rest, 0 to 0.9; the command grows from zero at its edge"""
    index: int = 0
    """number of the gamepad in SDL's order, from 0"""


class Gamepad(Teleoperator):
    """Gamepad in the standard layout, read through SDL."""

    options = GamepadSettings
    keys = (
        "hold the right shoulder button to drive; left stick: move, right stick: up, down, turn; A: gripper, B: STOP; "
        "Start: begin; cross up: success, down: failure, left: discard"
    )

    def __init__(self, options: GamepadSettings | None = None) -> None:
        super().__init__(options)
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        try:
            import pygame
            from pygame._sdl2 import controller
        except ImportError:
            raise MissingExtra("The gamepad", "pygame-ce", "gamepad") from None
        self._pygame, self._controllers = pygame, controller
        self._pad: Any = None
        self._pressed: frozenset[int] | None = None  # before the first reading: what is down then was not pressed

    @override
    def connect(self) -> str:
        self._pygame.display.init()
        self._controllers.init()
        self._pygame.event.pump()  # takes notice of what was plugged in
        pads = [index for index in range(self._controllers.get_count()) if self._controllers.is_controller(index)]
        if self.settings.index >= len(pads) or self.settings.index < 0:
            raise TeleoperatorUnavailable(
                f"There is no gamepad {self.settings.index}.",
                got=f"{len(pads)} gamepads with a layout that SDL knows",
                fix="plug it in, join the group input; SDL_GAMECONTROLLERCONFIG adds the layout of a model",
            )
        self._pad = self._controllers.Controller(pads[self.settings.index])
        self._pressed = None
        name: str = self._pad.name
        return name

    @override
    def read(self) -> Reading:
        time.sleep(POLL / 2)  # SDL has no wait for one thread's events
        self._pygame.event.clear()  # pumps; the state is read below
        if not self._pad.attached():
            raise TeleoperatorUnavailable("The gamepad was unplugged.")
        right, down, turn, lower = (self._pad.get_axis(axis) / FULL for axis in STICKS)
        pressed = frozenset(button for button in PRESSES if self._pad.get_button(button))
        new = frozenset() if self._pressed is None else pressed - self._pressed
        self._pressed = pressed
        presses = tuple(press for button, press in PRESSES.items() if button in new)
        return Reading({"x": -down, "y": -right, "z": -lower, "yaw": -turn}, bool(self._pad.get_button(SWITCH)), presses)

    @override
    def close(self) -> None:
        if self._pad is not None:
            self._pad.quit()
            self._pad = None
            self._controllers.quit()
            self._pygame.display.quit()
