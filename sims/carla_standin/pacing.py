"""Pauses between answers while a client's Traffic Manager runs, against a race between two threads of the client.

In synchronous mode the client of 0.9.16 passes each frame from its main thread to the Traffic Manager's thread and back, by two
conditions that are notified without the lock of their waiters: a notification between a waiter's last check and its sleep
is lost, and both threads wait indefinitely. Each thread gets an answer of this server just before it sleeps:

- the Traffic Manager gets the settings, and then waits for the main thread, which the answer of `tick()` wakes;
- the main thread gets the answer of `tick()`, and then waits for the Traffic Manager, whose batch of controls is answered last.

The answer of a tick is therefore delayed until that of the last settings is `APART` old, the others until that of the last tick
is: the thread that got the earlier answer sleeps by then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sized

APART = 0.003
"""[s] Allowance for a client's thread from an answer to its sleep. A tick then takes 6 ms or more."""
AFTER = {"tick": "settings", "settings": "tick", "batch": "tick"}
"""Kind of a call -> kind of the call whose last answer must be `APART` old before this call is answered."""


class Pacing:
    """Pauses before answers to a client that runs a Traffic Manager, by the times of the last answers of each kind."""

    def __init__(
        self, managers: Sized, sleep: Callable[[float], None] = time.sleep, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._managers, self._sleep, self._now = managers, sleep, now
        self._answered: dict[str, float] = {}

    def space(self, kind: str) -> None:
        """Sleep until the last answer of the other kind in `AFTER` is `APART` old; no wait without a Traffic Manager.

        kind: kind of the call that is to be answered.
        """
        if not self._managers:
            return
        left = self._answered.get(AFTER[kind], float("-inf")) + APART - self._now()
        if left > 0:
            self._sleep(left)
        self._answered[kind] = self._now()
