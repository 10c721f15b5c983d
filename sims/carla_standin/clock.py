"""Frames and simulated seconds of a server; in asynchronous mode, frames follow real time."""

from __future__ import annotations

import time

RATE = 20.0
"""[1/s] Frames of asynchronous mode; its inverse is the default step."""


class Clock:
    """Clock whose frames count over all episodes, and whose seconds start at 0 in each."""

    def __init__(self, rate: float = RATE) -> None:
        self.rate = rate
        self.frame, self.elapsed = 0, 0.0
        self.due = 0.0

    def restart(self) -> None:
        """Start a new episode: the simulated time counts from 0 again; frames count on."""
        self.elapsed = 0.0

    def advance(self, dt: float) -> None:
        """Count a new frame, and add its duration `dt` [s] to the simulated time."""
        self.frame += 1
        self.elapsed += dt

    def until_due(self, dt: float) -> float:
        """Return the time [s] until the next frame of asynchronous mode, 0 if it is due; delays are not made up for."""
        now = time.monotonic()
        self.due = min(self.due, now + dt)
        if self.due > now:
            return self.due - now
        self.due = max(self.due + dt, now)
        return 0.0
