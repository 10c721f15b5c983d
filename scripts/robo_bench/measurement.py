"""Measure contestants in turns on the same machine, so that other load affects all of them alike."""

from __future__ import annotations

import contextlib
import math
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, NamedTuple

import tyro

from robo_rl.errors import require_allowed

Trial = Callable[[float], float]
"""Works for about that many seconds and returns one figure, such as steps per second."""
Work = Callable[[], int]
"""Does some work and returns the number of its units, such as steps."""
Before = Callable[[], object]
"""Prepares work; its time does not count."""
Clock = Callable[[], float]
"""Returns processor time [s]."""

SMALLER_IS_BETTER = ("s", "ms", "us", "MB")


@dataclass(frozen=True, kw_only=True)
class Effort:
    """Length and number of the measurements of each contestant: the options of every benchmark."""

    seconds: float = 2.0
    """[s] of one trial; a trial that cannot be cut, such as writing a checkpoint, takes its full time."""
    repeats: int = 5
    """Trials of each contestant; the median counts."""
    threads: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """Threads, and cores, of each contestant; without it each runs with its own default, as users start it."""
    processor_time: bool = False
    """Count processor time instead of the clock, for a machine that others load; for the bench `learner`."""
    beside: tuple[str, ...] = ()
    """Interpreters with other versions of the project to compare with; for the bench `updates`."""

    def __post_init__(self) -> None:
        allowed = {
            "seconds": (self.seconds > 0, "above 0 [s]"),
            "repeats": (self.repeats >= 1, "1 or more"),
            "threads": (self.threads is None or self.threads >= 1, "1 or more"),
        }
        require_allowed(self, allowed)

    @property
    def cores(self) -> int:
        """Requested threads, or the cores that this process may use."""
        affinity = getattr(os, "sched_getaffinity", None)
        return self.threads or (len(affinity(0)) if affinity else os.cpu_count() or 1)


