"""The clock that a robot's times are read from. Wall time, which jumps, is never used to decide anything."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Tells and passes a robot's own time."""

    def now(self) -> float:
        """Returns the robot's time [s], which never runs backwards."""

    def sleep(self, seconds: float) -> None:
        """Returns once so much of the robot's time [s] has passed."""


class MonotonicClock:
    """The machine's monotonic clock; a simulation may run faster by a factor."""

    def __init__(self, speed: float = 1.0) -> None:
        self.speed = speed

    def now(self) -> float:
        """Returns the time [s]."""
        return time.monotonic() * self.speed

    def sleep(self, seconds: float) -> None:
        """Sleeps."""
        if seconds > 0:
            time.sleep(seconds / self.speed)


class ManualClock:
    """Time that passes only when someone sleeps: an episode on it is exactly reproducible."""

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        """Returns the time [s]."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Lets time pass at once."""
        self._now += max(seconds, 0.0)
