"""Keyboard of the terminal.

A terminal sends letters, but not the release of a key. So a key drives for PULSE after each letter, and a held key repeats its
letter. If the terminal is gone, as by a lost SSH connection, no letter comes, and the arm holds.
"""

from __future__ import annotations

import os
import re
import select
import sys
import termios
import time
import tty
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from robo_real.teleoperation.teleoperator import POLL, MotionSettings, Press, Reading, Teleoperator
from robo_rl.errors import TeleoperatorUnavailable

MOVES = {
    "w": ("x", 1.0), "s": ("x", -1.0), "a": ("y", 1.0), "d": ("y", -1.0),
    "r": ("z", 1.0), "f": ("z", -1.0), "q": ("yaw", 1.0), "e": ("yaw", -1.0),
}  # fmt: skip
"""letter -> axis and direction; the same keys as on the console's page"""
PRESSES: dict[str, Press] = {
    " ": "stop", "g": "toggle_gripper", "\n": "start", "\r": "start",
    "1": "success", "2": "failure", "3": "discard", "l": "rearm",
}  # fmt: skip
PULSE = 0.12
"""[s] for which one letter drives; keyboards repeat a held key 25 to 40 times a second"""
SEQUENCE, BEGINNING = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z~]|O[A-Za-z])"), re.compile(r"\x1b(\[[0-9;?]*|O)?$")
"""Sequences that arrow and function keys send, whose letters are no keys; and the beginning of such a sequence"""
MOST = 256
"""[byte] largest number of letters that one call of `read` takes"""


@dataclass(frozen=True)
class KeyboardSettings(MotionSettings):
    """Settings of the keyboard."""

    release: float = 0.8
    """[s] time for which the keyboard still commands, at rest, after the last key, 0 to 5; longer than the time after which a
    keyboard begins to repeat a held key"""


class Keyboard(Teleoperator):
    """Keyboard of the terminal. It also starts and labels episodes, stops the arm and re-arms it."""

    options = KeyboardSettings
    keys = (
        "W S A D move, R F up and down, Q E turn, G gripper; "
        "Enter starts, 1 success, 2 failure, 3 discard; Space STOPS, L: I have looked, re-arm"
    )

    def __init__(
        self,
        options: KeyboardSettings | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        terminal: int | None = None,
    ) -> None:
        """Create the keyboard; `connect` takes the terminal.

        Args:
            options: Settings of the keyboard.
            clock: Monotonic time [s].
            terminal: File descriptor of the terminal; None for standard input.
        """
        super().__init__(options)
        self._clock, self._terminal = clock, terminal
        self._before: list[Any] | None = None  # modes of the terminal, to be restored
        self._rest = ""  # beginning of a sequence
        self._until: dict[str, float] = {}  # letter -> end of its pulse [s]

    @override
    def connect(self) -> str:
        try:
            if self._terminal is None:
                self._terminal = sys.stdin.fileno()
            self._before = termios.tcgetattr(self._terminal)
            tty.setcbreak(self._terminal, termios.TCSAFLUSH)  # drops what was typed before
        except (termios.error, OSError, ValueError) as error:
            raise TeleoperatorUnavailable(
                "There is no keyboard: standard input is no terminal.", got=str(error), fix="start the command in a terminal"
            ) from None
        self._until.clear()
        self._rest = ""
        return "keyboard"

    @override
    def read(self) -> Reading:
        presses: list[Press] = []
        for letter in self._typed():
            if letter in MOVES:
                self._until[letter] = self._clock() + PULSE
            elif letter in PRESSES:
                presses.append(PRESSES[letter])
        axes: dict[str, float] = {}
        for letter, end in self._until.items():
            axis, direction = MOVES[letter]
            axes[axis] = axes.get(axis, 0.0) + direction * (self._clock() < end)
        return Reading(axes, None, tuple(presses))

    @override
    def close(self) -> None:
        if self._before is not None and self._terminal is not None:
            with suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(self._terminal, termios.TCSADRAIN, self._before)
            self._before = None

    def _typed(self) -> str:
        assert self._terminal is not None
        try:
            if not select.select([self._terminal], [], [], POLL)[0]:
                return ""
            found = os.read(self._terminal, MOST)
        except (OSError, ValueError) as error:
            raise TeleoperatorUnavailable("The terminal is gone.", got=str(error)) from None
        if not found:
            raise TeleoperatorUnavailable("The terminal is gone.", got="end of input")
        text = self._rest + found.decode("ascii", "ignore")
        whole = BEGINNING.sub("", text)
        self._rest = text[len(whole) :]
        return SEQUENCE.sub("", whole).lower()
