"""Wall-clock time by activity: exactly one activity runs at any moment, so that the times add up to the total.

Each measured call reads the clock twice, about a microsecond; a training step takes a thousand times as long.
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
"""Name of the activity while no other one is timed: the training loop itself counts as this."""

_running = threading.local()


class Stopwatch:
    """Clock that adds up the seconds spent in each activity since `start`.

    Activities may be nested; the time of an inner one does not count for the outer.
    """

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()
        self._activity = OTHER
        self._mark: float | None = None

    def start(self) -> None:
        """Start or, after a resume, continue counting; `timed` in this thread now charges this stopwatch."""
        self._mark = time.perf_counter()
        _running.stopwatch = self

    def switch(self, activity: str) -> str:
        """Add the time until now to the present activity and switch to `activity`; return the activity before."""
        if self._mark is not None:
            now = time.perf_counter()
            self._seconds[self._activity] += now - self._mark  # type: ignore[assignment]
            self._mark = now
        before, self._activity = self._activity, activity
        return before

    def time(self, activity: str, function: Callable[[], Result]) -> Result:
        """Call `function()`, count its duration for `activity`, and return its result."""
        before = self.switch(activity)
        try:
            return function()
        finally:
            self.switch(before)

    @property
    def metrics(self) -> Metrics:
        """Seconds of each activity until now, under the tags time/ACTIVITY_s."""
        self.switch(self._activity)
        return {f"time/{activity}_s": float(seconds) for activity, seconds in self._seconds.items()}

    def state_dict(self) -> dict[str, float]:
        """Return the seconds of each activity until now."""
        self.switch(self._activity)
        return dict(self._seconds)

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Continue counting from saved seconds."""
        self._seconds = Counter(state)


def timed(activity: str, function: Callable[[], Result]) -> Result:
    """Call `function()`, count its duration for `activity` on this thread's stopwatch, if one runs, and return its result.

    For work that a training loop cannot time from outside, such as cameras that an environment renders within a step.
    """
    stopwatch: Stopwatch | None = getattr(_running, "stopwatch", None)
    return function() if stopwatch is None else stopwatch.time(activity, function)
