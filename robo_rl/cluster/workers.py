"""Workers in processes, here or on a cluster: requests are bytes; workers that die or hang are replaced."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from robo_rl.cluster.host import content_of, error_of
from robo_rl.errors import RoboRLError, WorkerFailed
from robo_rl.system.supervised_process import SHOWN


class Worker(Protocol):
    """Interface of a worker, an object in another process, as an engine starts it."""

    def ask(self, method: str, *contents: bytes) -> None:
        """Send a call of a method of the worker's object; return at once, without waiting for the reply."""

    def stop(self) -> object:
        """End the worker at once; may be called twice."""

    def output(self) -> str:
        """Return the last part of what the worker printed, for an error message."""


class Engine(Protocol):
    """Interface of what starts workers (child processes, Ray actors) and receives the replies of all of them."""

    def start(self, setup: bytes) -> Worker:
        """Start a worker, without waiting for it."""

    def next(self, timeout: float) -> tuple[Worker, bytes | None] | None:
        """Wait at most `timeout` [s] for a reply of any worker.

        Returns:
            (worker, reply); the reply is None if the worker is lost. None if nothing came in time.
        """

    def close(self) -> None:
        """Release what the engine itself holds, such as the connection to a cluster."""


@dataclass(frozen=True)
class Timeouts:
    """Time limits after which a silent worker counts as lost, and the number of losses after which an error is raised."""

    start: float = 300.0
    """[s] until the first reply of a worker, including the wait for room on a node."""
    answer: float = 600.0
    """[s] until each later reply; after that the worker counts as hung and is replaced."""
    losses: int = 3
    """Workers lost at one place in a row, without a reply in between, that raise an error."""
    counts_start: bool = False
    """True if a worker that is silent for `start` counts as lost, because it does not wait for room."""


@dataclass(frozen=True)
class Kind:
    """Rules for the loss of a worker: after which errors it is replaced, and which error ends the work."""

    error: type[RoboRLError] = WorkerFailed
    """Error that is raised if workers are lost repeatedly."""
    fix: str = "look whether it runs here, without --ray; the logs of a node are in its /tmp/ray/session_latest/logs"
    consequence: str = ""
    """What the replacement of a lost worker means, in words for a warning."""
    retried: Sequence[str] = ()
    """Names of errors after which a worker is replaced, because another worker may not meet them; "" for any foreign error."""


USUAL = Timeouts()


class Reply(NamedTuple):
    """Reply of one worker to a request, or the news that the worker was lost."""

    place: int
    """Number of the worker among all `Workers`, from 0."""
    name: str
    raw: bytes | None
    """The reply as bytes. None if the worker was lost together with its requests; its replacement then waits for a request."""

    @property
    def content(self) -> bytes:
        """Bytes that the worker's object returned; raises the object's error."""
        assert self.raw is not None
        return content_of(self.name, self.raw)


@dataclass
class _Place:
    worker: Worker
    since: float
    """When its oldest open request was sent, or became the oldest."""
    open: int = 0
    has_replied: bool = False
    losses: int = 0


class Workers:
    """A fixed number of workers, numbered by their place from 0; they are started at the first request.

    A worker that dies or hangs is replaced by a new one at the same place.
    """

    def __init__(
        self,
        engine: Engine,
        setup: Callable[[int], bytes],
        names: Sequence[str],
        say: Callable[[str], None],
        *,
        timeouts: Timeouts = USUAL,
        kind: Kind = Kind(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Store how to start workers.

        Args:
            engine: Starts the workers.
            setup: Returns the setup of the worker at a place.
            names: Name of the worker at each place.
            say: Called with messages for the user about replacements.
            timeouts: Limits for silence and losses.
            kind: How losses are handled.
            clock: Clock [s].
        """
        self._engine, self._setup, self._names, self._say = engine, setup, names, say
        self._timeouts, self._kind, self._clock = timeouts, kind, clock
        self._places: list[_Place] = []
        self.losses = 0
        """Workers that were replaced."""

    @property
    def idle(self) -> list[int]:
        """Places of workers that have replied and have no open request."""
        return [index for index, place in enumerate(self._places) if place.has_replied and not place.open]

    def open(self, index: int) -> int:
        """Return the number of open requests of the worker at place `index`."""
        return self._places[index].open if self._places else 0

    def ask(self, index: int, method: str = "", *contents: bytes) -> None:
        """Call a method of the worker at place `index`; without a method only start it."""
        if not self._places:
            self._places = [self._start(place) for place in range(len(self._names))]
        place = self._places[index]
        if not place.open:
            place.since = self._clock()
        place.open += 1
        place.worker.ask(method, *contents)

    def next(self, timeout: float) -> Reply | None:
        """Return the next reply of any worker, None if there is none within `timeout` [s]; lost workers are replaced.

        Raises `Kind.error` if workers are lost repeatedly.
        """
        for index, place in enumerate(self._places):
            allowed = self._timeouts.answer if place.has_replied else self._timeouts.start
            if place.open and self._clock() - place.since > allowed:
                is_loss = place.has_replied or self._timeouts.counts_start
                return self._replace(index, f"was silent for {allowed:g} s", is_loss=is_loss)
        found = self._engine.next(timeout)
        index = -1 if found is None else self._index(found[0])
        if found is None or index < 0:  # no reply, or the last one of a replaced worker
            return None
        reply, place = found[1], self._places[index]
        if reply is None:
            return self._replace(index, "died")
        if (error := error_of(reply)) is not None and error[0] in self._kind.retried:
            return self._replace(index, "failed", error[1])
        place.open, place.since = place.open - 1, self._clock()
        place.has_replied, place.losses = True, 0
        return Reply(index, self._names[index], reply)

    def close(self) -> None:
        """End all workers."""
        places, self._places = self._places, []
        for place in places:
            place.worker.stop()
        self._engine.close()

    def _start(self, index: int) -> _Place:
        return _Place(self._engine.start(self._setup(index)), self._clock())

    def _index(self, worker: Worker) -> int:
        return next((index for index, place in enumerate(self._places) if place.worker is worker), -1)

    def _replace(self, index: int, why: str, output: str = "", *, is_loss: bool = True) -> Reply:
        lost, name = self._places[index], self._names[index]
        lost.worker.stop()
        losses = lost.losses + is_loss
        if losses >= self._timeouts.losses:
            got = f"it {why}; its output: {output[-SHOWN:] or lost.worker.output() or 'none'}"
            raise self._kind.error(
                f"{name[0].upper()}{name[1:]} was lost {losses} times in a row.", got=got, fix=self._kind.fix
            )
        self.losses += 1
        self._say(f"{name} {why} and is replaced{self._kind.consequence}")
        self._places[index] = self._start(index)
        self._places[index].losses = losses
        return Reply(index, name, None)
