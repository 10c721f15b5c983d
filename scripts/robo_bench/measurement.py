"""Measure contestants side by side, in turns on the same machine, so that its other load hits all of them alike."""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from robo_rl.errors import require_allowed

Trial = Callable[[float], float]
"""Works for about so many seconds and returns one figure, such as steps per second."""

SMALLER_IS_BETTER = ("s", "ms", "us", "MB")


@dataclass(frozen=True)
class Effort:
    """How long and how often each contestant is measured."""

    seconds: float = 2.0
    """[s] of one trial; a trial that cannot be cut, such as writing a checkpoint, takes what it takes."""
    repeats: int = 5
    """Trials of each contestant; the median counts."""
    threads: int | None = None
    """Threads, and cores, of each contestant; None leaves each with its own default and all cores."""
    processor_time: bool = False
    """Count what a contestant's process uses of processors instead of the clock, if it has a process of its own."""

    def __post_init__(self) -> None:
        allowed = {
            "seconds": (self.seconds > 0, "above 0 [s]"),
            "repeats": (self.repeats >= 1, "1 or more"),
            "threads": (self.threads is None or self.threads >= 1, "1 or more"),
        }
        require_allowed(self, allowed)

    @property
    def cores(self) -> int:
        """Threads asked for, or the cores that this process may use."""
        affinity = getattr(os, "sched_getaffinity", None)
        return self.threads or (len(affinity(0)) if affinity else os.cpu_count() or 1)


@dataclass(frozen=True)
class Measurement:
    """One row of a benchmark table."""

    bench: str
    case: str
    unit: str
    ours: float
    """Median over the repeats, as are the figures below."""
    peers: Mapping[str, float] = field(default_factory=dict)
    """Name of a peer -> its figure in the same unit, for the peers that are installed."""
    limit: float | None = None
    """What nothing can beat here, such as the physics alone; None where no such figure was measured."""
    ratio: float | None = None
    """How many times better than the best peer: above 1 is better, whatever the unit. None without peers."""
    spread: tuple[float, float] | None = None
    """Smallest and largest of our trials."""
    ratios: Mapping[str, float] = field(default_factory=dict)
    """The same by each contestant, bounds included: the median over the rounds, not the ratio of the medians."""

    def to_json(self) -> str:
        """Returns one line of JSON with the names of the fields as keys."""
        return json.dumps(
            {
                "bench": self.bench,
                "case": self.case,
                "unit": self.unit,
                "ours": _rounded(self.ours),
                "peers": {name: _rounded(value) for name, value in self.peers.items()},
                "limit": None if self.limit is None else _rounded(self.limit),
                "ratio": None if self.ratio is None else _rounded(self.ratio),
                "spread": None if self.spread is None else [_rounded(value) for value in self.spread],
                "ratios": {name: _rounded(value) for name, value in self.ratios.items()},
            }
        )


Cases = dict[str, Callable[[], Measurement]]
"""Name of a case -> function that measures it; nothing is built before it is called."""


@contextlib.contextmanager
def confined(cores: int | None) -> Iterator[None]:
    """Keep threads and processes that start inside on `cores` cores, as some libraries start more threads than asked for.

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
    """Returns the figures of each contestant. The order is reversed after every round; a short round before is not counted."""
    figures: dict[str, list[float]] = {name: [] for name in contestants}
    for trial in contestants.values():  # caches, lazy imports and compilers are warmed up
        trial(min(effort.seconds, 0.2))
    order = list(contestants)
    for _ in range(effort.repeats):
        for name in order:
            figures[name].append(contestants[name](effort.seconds))
        order.reverse()
    return figures


def measurement(
    bench: str, case: str, unit: str, contestants: Mapping[str, Trial], effort: Effort, bounds: Sequence[str] = ()
) -> Measurement:
    """Measures the contestant "ours" beside the others. Those in `bounds` do less and are no peers; the first is the limit."""
    figures = take_turns(contestants, effort)
    ours = figures.pop("ours")
    ratios = {name: times_better(unit, ours, values) for name, values in figures.items()}
    medians = {name: statistics.median(values) for name, values in figures.items()}
    return Measurement(
        bench,
        case,
        unit,
        statistics.median(ours),
        {name: value for name, value in medians.items() if name not in bounds},
        medians[bounds[0]] if bounds else None,
        min((value for name, value in ratios.items() if name not in bounds), default=None),
        (min(ours), max(ours)),
        ratios,
    )


def times_better(unit: str, ours: Sequence[float], peer: Sequence[float]) -> float:
    """Returns the median over the rounds of how many times better ours was in the same round."""
    rounds = zip(ours, peer, strict=True)
    return statistics.median(theirs / mine if unit in SMALLER_IS_BETTER else mine / theirs for mine, theirs in rounds)


def peak_memory(bench: str) -> Measurement:
    """Return the most memory that one process held at once, this one or a contestant's that has ended [MB]."""
    processes = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    kilobytes = max(resource.getrusage(who).ru_maxrss for who in processes) / (1024 if sys.platform == "darwin" else 1)
    return Measurement(bench, "peak memory of the largest process, peers included", "MB", kilobytes / 1000)


def _rounded(value: float) -> float:
    """Returns a figure to four significant digits; more would be noise."""
    return value if value == 0 or not math.isfinite(value) else float(f"{value:.4g}")
