"""Thread that polls a robot's server for the newest picture of each camera, as JPEG, and the robot's health.

The thread has a connection of its own, so that neither a slow camera nor a slow page delays a command.
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
"""[s] period of requests for pictures"""
HEALTH = 0.2
"""[s] period of requests for the robot's health"""
QUALITY = 85
"""JPEG quality of the pictures, 0 to 100"""
TIMEOUT = 2.0
"""[s] longest wait for an answer; no command waits meanwhile"""


@dataclass(frozen=True)
class JpegFrame:
    """Picture of a camera, encoded for the page."""

    jpeg: bytes
    number: int
    """count of the camera's pictures"""
    came: float
    """[s] monotonic time at which the picture arrived"""


class RobotMonitor:
    """Newest pictures and health of one robot, for the page. A thread polls them until `close`."""

    def __init__(self, url: str) -> None:
        """Request the health once, and start the thread; raises RobotUnavailable if no server answers at `url`."""
        self._client = RobotClient(url, TIMEOUT)
        self.health: dict[str, Any] = self._client.json("/robo/health", method="GET")
        """newest answer of /robo/health; it has the further key "problem" while the server does not answer"""
        self.state: dict[str, Any] | None = None
        """newest answer of /robo/state; None while the server does not answer"""
        self.requested = time.monotonic()
        """[s] monotonic time at which the newest health was requested"""
        self.names: tuple[str, ...] = tuple(self.health["cameras"])
        self.newest: dict[str, JpegFrame] = {}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="robot monitor", daemon=True)
        self._thread.start()

    def age(self, name: str) -> float | None:
        """Return the time [s] since the newest picture of a camera arrived; None before the first picture."""
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
