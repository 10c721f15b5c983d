"""Clocks of a robot, real, accelerated or manual, and a control loop at a fixed rate.

All of them are monotonic: wall time may jump, so no decision uses wall time.
"""

from __future__ import annotations

import time
from typing import Protocol

import numpy as np
from typing_extensions import override


class Clock(Protocol):
    """Clock of a robot. Its time may run faster than real time if the robot is simulated."""

    def now(self) -> float:
        """Return the robot's time [s], which never runs backwards."""

    def sleep(self, seconds: float) -> None:
        """Block for a duration [s] of the robot's time."""


class MonotonicClock(Clock):
    """Monotonic clock of the machine, multiplied by `speed`: 1 for a real robot, more for a simulation that runs faster."""

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


class ControlLoop:
    """Timer of a control loop, with statistics of its lateness.

    Deadlines lie on a grid, one per period, so that a late cycle does not delay the cycles after it.
    """

    def __init__(self, clock: Clock, period: float) -> None:
        """Start the loop. period: [s] between two deadlines, by `clock`."""
        self._clock, self.period = clock, period
        self.overruns = 0
        """number of cycles that started a whole period late or more"""
        self.lateness: list[float] = []
        """[s] from deadline to start of each cycle"""
        self.start()

    def start(self) -> None:
        """Start the grid, and the first cycle, now."""
        self._deadline = self._clock.now()

    def wait(self) -> float:
        """Block until the next deadline, and return by how much [s] the deadline was missed, 0 if it was kept.

        A cycle that is late by a period or more is an overrun: the grid of deadlines starts again from now.
        """
        self._deadline += self.period
        self._clock.sleep(self._deadline - self._clock.now())
        late = max(self._clock.now() - self._deadline, 0.0)
        self.lateness.append(late)
        if late >= self.period:
            self.overruns += 1
            self.start()
        return late

    def percentile(self, percent: float) -> float:
        """Return a percentile, 0 to 100, of the lateness [s] of all cycles; 0 before the first cycle."""
        return float(np.percentile(self.lateness, percent)) if self.lateness else 0.0
