"""Wait for the next call. Waking up takes longer than a short pause, so a busy server polls before it sleeps.

Where others want the cores, polling takes time from them, the client among them: a poll that had to wait for its own core ends
polling for a while.
"""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable

Ready = list[tuple[selectors.SelectorKey, int]]
LINGER = 0.0005
"""Time [s] for which a server polls for the next call before it sleeps."""
CROWDED = 0.0001
"""Duration [s] of a single poll above which another process must have had the core; a poll itself takes microseconds."""
REST = 200
"""Number of calls for which a server does not poll, after a poll that had to wait for its core."""
GIVE_WAY: Callable[[], object] = getattr(os, "sched_yield", lambda: None)
"""Function that lets other processes use the core for a moment."""


class Poller:
    """Waiter for the files of a selector: it polls for a while before it sleeps."""

    def __init__(self, selector: selectors.BaseSelector, linger: float = LINGER) -> None:
        """linger: [s] of polling before sleeping, if the last two pauses were shorter; 0 sleeps at once."""
        self._selector, self._linger = selector, linger
        self._pauses = float("inf"), float("inf")
        self._rest = 0

    def ready(self, timeout: float | None) -> Ready:
        """Return the ready files within `timeout` [s]; blocks and may poll if it is None."""
        start = time.perf_counter()
        polls = timeout is None and not self._rest and max(self._pauses) < self._linger
        self._rest = max(self._rest - 1, 0)
        found = self._poll(start) if polls else []
        found = found or self._selector.select(timeout)
        self._pauses = self._pauses[1], time.perf_counter() - start
        return found

    def _poll(self, start: float) -> Ready:
        now = start
        while now - start < self._linger:
            if found := self._selector.select(0):
                return found
            GIVE_WAY()
            before, now = now, time.perf_counter()
            if now - before > CROWDED:
                self._rest = REST
                break
        return []
