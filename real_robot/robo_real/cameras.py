"""Cameras with time stamps, and the check that a picture is new enough."""

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
"""[s] largest age of a picture that a policy acts on"""


@dataclass(frozen=True)
class Frame:
    """One picture."""

    picture: Picture
    """(H, W, 3) RGB"""
    stamp: float
    """[s] of the robot's clock at the exposure"""
    number: int
    """counted by the camera; equal numbers mean the same picture"""


class Camera(Protocol):
    """Camera that captures continuously."""

    def newest(self) -> Frame:
        """Return the newest picture, of any age; raises RobotUnavailable before the first."""

    def close(self) -> None:
        """Release the device."""


class ImagingDriver(Protocol):
    """Driver of a robot with cameras of its own."""

    @property
    def cameras(self) -> tuple[str, ...]:
        """Names of the cameras, as in the observation."""

    def newest(self, camera: str) -> Frame:
        """Return the newest picture of a camera, of any age; raises RobotUnavailable before the first."""


@dataclass
class FreshFrames:
    """Checks of a camera's pictures: age, order and size."""

    name: str
    shape: tuple[int, ...]
    most_age: float = MOST_AGE
    """[s]"""
    backward: int = 0
    """number of pictures dropped because they were older than the one before"""

    def __post_init__(self) -> None:
        self._last: Frame | None = None

    def checked(self, frame: Frame, now: float) -> Picture:
        """Return the picture; raises CameraStale if it is too old, InvalidObservation if its size has changed."""
        if frame.picture.shape != self.shape:
            raise InvalidObservation(
                f"The camera {self.name!r} has changed its pictures.", got=frame.picture.shape, allowed=self.shape
            )
        if self._last is not None and frame.stamp < self._last.stamp:
            self.backward += 1
            frame = self._last
        self._last = frame
        if abs(now - frame.stamp) > self.most_age:  # slightly newer than the measurement is fine
            raise CameraStale(
                f"The newest picture of the camera {self.name!r} is too old.",
                got=f"{now - frame.stamp:.3f} s old",
                allowed=f"at most {self.most_age} s",
                fix="look at the camera and its cable; robo-rl robot check URL measures its rate",
            )
        return frame.picture


class OpenCVCamera:
    """Camera of this machine; a thread reads it and keeps only the newest picture."""

    def __init__(self, device: int | str, size: int, now: Callable[[], float]) -> None:
        """device: number or path for cv2.VideoCapture. size: height and width [pixel] after cropping to a square."""
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
        """Return the newest picture."""
        if self._frame is None:
            raise RobotUnavailable("The camera has not delivered a picture yet.")
        return self._frame

    def close(self) -> None:
        """Release the device."""
        self._done.set()
        self._thread.join()
        self._capture.release()

    def _watch(self) -> None:
        import cv2

        number = 0
        while not self._done.is_set():
            taken, picture = self._capture.read()
            if not taken:  # unplugged, or a file at its end: the last picture becomes too old and is refused
                self._done.wait(0.05)
                continue
            number += 1
            stamp = self._now()
            side = min(picture.shape[:2])
            top, left = (picture.shape[0] - side) // 2, (picture.shape[1] - side) // 2
            square = picture[top : top + side, left : left + side]
            scaled = cv2.resize(square, (self._size, self._size), interpolation=cv2.INTER_AREA)
            self._frame = Frame(np.asarray(cv2.cvtColor(scaled, cv2.COLOR_BGR2RGB), np.uint8), stamp, number)
