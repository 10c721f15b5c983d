"""Pauses between answers while a client's Traffic Manager runs, so that the two threads of the client never miss each other.

In synchronous mode the client of 0.9.16 hands each frame from its main thread to the thread of the Traffic Manager and back, by
two conditions that are notified without the lock their waiters hold: a notification that falls between a waiter's last look and
its sleep is lost, and both threads wait for ever. Each thread hears from this server just before it goes to sleep:

- the Traffic Manager asks for the settings, and then waits for the main thread, which `tick()` wakes with its answer;
- the main thread has the answer of `tick()`, and then waits for the Traffic Manager, whose batch of controls is answered last.

So the answer of a tick waits until that of the last settings is `APART` old, the others until that of the last tick is: whoever
got the earlier one sleeps by then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sized

APART = 0.003
"""[s] that a thread of a client may take from an answer to its sleep. A tick takes 6 ms or more then."""
AFTER = {"tick": "settings", "settings": "tick", "batch": "tick"}
"""Kind of an answer -> kind of the answers that it keeps its distance from."""


class Pacing:
    """Times of the last answers, by kind."""

    def __init__(
        self, managers: Sized, sleep: Callable[[float], None] = time.sleep, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._managers, self._sleep, self._now = managers, sleep, now
        self._answered: dict[str, float] = {}

    def space(self, kind: str) -> None:
        """Wait until an answer of this kind may be given, if there is a Traffic Manager."""
        if not self._managers:
            return
        left = self._answered.get(AFTER[kind], float("-inf")) + APART - self._now()
        if left > 0:
            self._sleep(left)
        self._answered[kind] = self._now()
