"""Cameras, and the rule that none gives an old picture as a new one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from robo_rl.errors import CameraStale, InvalidObservation, RobotUnavailable

Picture = npt.NDArray[np.uint8]
MOST_AGE = 0.5
"""[s] that a picture may be old when a policy acts on it."""


@dataclass(frozen=True)
class Frame:
    """One picture."""

    picture: Picture
    """(H, W, 3) RGB"""
    stamp: float
    """[s] of the robot's clock when it was taken"""
    number: int
    """counted by the camera; the same number is the same picture"""


class Camera(Protocol):
    """Takes pictures by itself."""

    def newest(self) -> Frame:
        """Returns the newest picture there is, however old; raises RobotUnavailable before the first."""

    def close(self) -> None:
        """Frees the device."""


@dataclass
class FreshFrames:
    """Gives a camera's newest picture, unless it is too old, from the past, or of another size than promised."""

    name: str
    shape: tuple[int, ...]
    most_age: float = MOST_AGE
    """[s]"""
    backward: int = 0
    """pictures whose time lay before that of the one before; dropped and counted"""

    def __post_init__(self) -> None:
        self._last: Frame | None = None

    def checked(self, frame: Frame, now: float) -> Picture:
        """Returns the picture; raises CameraStale, or InvalidObservation if it has changed its size: nothing is resized."""
        if frame.picture.shape != self.shape:
            raise InvalidObservation(
                f"The camera {self.name!r} has changed its pictures.", got=frame.picture.shape, allowed=self.shape
            )
        if self._last is not None and frame.stamp < self._last.stamp:
            self.backward += 1
            frame = self._last
        self._last = frame
        if abs(now - frame.stamp) > self.most_age:  # a little newer than the measurement is as good
            raise CameraStale(
                f"The newest picture of the camera {self.name!r} is too old.",
                got=f"{now - frame.stamp:.3f} s old",
                allowed=f"at most {self.most_age} s",
                fix="look at the camera and its cable; robo-rl robot check URL measures its rate",
            )
        return frame.picture


class OpenCVCamera:
    """A camera of this machine; a thread of its own keeps only the newest picture."""

    def __init__(self, device: int | str, size: int, now: Callable[[], float]) -> None:
        """device: number or path, as of cv2.VideoCapture. size: height and width [pixel] of the square that is kept."""
        import cv2

        self._capture = cv2.VideoCapture(device)
        if not self._capture.isOpened():
            raise RobotUnavailable(f"The camera {device!r} does not open.", fix="ls /dev/video*; is another program using it?")
        self._capture.set(cv2.CAP_PROP_BUFFERSIZE, 1)
        self._size, self._now = size, now
        self._frame: Frame | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="camera", daemon=True)
        self._thread.start()

    def newest(self) -> Frame:
        """Returns the newest picture."""
        if self._frame is None:
            raise RobotUnavailable("The camera has not delivered a picture yet.")
        return self._frame

    def close(self) -> None:
        """Frees the device."""
        self._done.set()
        self._thread.join()
        self._capture.release()

    def _watch(self) -> None:
        import cv2

        number = 0
        while not self._done.is_set():
            taken, picture = self._capture.read()
            if not taken:  # unplugged, or a film at its end: the picture there is grows old, and is refused for it
                self._done.wait(0.05)
                continue
            number += 1
            stamp = self._now()
            side = min(picture.shape[:2])
            top, left = (picture.shape[0] - side) // 2, (picture.shape[1] - side) // 2
            square = picture[top : top + side, left : left + side]
            scaled = cv2.resize(square, (self._size, self._size), interpolation=cv2.INTER_AREA)
            self._frame = Frame(np.asarray(cv2.cvtColor(scaled, cv2.COLOR_BGR2RGB), np.uint8), stamp, number)
