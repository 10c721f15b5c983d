"""The newest picture of each camera as JPEG, and the robot's health, fetched in a thread of its own.

It has a connection of its own, so that neither a slow camera nor a slow page delays a command.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np

from robo_real.link import Link
from robo_rl.errors import RobotError

POLL = 0.02
"""[s] between two looks at a camera"""
HEALTH = 0.2
"""[s] between two looks at the guard"""
QUALITY = 85
PATIENCE = 2.0
"""[s] for an answer: no command waits for it"""


@dataclass(frozen=True)
class Picture:
    """One picture."""

    jpeg: bytes
    number: int
    """by the camera's own count"""
    came: float
    """[s] monotonic, when it was fetched"""


class Pictures:
    """Watches one robot."""

    def __init__(self, url: str) -> None:
        """Raises RobotUnavailable if nothing answers."""
        self._link = Link(url, PATIENCE)
        self.health: dict[str, Any] = self._link.json("/robo/health", method="GET")
        """what the server told last, with "problem" if it does not answer"""
        self.state: dict[str, Any] | None = None
        """what the arm measured last, None if the server does not tell"""
        self.asked = time.monotonic()
        """[s] when the newest health was asked for"""
        self.names: tuple[str, ...] = tuple(self.health["cameras"])
        self.newest: dict[str, Picture] = {}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="pictures", daemon=True)
        self._thread.start()

    def age(self, name: str) -> float | None:
        """Returns for how long [s] a camera has shown nothing new; None before its first picture."""
        return time.monotonic() - self.newest[name].came if name in self.newest else None

    def close(self) -> None:
        """Watches no more."""
        self._done.set()
        self._thread.join()
        self._link.close()

    def _watch(self) -> None:
        looked = -np.inf
        while not self._done.wait(POLL):
            if time.monotonic() - looked >= HEALTH:
                looked = time.monotonic()
                self._look()
            for name in self.names:
                self._fetch(name)

    def _look(self) -> None:
        asked = time.monotonic()
        try:
            self.health = self._link.json("/robo/health", method="GET")
        except RobotError as error:
            self.health = {**self.health, "problem": str(error).partition("\n")[0]}
        self.asked = asked
        try:
            self.state = self._link.json("/robo/state", method="GET")
        except RobotError:
            self.state = None

    def _fetch(self, name: str) -> None:
        try:
            frame = self._link.frame(name)
            if name in self.newest and self.newest[name].number == frame.number:
                return
            _, jpeg = cv2.imencode(".jpg", frame.picture[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
            self.newest[name] = Picture(jpeg.tobytes(), frame.number, time.monotonic())
        except (RobotError, cv2.error):
            return  # its age tells