@dataclass(frozen=True)
class Figures:
    """Figures of one case, in its unit; medians over the repeats."""

    ours: float
    peers: Mapping[str, float] = field(default_factory=dict)
    """Name of an installed competitor -> median of its figures."""
    limit: float | None = None
    """Figure of a theoretical limit on this machine, such as simulation without observations; None if none was measured."""
    ratio: float | None = None
    """Factor by which ours is better than the best peer: above 1 is better in every unit. None without peers."""
    spread: tuple[float, float] | None = None
    """Smallest and largest of our trials."""
    ratios: Mapping[str, float] = field(default_factory=dict)
    """Name of a contestant, bounds included -> factor by which ours is better.

    It is the median of the factors of all rounds, not the ratio of the medians.
    """

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values, to four significant digits."""
        return {name: _round(value) for name, value in asdict(self).items()}


@dataclass(frozen=True)
class Bound:
    """Contestant that does less than ours and is no peer; the first one of a case is its limit."""

    trial: Trial

    def __call__(self, seconds: float) -> float:
        """Run the trial for about `seconds` and return its figure."""
        return self.trial(seconds)


Contestants = Mapping[str, Trial | AbstractContextManager[Trial]]
"""Name -> trial, or a context in which it can be run; "ours" is one of them."""


@dataclass(frozen=True)
class Case:
    """One row of a benchmark table: name, unit, and a function that prepares the contestants when the row is measured."""

    name: str
    unit: str
    prepare: Callable[[Effort, ExitStack], Contestants | Figures]
    """Returns contestants to be measured in turns, or figures; resources to be closed go onto the stack."""

    def measure(self, effort: Effort) -> Figures:
        """Measure the contestants."""
        with ExitStack() as stack:
            found = self.prepare(effort, stack)
            if isinstance(found, Figures):
                return found
            trials = {
                name: stack.enter_context(trial) if isinstance(trial, AbstractContextManager) else trial
                for name, trial in found.items()
            }
            return compare_in_turns(trials, self.unit, effort)


class Timed(NamedTuple):
    """Time that work took."""

    units: int
    wall: float
    """[s] by the clock on the wall"""
    busy: float
    """Processor time [s] that all processes of the contestant used."""

    @property
    def rate(self) -> float:
        """Units of work done per second of wall time."""
        return self.units / self.wall

    @property
    def cost(self) -> float:
        """Processor time of a unit [s]: other load on the machine hardly counts."""
        return self.busy / self.units


def timed(work: Work, seconds: float, before: Before = lambda: None, processor: Clock = time.process_time) -> Timed:
    """Repeat work for that many seconds, at least once. Each time `before` is called first, which does not count."""
    units, wall, busy = 0, 0.0, 0.0
    while not units or wall < seconds:
        before()
        started, used = time.perf_counter(), processor()
        units += work()
        busy += processor() - used
        wall += time.perf_counter() - started
    return Timed(units, wall, busy)


def each(action: Callable[[], object], units: int = 1) -> Work:
    """Return work that calls `action`, which counts as `units` units."""

    def work() -> int:
        action()
        return units

    return work


def rate(work: Work, before: Before = lambda: None, processor: Clock = time.process_time) -> Trial:
    """Return a trial: units per second."""
    return lambda seconds: timed(work, seconds, before, processor).rate


def microseconds(work: Work, before: Before = lambda: None, processor: Clock = time.process_time) -> Trial:
    """Return a trial that runs for some seconds and gives the processor time of one unit of work [us].

    Args:
        work: Work to be repeated; it returns the number of units done.
        before: Called before the measured part.
        processor: Returns the processor time used so far [s].
    """
    return lambda seconds: 1e6 * timed(work, seconds, before, processor).cost


@contextlib.contextmanager
def confined(cores: int | None) -> Iterator[None]:
    """Keep threads and processes that start inside on `cores` cores, as some libraries start more threads than requested.

    Without effect if `cores` is None, if the system does not offer it (macOS) or if there are no more cores.
    """
    if cores is None or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:cores])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def take_turns(contestants: Mapping[str, Trial], effort: Effort) -> dict[str, list[float]]:
    """Return the figures of each contestant. The order is reversed after every round; a short round before is not counted."""
    figures: dict[str, list[float]] = {name: [] for name in contestants}
    for trial in contestants.values():  # caches, lazy imports and compilers are warmed up
        trial(min(effort.seconds, 0.2))
    order = list(contestants)
    for _ in range(effort.repeats):
        for name in order:
            figures[name].append(contestants[name](effort.seconds))
        order.reverse()
    return figures


def compare_in_turns(contestants: Mapping[str, Trial], unit: str, effort: Effort) -> Figures:
    """Measure all contestants in turns, and compare "ours" with the others.

    Args:
        contestants: Name -> trial; one of the names is "ours". A `Bound` among them is a limit and no competitor.
        unit: Unit of the figures, which tells whether more or less is better.
        effort: How long and how often trials are run.
    """
    figures = take_turns(contestants, effort)
    ours = figures.pop("ours")
    medians = {name: statistics.median(values) for name, values in figures.items()}
    ratios = {name: times_better(unit, ours, values) for name, values in figures.items()}
    bounds = [name for name in figures if isinstance(contestants[name], Bound)]
    return Figures(
        statistics.median(ours),
        peers={name: value for name, value in medians.items() if name not in bounds},
        limit=medians[bounds[0]] if bounds else None,
        ratio=min((value for name, value in ratios.items() if name not in bounds), default=None),
        spread=(min(ours), max(ours)),
        ratios=ratios,
    )


def times_better(unit: str, ours: Sequence[float], peer: Sequence[float]) -> float:
    """Return the median over the rounds of how many times better ours was in the same round."""
    rounds = zip(ours, peer, strict=True)
    return statistics.median(theirs / mine if unit in SMALLER_IS_BETTER else mine / theirs for mine, theirs in rounds)


def peak_memory() -> float:
    """Return the most memory that one process held at once, this one or a contestant's that has ended [MB]."""
    processes = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    kilobytes = max(resource.getrusage(who).ru_maxrss for who in processes) / (1024 if sys.platform == "darwin" else 1)
    return kilobytes / 1000


PEAK_MEMORY = Case("peak memory of the largest process, peers included", "MB", lambda *_: Figures(peak_memory()))


def _round(value: Any) -> Any:
    """Return figures to four significant digits; more would be noise."""
    if isinstance(value, Mapping):
        return {name: _round(each) for name, each in value.items()}
    if isinstance(value, tuple):
        return [_round(each) for each in value]
    return float(f"{value:.4g}") if value and math.isfinite(value) else value
