"""Wall clock by activity: exactly one runs at any moment, so that their seconds add up to the total.

Two readings of a clock for each measured call cost about a microsecond; a training step takes a thousand times as long.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TypeVar

from robo_rl.types import Metrics

Result = TypeVar("Result")

OTHER = "other"
"""Activity while no other is timed: the training loop itself."""

_running = threading.local()


class Stopwatch:
    """Seconds by activity since `start`; activities may be nested, and each counts without those inside it."""

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()
        self._activity = OTHER
        self._mark: float | None = None

    def start(self) -> None:
        """Start counting, or continues after a resume; `timed` in this thread now charges this stopwatch."""
        self._mark = time.perf_counter()
        _running.stopwatch = self

    def switch(self, activity: str) -> str:
        """Charge the time up to now to the present activity, switches to `activity` and return the one before."""
        if self._mark is not None:
            now = time.perf_counter()
            self._seconds[self._activity] += now - self._mark  # type: ignore[assignment]
            self._mark = now
        before, self._activity = self._activity, activity
        return before

    def time(self, activity: str, function: Callable[[], Result]) -> Result:
        """Return the result of `function`, charging its duration to `activity`."""
        before = self.switch(activity)
        try:
            return function()
        finally:
            self.switch(before)

    @property
    def metrics(self) -> Metrics:
        """Tags time/<activity>_s, up to this moment."""
        self.switch(self._activity)
        return {f"time/{activity}_s": float(seconds) for activity, seconds in self._seconds.items()}

    def state_dict(self) -> dict[str, float]:
        """Return the seconds by activity, up to this moment."""
        self.switch(self._activity)
        return dict(self._seconds)

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Continue from saved seconds."""
        self._seconds = Counter(state)


def timed(activity: str, function: Callable[[], Result]) -> Result:
    """Return the result of `function`, charging its duration to the stopwatch that runs in this thread, if one does.

    For work that a training cannot time from outside, such as cameras that an environment draws within a step.
    """
    stopwatch: Stopwatch | None = getattr(_running, "stopwatch", None)
    return function() if stopwatch is None else stopwatch.time(activity, function)
