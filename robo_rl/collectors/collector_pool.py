"""Pool of collectors: sends requests with the newest parameters, and replaces collectors that die or hang."""

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
    fix="look at its output, remove the cause; then robo-rl resume",
    consequence="; its environments begin new episodes",
    retried=("", "ServerUnavailable"),
)


class Collector(ABC):
    """Base class of collectors: objects in other processes that act in environments with the parameters that they receive.

    One runs inside a `robo_rl.cluster.host.Host`.
    """

    @abstractmethod
    def load_parameters(self, parameters: StateDict) -> None:
        """Load these parameters into the policy, which acts with them from now on."""

    @abstractmethod
    def handle(self, request: StateDict) -> StateDict:
        """Carry out a request, such as to take some steps, and return its result."""

    def answer(self, request: bytes, parameters: bytes | None = None) -> bytes:
        """Return the packed answer to a packed request.

        parameters: packed newer parameters to load first; None to keep the present ones.
        """
        if parameters is not None:
            self.load_parameters(unpacked(parameters))
        return packed(self.handle(unpacked(request)))


class CollectorAnswer(NamedTuple):
    """Answer of one collector to a request, or the news that the collector was lost."""

    place: int
    """Number of the collector in the pool."""
    content: StateDict | None
    """Content; None if the collector was lost together with its requests, and its replacement waits for a request."""
    raw: bytes = b""
    """The answer's `content`, packed as bytes."""


class CollectorPool:
    """A number of collector processes with the same job, to which requests are sent and from which answers come.

    Each has a number, its `index`, and a `birth` that no other collector of the training has.
    """

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
        """Number of collectors started for the training so far; a resume sets it before the first request."""
        self.tell: Callable[[str], None] = lambda words: None
        """Prints a message for the user."""
        self._job, names = job, [f"collector {index}" for index in range(count)]
        self._workers = Workers(engine, self._setup, names, self._notify, timeouts=timeouts, kind=KIND, clock=clock)
        self._open_versions = [deque[int]() for _ in names]
        """Version of the parameters of each open request, by place."""
        self._sent = [-1] * count
        """Version that each place has."""
        self._version, self._parameters = -1, b""

    @property
    def losses(self) -> int:
        """Number of collectors so far that died or hung and were replaced."""
        return self._workers.losses

    @property
    def version(self) -> int:
        """Version of the parameters that requests are sent with."""
        return self._version

    @property
    def oldest(self) -> int | None:
        """Oldest version of the parameters among the open requests; None if no request is open."""
        return min((version for asked in self._open_versions for version in asked), default=None)

    def publish(self, version: int, parameters: StateDict) -> None:
        """Set the newest parameters, which are sent with later requests; each collector gets each version once."""
        self._version, self._parameters = version, packed(parameters)

    def open(self, index: int) -> int:
        """Return the number of open requests of collector `index`."""
        return len(self._open_versions[index])

    def ask(self, index: int, request: StateDict) -> None:
        """Send a request to collector `index`; the first request starts all collectors."""
        newer = [] if self._sent[index] == self._version else [self._parameters]
        self._workers.ask(index, "answer", packed(request | {"version": self._version}), *newer)
        self._open_versions[index].append(self._version)
        self._sent[index] = self._version

    def next(self, timeout: float) -> CollectorAnswer | None:
        """Return the next answer of any collector; a lost collector is replaced.

        Args:
            timeout: [s] Longest wait.

        Returns:
            The answer; None if there was none in time.

        Raises:
            SimulationFailed: The simulation of a collector failed.
            RunError: A collector cannot continue, or was lost repeatedly.
        """
        if (reply := self._workers.next(timeout)) is None:
            return None
        if reply.raw is None:
            self._open_versions[reply.place].clear()
            self._sent[reply.place] = -1
            return CollectorAnswer(reply.place, None)
        self._open_versions[reply.place].popleft()
        try:
            content = reply.content
        except RoboRLError as error:
            kind = SimulationFailed if isinstance(error, SimulationFailed) else RunError
            what, fix = f"Collector {reply.place} cannot go on.", "remove the cause; then robo-rl resume"
            raise kind(what, got=error, fix=fix) from None
        return CollectorAnswer(reply.place, unpacked(content), content)

    def close(self) -> None:
        """End all collectors."""
        self._workers.close()
        self._open_versions = [deque[int]() for _ in self._open_versions]
        self._sent = [-1] * self.count

    def _notify(self, words: str) -> None:
        self.tell(words)

    def _setup(self, index: int) -> bytes:
        self.births += 1
        return packed(self._job | {"index": index, "count": self.count, "birth": self.births - 1})
