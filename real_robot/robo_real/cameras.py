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
"""[s] Largest age of a picture that a policy acts on. That it is exceeded shows in the next control period, within 0.5 s."""
FAULTS: Mapping[str, type[CameraFault]] = {
    kind.__name__: kind for kind in (CameraFault, CameraStale, CameraFrozen, CameraChanged)
}
"""Name -> class of a camera's errors; the name is what one process sends to another."""


@dataclass(frozen=True)
class Frame:
    """One picture, with its time and origin."""

    picture: Picture
    """(H, W, 3) RGB"""
    stamp: float
    """Time [s] of the exposure by the robot's clock"""
    number: int
    """Number that the camera counts up; equal numbers mean the same picture"""
    identity: str = ""
    """Identity of the device, such as its serial number; empty if it has none"""


class Camera(Protocol):
    """Camera that takes pictures all the time."""

    def newest(self) -> Frame:
        """Return the newest picture, however old; raises CameraFault if the camera fails, or before the first one."""

    def close(self) -> None:
        """Release the device."""


class CameraDevice(Protocol):
    """Device that takes pictures, read by a process of its own. To add one: one file, one entry point in `robo_rl.cameras`."""

    options: ClassVar[Any]
    """Dataclass of the settings; the constructor takes an instance of it."""

    def open(self) -> str:
        """Open the device; a constructor must not open it.

        Returns:
            Identity of the device, such as model and serial number; "" if it has none.

        Raises:
            CameraFault: The device is not there, or refuses a setting.
            MissingExtra: A package that it needs is not installed.
        """

    def read(self) -> tuple[Picture, float]:
        """Wait for the next picture; return it, (H, W, 3) RGB, and the time [s] of its exposure by time.monotonic().

        Raises CameraFault if none comes.
        """

    def close(self) -> None:
        """Release the device; does nothing if it is closed, or gone."""


class ImagingDriver(Protocol):
    """Driver of a robot with cameras of its own."""

    @property
    def cameras(self) -> tuple[str, ...]:
        """Names of the cameras, as in the observation."""

    def newest(self, camera: str) -> Frame:
        """Return the newest picture of a camera, however old; raises RobotUnavailable before the first one."""


@dataclass
class FreshFrames:
    """Check that a camera's pictures are new, in order, of the right size, and from the same device."""

    name: str
    shape: tuple[int, ...]
    most_age: float = MOST_AGE
    """Largest age [s] of a picture."""
    backward: int = 0
    """Number of pictures that were dropped because they were older than the one before."""
    ages: list[float] = field(default_factory=list)
    """Age [s] of each picture that was returned; negative if it was taken after the measurement that it goes with."""

    def __post_init__(self) -> None:
        self._last: Frame | None = None

    def checked(self, frame: Frame, now: float) -> Picture:
        """Return the picture of a frame, or the one before if the frame is older than that.

        now: time [s] of the robot's clock. Raises CameraStale for a picture that is too old, CameraChanged for another size or
        device.
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
