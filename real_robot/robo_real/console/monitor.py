"""Polling thread for the newest JPEG picture of each camera and the robot's health.

It uses a separate connection, so that neither a slow camera nor a slow page delays a command.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np

from robo_real.http_client import RobotClient
from robo_rl.errors import RobotError

POLL = 0.02
"""[s] period of the cameras"""
HEALTH = 0.2
"""[s] period of the robot's health"""
QUALITY = 85
TIMEOUT = 2.0
"""[s] for an answer: no command waits for it"""


@dataclass(frozen=True)
class JpegFrame:
    """Encoded picture of a camera."""

    jpeg: bytes
    number: int
    """counted by the camera"""
    came: float
    """[s] monotonic time of arrival"""


class RobotMonitor:
    """Monitor of one robot."""

    def __init__(self, url: str) -> None:
        """Raise RobotUnavailable if no server answers."""
        self._client = RobotClient(url, TIMEOUT)
        self.health: dict[str, Any] = self._client.json("/robo/health", method="GET")
        """Newest /robo/health, with "problem" if the server does not answer."""
        self.state: dict[str, Any] | None = None
        """Newest /robo/state, None if the server does not answer."""
        self.requested = time.monotonic()
        """[s] when the newest health was requested"""
        self.names: tuple[str, ...] = tuple(self.health["cameras"])
        self.newest: dict[str, JpegFrame] = {}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="robot monitor", daemon=True)
        self._thread.start()

    def age(self, name: str) -> float | None:
        """Return the time [s] since a camera's newest picture came; None before the first."""
        return time.monotonic() - self.newest[name].came if name in self.newest else None

    def close(self) -> None:
        """Stop polling."""
        self._done.set()
        self._thread.join()
        self._client.close()

    def _poll(self) -> None:
        polled = -np.inf
        while not self._done.wait(POLL):
            if time.monotonic() - polled >= HEALTH:
                polled = time.monotonic()
                self._fetch_health()
            for name in self.names:
                self._fetch_picture(name)

    def _fetch_health(self) -> None:
        requested = time.monotonic()
        try:
            self.health = self._client.json("/robo/health", method="GET")
        except RobotError as error:
            self.health = {**self.health, "problem": str(error).partition("\n")[0]}
        self.requested = requested
        try:
            self.state = self._client.json("/robo/state", method="GET")
        except RobotError:
            self.state = None

    def _fetch_picture(self, name: str) -> None:
        try:
            frame = self._client.frame(name)
            if name in self.newest and self.newest[name].number == frame.number:
                return
            _, jpeg = cv2.imencode(".jpg", frame.picture[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
            self.newest[name] = JpegFrame(jpeg.tobytes(), frame.number, time.monotonic())
        except (RobotError, cv2.error):
            return  # the page shows the growing age
