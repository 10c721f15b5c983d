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
"""[s] largest age of a picture on which a policy acts. An older one is noticed in the next control period, within 0.5 s."""
FAULTS: Mapping[str, type[CameraFault]] = {
    kind.__name__: kind for kind in (CameraFault, CameraStale, CameraFrozen, CameraChanged)
}
"""Name -> class of a camera's errors; processes send the name to each other"""


@dataclass(frozen=True)
class Frame:
    """One picture of a camera, with its time and origin."""

    picture: Picture
    """(H, W, 3) uint8, RGB"""
    stamp: float
    """[s] time of the exposure by the robot's clock"""
    number: int
    """count of the camera's pictures; equal numbers mean the same picture"""
    identity: str = ""
    """identity of the device, such as its serial number; empty if the device has none"""


class Camera(Protocol):
    """Camera of a served robot, which takes pictures all the time."""

    def newest(self) -> Frame:
        """Return the newest picture, however old; raises CameraFault if the camera fails, or before its first picture."""

    def close(self) -> None:
        """Release the camera; no further picture can be read."""


class CameraDevice(Protocol):
    """Device that takes pictures; a process of its own reads it.

    A new kind of camera is a class with these methods and an entry point in `robo_rl.cameras`.
    """

    options: ClassVar[Any]
    """Dataclass of the settings; the constructor takes an instance of this dataclass"""

    def open(self) -> str:
        """Open the device; a constructor must not open it.

        Returns:
            Identity of the device, such as model and serial number; "" if it has none.

        Raises:
            CameraFault: The device is not there, or refuses a setting.
            MissingExtra: A package that the device needs is not installed.
        """

    def read(self) -> tuple[Picture, float]:
        """Wait for the next picture.

        Returns:
            The picture (H, W, 3) uint8, RGB, and the time [s] of its exposure by time.monotonic().

        Raises:
            CameraFault: No picture comes.
        """

    def close(self) -> None:
        """Release the device; does nothing if the device is closed or unplugged."""


class ImagingDriver(Protocol):
    """Protocol of a robot driver that also delivers pictures of cameras."""

    @property
    def cameras(self) -> tuple[str, ...]:
        """Names of the cameras, as in the observation."""

    def newest(self, camera: str) -> Frame:
        """Return the newest picture of a camera, however old; raises RobotUnavailable before its first picture."""


@dataclass
class FreshFrames:
    """Check that the pictures of one camera are new, in order, of the right size, and from the same device."""

    name: str
    """name of the camera"""
    shape: tuple[int, ...]
    """shape (H, W, 3) that every picture must have"""
    most_age: float = MOST_AGE
    """[s] largest age of a picture"""
    backward: int = 0
    """number of pictures that were dropped because an earlier picture was newer"""
    ages: list[float] = field(default_factory=list)
    """[s] age of each returned picture at the time of its measurement; negative for a picture that was taken later"""

    def __post_init__(self) -> None:
        self._last: Frame | None = None

    def checked(self, frame: Frame, now: float) -> Picture:
        """Check a frame, and return its picture. If the frame is older than the one before, return that picture again.

        Args:
            frame: Newest frame of the camera.
            now: [s] Time of the measurement to which the picture belongs, by the robot's clock.

        Raises:
            CameraStale: The picture is older, or newer, than `now` by more than `most_age`.
            CameraChanged: The picture has another size or comes from another device.
        """
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
