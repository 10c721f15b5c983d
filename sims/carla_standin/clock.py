"""Frames and seconds of a server. In asynchronous mode the clock on the wall says when the next frame is due."""

from __future__ import annotations

import time

RATE = 20.0
"""[1/s] frames of asynchronous mode; also the step where a client fixes none."""


class Clock:
    """Frames go on rising over episodes; seconds of an episode begin at 0."""

    def __init__(self, rate: float = RATE) -> None:
        self.rate = rate
        self.frame, self.elapsed = 0, 0.0
        self.due = 0.0

    def restart(self) -> None:
        """Begins an episode."""
        self.elapsed = 0.0

    def advance(self, dt: float) -> None:
        """Begins a frame."""
        self.frame += 1
        self.elapsed += dt

    def until_due(self, dt: float) -> float:
        """Returns the time [s] until the next frame of asynchronous mode, 0 if it is due; time that was lost stays lost."""
        now = time.monotonic()
        self.due = min(self.due, now + dt)
        if self.due > now:
            return self.due - now
        self.due = max(self.due + dt, now)
        return 0.0
