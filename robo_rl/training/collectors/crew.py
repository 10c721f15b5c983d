"""Several collectors as the learner sees them: asked with the newest parameters, replaced if they die or hang."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from robo_rl.cluster.workers import Engine, Kind, Timeouts, Workers
from robo_rl.errors import RoboRLError, RunError, SimulationFailed
from robo_rl.runs.checkpoints import packed, unpacked
from robo_rl.types import StateDict

TIMEOUTS = Timeouts(start=600.0, answer=300.0, losses=5, counts_start=True)
KIND = Kind(
    error=RunError,
    fix="look at what it printed, remove the cause; then robo-rl resume",
    consequence="; its environments begin new episodes",
    retried=("", "ServerUnavailable"),
)


class Collector(ABC):
    """Acts in environments of its own, with parameters that it is sent; a Host has it (robo_rl.cluster.host)."""

    @abstractmethod
    def load_parameters(self, parameters: StateDict) -> None:
        """Act with these from now on."""

    @abstractmethod
    def handle(self, request: StateDict) -> StateDict:
        """Do what is asked, and return what came of it."""

    def answer(self, request: bytes, parameters: bytes | None = None) -> bytes:
        """Return the packed answer to a packed request; parameters: newer ones."""
        if parameters is not None:
            self.load_parameters(unpacked(parameters))
        return packed(self.handle(unpacked(request)))


class Answer(NamedTuple):
    """Answer of the collector at a place."""

    place: int
    content: StateDict | None
    """None: it was lost with all that it was asked; another one has its place and waits for a request"""
    raw: bytes = b""
    """the same, packed"""


class Crew:
    """`count` collectors, which are given one job, each with its `index` and a `birth` that no other one has."""

    def __init__(
        self,
        engine: Engine,
        job: StateDict,
        count: int,
        *,
        timeouts: Timeouts = TIMEOUTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.count, self.births = count, 0
        """births: collectors that were ever started for the training; set it before the first request."""
        self.tell: Callable[[str], None] = lambda words: None
        """Prints a message for the user."""
        self._job, names = job, [f"collector {index}" for index in range(count)]
        self._workers = Workers(engine, self._setup, names, self._say, timeouts=timeouts, kind=KIND, clock=clock)
        self._asked = [deque[int]() for _ in names]
        """Versions of the parameters that the open requests of each place are answered with."""
        self._sent = [-1] * count
        """Version that each place has."""
        self._version, self._parameters = -1, b""

    @property
    def losses(self) -> int:
        """Collectors that were replaced."""
        return self._workers.losses

    @property
    def version(self) -> int:
        """Of the parameters that requests are sent with."""
        return self._version

    @property
    def oldest(self) -> int | None:
        """The oldest version that an open request is answered with; None if none is open."""
        return min((version for asked in self._asked for version in asked), default=None)

    def publish(self, version: int, parameters: StateDict) -> None:
        """From now on requests are sent with these; each collector gets them once."""
        self._version, self._parameters = version, packed(parameters)

    def open(self, index: int) -> int:
        """Returns how many requests to a place are not answered yet."""
        return len(self._asked[index])

    def ask(self, index: int, request: StateDict) -> None:
        """Sends a request to a place; starts all collectors at the first."""
        newer = [] if self._sent[index] == self._version else [self._parameters]
        self._workers.ask(index, "answer", packed(request | {"version": self._version}), *newer)
        self._asked[index].append(self._version)
        self._sent[index] = self._version

    def next(self, timeout: float) -> Answer | None:
        """Return the next answer of any of them, None if none comes in `timeout` [s]; replace those that are lost.

        Raises RunError if one cannot go on, or is lost again and again.
        """
        if (reply := self._workers.next(timeout)) is None:
            return None
        if reply.raw is None:
            self._asked[reply.place].clear()
            self._sent[reply.place] = -1
            return Answer(reply.place, None)
        self._asked[reply.place].popleft()
        try:
            content = reply.content
        except RoboRLError as error:
            kind = SimulationFailed if isinstance(error, SimulationFailed) else RunError
            what, fix = f"Collector {reply.place} cannot go on.", "remove the cause; then robo-rl resume"
            raise kind(what, got=error, fix=fix) from None
        return Answer(reply.place, unpacked(content), content)

    def close(self) -> None:
        """Ends all of them."""
        self._workers.close()
        self._asked = [deque[int]() for _ in self._asked]
        self._sent = [-1] * self.count

    def _say(self, words: str) -> None:
        self.tell(words)

    def _setup(self, index: int) -> bytes:
        self.births += 1
        return packed(self._job | {"index": index, "count": self.count, "birth": self.births - 1})
