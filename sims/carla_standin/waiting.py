"""Waiting for the next call. To be woken by it takes longer than a short pause: who is asked often looks before it sleeps."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable

Ready = list[tuple[selectors.SelectorKey, int]]
LINGER = 0.0005
"""[s]"""
GIVE_WAY: Callable[[], object] = getattr(os, "sched_yield", lambda: None)
"""Lets others have the core, where somebody wants it."""


class Waiting:
    """Waits for a selector's files."""

    def __init__(self, selector: selectors.BaseSelector, linger: float = LINGER) -> None:
        """linger: [s] of looking before it sleeps, where the last two pauses were shorter than that; 0: it sleeps at once."""
        self._selector, self._linger = selector, linger
        self._pauses = float("inf"), float("inf")

    def ready(self, patience: float | None) -> Ready:
        """Returns what is ready within that many seconds, None being for ever; only who may wait for ever lingers."""
        began = time.perf_counter()
        found = self._look(began) if patience is None and max(self._pauses) < self._linger else []
        found = found or self._selector.select(patience)
        self._pauses = self._pauses[1], time.perf_counter() - began
        return found

    def _look(self, began: float) -> Ready:
        while time.perf_counter() - began < self._linger:
            if found := self._selector.select(0):
                return found
            GIVE_WAY()
        return []
