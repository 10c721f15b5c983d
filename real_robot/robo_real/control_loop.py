"""Fixed-rate loop on a robot's clock, with statistics of its lateness."""

from __future__ import annotations

import numpy as np

from robo_real.clock import Clock


class ControlLoop:
    """Timer of a control loop. Deadlines lie on a grid, so that one late cycle does not delay those after it."""

    def __init__(self, clock: Clock, period: float) -> None:
        """period: [s] of the clock."""
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
        """Block until the next deadline and return the lateness [s]; an overrun restarts the grid from now."""
        self._deadline += self.period
        self._clock.sleep(self._deadline - self._clock.now())
        late = max(self._clock.now() - self._deadline, 0.0)
        self.lateness.append(late)
        if late >= self.period:
            self.overruns += 1
            self.start()
        return late

    def percentile(self, percent: float) -> float:
        """Return a percentile of the lateness [s], 0 before the first cycle."""
        return float(np.percentile(self.lateness, percent)) if self.lateness else 0.0
