"""Cameras with time stamps, and the check that a picture is new enough."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from robo_rl.errors import CameraChanged, CameraFault, CameraFrozen, CameraStale

Picture = npt.NDArray[np.uint8]
MOST_AGE = 0.4
"""[s] largest age of a picture that a policy acts on; the next control period sees that it is exceeded, within 0.5 s"""
FAULTS: Mapping[str, type[CameraFault]] = {
    kind.__name__: kind for kind in (CameraFault, CameraStale, CameraFrozen, CameraChanged)
}
"""Errors of a camera by name, as they pass from process to process."""


@dataclass(frozen=True)
class Frame:
    """One picture."""

    picture: Picture
    """(H, W, 3) RGB"""
    stamp: float
    """[s] of the robot's clock at the exposure"""
    number: int
    """counted by the camera; equal numbers mean the same picture"""
    identity: str = ""
    """of the device, such as its serial number; empty if it has none"""


class Camera(Protocol):
    """Camera that captures continuously."""

    def newest(self) -> Frame:
        """Return the newest picture, of any age; raises CameraFault if the camera fails, or before the first."""

    def close(self) -> None:
        """Release the device."""


class ImagingDriver(Protocol):
    """Driver of a robot with cameras of its own."""

    @property
    def cameras(self) -> tuple[str, ...]:
        """Names of the cameras, as in the observation."""

    def newest(self, camera: str) -> Frame:
        """Return the newest picture of a camera, of any age; raises RobotUnavailable before the first."""


class CameraDevice(Protocol):
    """Device that takes pictures: one file, one entry point in `robo_rl.cameras`. A process of its own reads it."""

    options: ClassVar[Any]
    """Dataclass of its settings, the argument of its constructor."""

    def open(self) -> str:
        """Open the device and return its identity, such as model and serial number, "" if it has none.

        Raises CameraFault if it is not there or refuses a setting, MissingExtra. A constructor opens nothing.
        """

    def read(self) -> tuple[Picture, float]:
        """Return the next picture (H, W, 3) RGB and the time [s] of its exposure by time.monotonic().

        Blocks until there is one; raises CameraFault if none comes.
        """

    def close(self) -> None:
        """Release the device; harmless if it is closed, or gone."""


@dataclass
class FreshFrames:
    """Checks of a camera's pictures: age, order, size and device."""

    name: str
    shape: tuple[int, ...]
    most_age: float = MOST_AGE
    """[s]"""
    backward: int = 0
    """number of pictures dropped because they were older than the one before"""
    ages: list[float] = field(default_factory=list)
    """[s] of each picture that was returned; negative if it was taken after the measurement that it goes with"""

    def __post_init__(self) -> None:
        self._last: Frame | None = None

    def checked(self, frame: Frame, now: float) -> Picture:
        """Return the picture; raises CameraStale if it is too old, CameraChanged if its size or its device has changed."""
        if frame.picture.shape != self.shape:
            raise CameraChanged(
                f"The camera {self.name!r} has changed its pictures.",
                got=frame.picture.shape,
                allowed=self.shape,
                fix="serve the robot again with the size of its spec",
            )
        if self._last is not None and frame.identity != self._last.identity:
            raise CameraChanged(
                f"Another device takes the pictures of the camera {self.name!r}.",
                got=frame.identity,
                allowed=self._last.identity,
                fix="plug them as they were; if the change is meant, connect to the robot again",
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
        self.ages.append(now - frame.stamp)
        return frame.picture
