"""What waits for an annotator: bounded, the newest first, each thing at most once."""

from __future__ import annotations

import threading
from collections.abc import Iterable

Query = tuple[str, ...]
"""One caption to be labelled, or two to be compared."""


class Desk:
    """Queries that wait or are being asked; shared by the thread that learns and the one that asks.

    The lock is held for microseconds and never while something is asked: whoever puts a query here does not wait for answers.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._waiting: dict[Query, None] = {}  # the newest last
        self._in_flight: set[Query] = set()
        self._changed = threading.Condition()
        self._is_closed = False

    def put(self, queries: Iterable[Query]) -> int:
        """Takes queries in, the last one the newest; returns how many of the oldest had to go.

        One that waits already becomes the newest; one that is being asked stays where it is.
        """
        with self._changed:
            for query in queries:
                if query not in self._in_flight:
                    self._waiting.pop(query, None)
                    self._waiting[query] = None
            oldest = list(self._waiting)[: max(0, len(self._waiting) - self._capacity)]
            for query in oldest:
                del self._waiting[query]
            self._changed.notify()
        return len(oldest)

    def take(self, most: int) -> list[Query] | None:
        """Waits for queries and returns the newest ones, the newest first; None once the desk is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            if self._is_closed:
                return None
            taken = [self._waiting.popitem()[0] for _ in range(min(most, len(self._waiting)))]
            self._in_flight.update(taken)
        return taken

    def done(self, query: Query) -> None:
        """A query was answered, or never will be."""
        with self._changed:
            self._in_flight.discard(query)

    def close(self) -> None:
        """Lets whoever takes from it go home."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    @property
    def sizes(self) -> tuple[int, int]:
        """How many wait, and how many are being asked."""
        with self._changed:
            return len(self._waiting), len(self._in_flight)

    @property
    def pending(self) -> list[Query]:
        """Everything without an answer, the newest last."""
        with self._changed:
            return [*sorted(self._in_flight), *self._waiting]
