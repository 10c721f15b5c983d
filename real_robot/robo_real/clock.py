"""Clocks of a robot: real, accelerated, or manual. Wall time may jump, so no decision uses it."""

from __future__ import annotations

import time
from typing import Protocol

from typing_extensions import override


class Clock(Protocol):
    """Clock of a robot."""

    def now(self) -> float:
        """Return the robot's time [s], which never runs backwards."""

    def sleep(self, seconds: float) -> None:
        """Block for a duration [s] of the robot's time."""


class MonotonicClock(Clock):
    """Monotonic clock of the machine, times a factor for simulations."""

    def __init__(self, speed: float = 1.0) -> None:
        self.speed = speed

    @override
    def now(self) -> float:
        return time.monotonic() * self.speed

    @override
    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            time.sleep(seconds / self.speed)


class ManualClock(Clock):
    """Clock that advances only by `sleep`, without waiting: episodes on it are exactly reproducible."""

    def __init__(self) -> None:
        self._now = 0.0

    @override
    def now(self) -> float:
        return self._now

    @override
    def sleep(self, seconds: float) -> None:
        self._now += max(seconds, 0.0)
