"""Answers that are given later, while other calls are served.

When a map is loaded the client of 0.9.16 resets its episode, and a Traffic Manager of the same process, in a thread of its own,
may be reading actors of the old one: the process ends by a segmentation fault. A real server takes seconds to load a map, in
which that thread comes to its end; the load of a light map is therefore answered `SETTLING` later. A pause of the whole server
would not do: that thread waits for answers of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable

SETTLING = 0.2
"""Delay [s] of the answer to the load of a map while a Traffic Manager is registered, so that its thread can end first."""


class Deferrals:
    """Functions to be called later, in the order of their times."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._waiting: list[tuple[float, Callable[[], None]]] = []

    def add(self, seconds: float, function: Callable[[], None]) -> None:
        """Let a function be called after a time [s]."""
        self._waiting.append((self._now() + seconds, function))
        self._waiting.sort(key=lambda entry: entry[0])

    def until_due(self) -> float | None:
        """Return the time [s] until the next function is due; None without any."""
        return max(self._waiting[0][0] - self._now(), 0.0) if self._waiting else None

    def call_due(self) -> None:
        """Call the functions that are due."""
        while self._waiting and self._waiting[0][0] <= self._now():
            self._waiting.pop(0)[1]()
