"""Several collectors as the learner sees them: asked, listened to, replaced where they die or hang."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from robo_rl.checkpoints import packed, unpacked
from robo_rl.errors import RunError, SimulationFailed
from robo_rl.types import StateDict


class Link(Protocol):
    """One collector, as its engine has started it."""

    def ask(self, request: bytes, parameters: bytes) -> None:
        """Sends a request, and parameters unless these are empty; never waits for the collector."""

    def end(self) -> None:
        """Ends it at once."""

    def last_words(self) -> str:
        """Returns the last that it printed."""


class Engine(Protocol):
    """Starts collectors, and hears of all of them."""

    def start(self, job: bytes) -> Link:
        """Starts one, and does not wait until it is there."""

    def next(self, timeout: float) -> tuple[Link, bytes | None] | None:
        """Returns the next answer, with None in its place for a collector that is gone; None where none comes in time [s]."""

    def close(self) -> None:
        """Ends what the engine itself needs."""


@dataclass(frozen=True)
class Patience:
    """When a collector counts as hung, and how often one may be lost."""

    start: float = 600.0
    """[s] until the first answer, for which it has to be started."""
    answer: float = 300.0
    """[s] until each other."""
    losses: int = 5
    """of the same place in a row, without an answer in between, after which the training ends"""


class Reply(NamedTuple):
    """What came from the collector of a place."""

    place: int
    content: StateDict | None
    """None: it was lost with all that it was asked; another one has its place and waits for a request"""
    raw: bytes = b""
    """the same, packed"""


@dataclass
class _Place:
    link: Link
    since: float = 0.0
    """when its oldest open request was sent, or became the oldest"""
    open: list[int] = field(default_factory=list)
    """versions of the parameters that the open requests are answered with"""
    version: int = -1
    has_answered: bool = False
    losses: int = 0


class Crew:
    """`count` collectors, which are given one job, each with its `index` and a `birth` that no other one has."""

    def __init__(
        self,
        engine: Engine,
        job: StateDict,
        count: int,
        *,
        patience: Patience = Patience(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.count, self.births, self.losses = count, 0, 0
        """births: collectors that were ever begun for the training; set it before the first request. losses: replaced ones"""
        self.tell: Callable[[str], None] = lambda words: None
        """Is told what a person should know."""
        self._engine, self._job, self._patience, self._clock = engine, job, patience, clock
        self._places: list[_Place] = []
        self._version, self._parameters = -1, b""

    @property
    def version(self) -> int:
        """Of the parameters that requests are sent with."""
        return self._version

    @property
    def oldest(self) -> int | None:
        """The oldest version that an open request is answered with; None where none is open."""
        return min((version for place in self._places for version in place.open), default=None)

    def publish(self, version: int, parameters: StateDict) -> None:
        """From now on requests are sent with these; each collector gets them once."""
        self._version, self._parameters = version, packed(parameters)

    def open(self, index: int) -> int:
        """Returns how many requests to a place are not answered yet."""
        return len(self._places[index].open) if self._places else 0

    def ask(self, index: int, request: StateDict) -> None:
        """Sends a request to a place; starts all collectors at the first."""
        if not self._places:
            self._places = [_Place(self._begun(place)) for place in range(self.count)]
        place = self._places[index]
        is_newer, place.version = place.version != self._version, self._version
        if not place.open:
            place.since = self._clock()
        place.open.append(self._version)
        place.link.ask(packed(request | {"version": self._version}), self._parameters if is_newer else b"")

    def next(self, timeout: float) -> Reply | None:
        """Returns what comes next from any of them, None where nothing does in time [s]; replaces those that are lost.

        Raises RunError where one cannot go on, or is lost again and again.
        """
        if (hung := self._hung()) is not None:
            return self._replaced(hung, "did not answer in time")
        found = self._engine.next(timeout)
        index = None if found is None else self._index(found[0])
        if found is None or index is None:  # nothing, or the last of one that was replaced
            return None
        if found[1] is None:
            return self._replaced(index, "died")
        place, content = self._places[index], unpacked(found[1])
        if "error" in content:
            _refuse(index, content)
        place.open.pop(0)
        place.since, place.has_answered, place.losses = self._clock(), True, 0
        return Reply(index, content, found[1])

    def close(self) -> None:
        """Ends all of them."""
        places, self._places = self._places, []
        for place in places:
            place.link.end()
        self._engine.close()

    def _begun(self, index: int) -> Link:
        self.births += 1
        return self._engine.start(packed(self._job | {"index": index, "count": self.count, "birth": self.births - 1}))

    def _index(self, link: Link) -> int | None:
        return next((index for index, place in enumerate(self._places) if place.link is link), None)

    def _hung(self) -> int | None:
        now, patience = self._clock(), self._patience
        for index, place in enumerate(self._places):
            if place.open and now - place.since > (patience.answer if place.has_answered else patience.start):
                return index
        return None

    def _replaced(self, index: int, why: str) -> Reply:
        place = self._places[index]
        place.link.end()
        place.losses += 1
        if place.losses >= self._patience.losses:
            raise RunError(
                f"Collector {index} was lost {place.losses} times in a row.",
                got=f"it {why}; its last words: {place.link.last_words() or 'none'}",
                fix="look at what it printed, remove the cause; then robo-rl resume",
            )
        self.losses += 1
        self.tell(f"collector {index} {why}; another one takes its place, and its environments begin new episodes")
        self._places[index] = _Place(self._begun(index), losses=place.losses)
        return Reply(index, None)


def _refuse(index: int, content: StateDict) -> None:
    kind = SimulationFailed if content["kind"] == SimulationFailed.__name__ else RunError
    raise kind(f"Collector {index} cannot go on.", got=content["error"], fix="remove the cause; then robo-rl resume")
