"""Wait for the next call. Waking up takes longer than a short pause, so a busy server polls before it sleeps."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable

Ready = list[tuple[selectors.SelectorKey, int]]
LINGER = 0.0005
"""[s]"""
GIVE_WAY: Callable[[], object] = getattr(os, "sched_yield", lambda: None)
"""Yields the core to other processes."""


class Poller:
    """Waits for the files of a selector."""

    def __init__(self, selector: selectors.BaseSelector, linger: float = LINGER) -> None:
        """linger: [s] of polling before sleeping, if the last two pauses were shorter; 0 sleeps at once."""
        self._selector, self._linger = selector, linger
        self._pauses = float("inf"), float("inf")

    def ready(self, timeout: float | None) -> Ready:
        """Returns the ready files within `timeout` [s]; blocks and may poll if it is None."""
        start = time.perf_counter()
        found = self._poll(start) if timeout is None and max(self._pauses) < self._linger else []
        found = found or self._selector.select(timeout)
        self._pauses = self._pauses[1], time.perf_counter() - start
        return found

    def _poll(self, start: float) -> Ready:
        while time.perf_counter() - start < self._linger:
            if found := self._selector.select(0):
                return found
            GIVE_WAY()
        return []
