"""Collectors in the learner's own process, one after the other: the reference that other engines are held against."""

from __future__ import annotations

from collections import deque

from robo_rl.checkpoints import unpacked
from robo_rl.collecting.worker import Collector, Make, answer


class InProcessEngine:
    """Answers requests in the order in which they were sent, each when somebody listens."""

    def __init__(self, make: Make) -> None:
        self._make = make
        self.open: deque[tuple[InProcessLink, bytes, bytes]] = deque()
        """Requests that are not answered yet."""

    def start(self, job: bytes) -> InProcessLink:
        """Makes a collector."""
        return InProcessLink(self, self._make(unpacked(job)))

    def next(self, timeout: float) -> tuple[InProcessLink, bytes | None] | None:
        """Has the next request answered; None where there is none."""
        if not self.open:
            return None
        link, request, parameters = self.open.popleft()
        return link, answer(link.collector, request, parameters)

    def close(self) -> None:
        """Nothing is left."""


class InProcessLink:
    """A collector that answers when the engine has it answer."""

    def __init__(self, engine: InProcessEngine, collector: Collector) -> None:
        self._engine, self.collector = engine, collector

    def ask(self, request: bytes, parameters: bytes) -> None:
        """Keeps a request."""
        self._engine.open.append((self, request, parameters))

    def end(self) -> None:
        """Forgets what it was asked."""
        self._engine.open = deque(each for each in self._engine.open if each[0] is not self)

    def last_words(self) -> str:
        """Returns nothing: it prints where the learner does."""
        return ""
