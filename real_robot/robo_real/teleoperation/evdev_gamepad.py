"""Gamepad through evdev, the kernel's own interface on Linux; it needs no display.

Codes are those of the kernel's gamepad specification (Documentation/input/gamepad.rst). A gamepad whose driver has another
layout, such as the generic driver of some Bluetooth gamepads, is refused; use `gamepad-sdl` for it.
"""

from __future__ import annotations

import select
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from typing_extensions import override

from robo_real.teleoperation.gamepad import SWITCH, Gamepad, GamepadSettings, PadState
from robo_real.teleoperation.teleoperator import POLL, Reading
from robo_rl.errors import TeleoperatorUnavailable, optional

SYNCHRONISATION, KEYS, AXES = 0, 1, 3
"""event types EV_SYN, EV_KEY, EV_ABS"""
DROPPED = 3
"""code SYN_DROPPED: the kernel's queue overflowed, and events are missing"""
STICKS = (0, 1, 3, 4)
"""codes ABS_X, ABS_Y, ABS_RX, ABS_RY of the two sticks"""
CROSS = (0x10, 0x11)
"""Linux event codes of the directional pad: ABS_HAT0X (left and right), ABS_HAT0Y (up and down)."""
BUTTONS = {0x130: "a", 0x131: "b", 0x137: SWITCH, 0x13B: "start", 0x220: "up", 0x221: "down", 0x222: "left"}
"""BTN_SOUTH, BTN_EAST, BTN_TR, BTN_START, BTN_DPAD_UP, ... -> button"""
NEEDED = {0x130, 0x131, 0x137}
"""codes of the buttons without which a device is no gamepad: a, b and the dead-man switch"""
MOST_BATCHES = 8
"""largest number of batches of events that one call of `read` takes"""


@dataclass(frozen=True)
class EvdevGamepadSettings(GamepadSettings):
    """Settings of a gamepad through evdev."""

    device: str = ""
    """path (/dev/input/by-id/...), name or unique number of the gamepad; required if there are several"""


class EvdevGamepad(Gamepad):
    """Gamepad on Linux, read through evdev."""

    options = EvdevGamepadSettings

    def __init__(self, options: EvdevGamepadSettings | None = None) -> None:
        super().__init__(options)
        self._evdev = _evdev()
        self._device: Any = None
        self._values: dict[int, int] = {}  # axis -> position
        self._ranges: dict[int, tuple[int, int]] = {}  # axis -> middle, half of the range
        self._down: set[int] = set()

    @override
    def connect(self) -> str:
        found = [device for path in self._evdev.list_devices() if (device := self._opened(path)) is not None]
        wanted = self.settings.device
        pads = [device for device in found if wanted in ("", device.path, device.name, device.uniq)]
        if wanted.startswith("/") and not pads and (device := self._opened(wanted)) is not None:
            pads = [device]  # a link, such as those of /dev/input/by-id
        for device in found:
            if device not in pads or len(pads) != 1:
                device.close()
        if len(pads) != 1:
            raise TeleoperatorUnavailable(
                "There are several gamepads." if pads else "There is no such gamepad." if wanted else "There is no gamepad.",
                got="; ".join(f"{device.name} ({device.path})" for device in found) or "none with two sticks and shoulders",
                allowed="one that this user may read",
                fix="--teleoperator.settings.device PATH"
                if pads
                else "plug it in, join the group input; or --teleoperator gamepad-sdl, which knows more models",
            )
        self._device = pads[0]
        self._pressed = None
        self._synchronise()
        name: str = self._device.name
        return name

    @override
    def read(self) -> Reading:
        try:
            if select.select([self._device.fd], [], [], POLL)[0]:
                self._take_events()
        except (OSError, ValueError) as error:
            raise TeleoperatorUnavailable("The gamepad does not answer.", got=str(error), fix="plug it in") from None
        right, down, turn, lower = (self._position(axis) for axis in STICKS)
        across, along = (self._position(axis) for axis in CROSS)
        cross = {"left": across < -0.5, "up": along < -0.5, "down": along > 0.5}
        buttons = {BUTTONS[code] for code in self._down} | {name for name, is_down in cross.items() if is_down}
        return self.reading(PadState((right, down), (turn, lower), frozenset(buttons)))

    @override
    def close(self) -> None:
        if self._device is not None:
            self._device.close()
            self._device = None

    def _opened(self, path: str) -> Any:
        """Open the device at a path; return None if it is no gamepad or cannot be read."""
        try:
            device = self._evdev.InputDevice(path)
        except OSError:
            return None
        has = device.capabilities(absinfo=False)
        if {*has.get(KEYS, ())} >= NEEDED and {*STICKS} <= {*has.get(AXES, ())}:
            return device
        device.close()
        return None

    def _take_events(self) -> None:
        is_complete = True
        for _ in range(MOST_BATCHES):
            try:
                events = [*self._device.read()]
            except BlockingIOError:
                break
            for event in events:
                if event.type == AXES and event.code in self._ranges:
                    self._values[event.code] = event.value
                elif event.type == KEYS and event.code in BUTTONS:
                    (self._down.add if event.value else self._down.discard)(event.code)
                elif event.type == SYNCHRONISATION and event.code == DROPPED:
                    is_complete = False
        if not is_complete:
            self._synchronise()

    def _synchronise(self) -> None:
        """Read the whole state from the kernel."""
        axes = {*self._device.capabilities(absinfo=False)[AXES]}
        for axis in axes & {*STICKS, *CROSS}:
            found = self._device.absinfo(axis)
            self._values[axis] = found.value
            middle = (found.min + found.max + 1) // 2  # 0 of -32768..32767, 128 of 0..255
            self._ranges[axis] = middle, max(found.max - middle, 1)
        self._down = {code for code in self._device.active_keys() if code in BUTTONS}

    def _position(self, axis: int) -> float:
        """Return the position of an axis in [-1, 1]; 0 if the gamepad has no such axis."""
        if axis not in self._ranges:
            return 0.0
        middle, half = self._ranges[axis]
        return max(-1.0, min(1.0, (self._values[axis] - middle) / half))


def _evdev() -> ModuleType:
    with optional("The gamepad", "evdev", "gamepad"):
        import evdev
    found: ModuleType = evdev
    return found
