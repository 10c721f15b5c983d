"""Gamepad through SDL (pygame-ce), on every system; SDL knows the layout of most models by name. It opens no window."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from robo_real.teleoperation.gamepad import SWITCH, Gamepad, GamepadSettings, PadState
from robo_real.teleoperation.teleoperator import POLL, Reading
from robo_rl.errors import MissingExtra, TeleoperatorUnavailable

FULL = 32767
STICKS = (0, 1, 2, 3)
"""numbers of SDL_CONTROLLER_AXIS_LEFTX, LEFTY, RIGHTX, RIGHTY"""
BUTTONS = {0: "a", 1: "b", 6: "start", 10: SWITCH, 11: "up", 12: "down", 13: "left"}
"""SDL_CONTROLLER_BUTTON_A, B, START, RIGHTSHOULDER, DPAD_UP, ... -> button"""
ENVIRONMENT = {
    "PYGAME_HIDE_SUPPORT_PROMPT": "1",
    "SDL_VIDEODRIVER": "dummy",  # its events need a video system, and no window
    "SDL_JOYSTICK_ALLOW_BACKGROUND_EVENTS": "1",  # there is no window to have the focus
}


@dataclass(frozen=True)
class SDLGamepadSettings(GamepadSettings):
    """Settings of a gamepad through SDL."""

    index: int = 0
    """number of the gamepad in SDL's order, from 0"""


class SDLGamepad(Gamepad):
    """Gamepad on any operating system, read through SDL."""

    options = SDLGamepadSettings

    def __init__(self, options: SDLGamepadSettings | None = None) -> None:
        super().__init__(options)
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        try:
            import pygame
            from pygame._sdl2 import controller
        except ImportError:
            raise MissingExtra("The gamepad", "pygame-ce", "gamepad-sdl") from None
        self._pygame, self._controllers = pygame, controller
        self._pad: Any = None

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
                fix="plug it in; SDL_GAMECONTROLLERCONFIG adds the layout of a model",
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
        buttons = frozenset(name for button, name in BUTTONS.items() if self._pad.get_button(button))
        return self.reading(PadState((right, down), (turn, lower), buttons))

    @override
    def close(self) -> None:
        if self._pad is not None:
            self._pad.quit()
            self._pad = None
            self._controllers.quit()
            self._pygame.display.quit()
