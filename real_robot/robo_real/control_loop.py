"""A fixed rate on the monotonic clock, with an account of how well it was kept."""

from __future__ import annotations

import numpy as np

from robo_real.clock import Clock


class ControlLoop:
    """Says when the next cycle is due. Deadlines lie on a grid, so that one late cycle does not delay those after it."""

    def __init__(self, clock: Clock, period: float) -> None:
        """period: [s] of the clock."""
        self._clock, self.period = clock, period
        self.overruns = 0
        """cycles that began a whole period late or more"""
        self.lateness: list[float] = []
        """[s] that each cycle began after its deadline"""
        self.start()

    def start(self) -> None:
        """The grid begins now: the first cycle is under way."""
        self._deadline = self._clock.now()

    def wait(self) -> float:
        """Returns at the next deadline, and how late [s]; after an overrun the grid begins anew, nothing is made up for."""
        self._deadline += self.period
        self._clock.sleep(self._deadline - self._clock.now())
        late = max(self._clock.now() - self._deadline, 0.0)
        self.lateness.append(late)
        if late >= self.period:
            self.overruns += 1
            self.start()
        return late

    def percentile(self, percent: float) -> float:
        """Returns the lateness [s] that so many percent of the cycles did not exceed."""
        return float(np.percentile(self.lateness, percent)) if self.lateness else 0.0
