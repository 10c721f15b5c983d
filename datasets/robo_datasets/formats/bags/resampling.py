"""Values at the steps of an episode: the latest one at or before each step, and none that is too old."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from robo_datasets.formats.recording import Array
from robo_rl.errors import DatasetError

Times = npt.NDArray[np.int64]
SECOND = 1_000_000_000


@dataclass(frozen=True)
class Signal:
    """Messages of one topic in the order of their times."""

    topic: str
    times: Times
    """Times [ns] of the signal's messages, (N,), ascending."""
    limit: float
    """Largest age [s] of a value; a longer silence of its topic is a gap."""
    is_action: bool = False
    """True for a command, which counts at the end of a step"""

    def indices(self, ticks: Times, *, is_before: bool) -> Times:
        """Return the index of the latest message for each tick; -1 if there is none.

        Args:
            ticks: (K,) [ns].
            is_before: Whether a message at the very time of a tick is too late for it.
        """
        found: Times = np.searchsorted(self.times, ticks, "left" if is_before else "right").astype(np.int64) - 1
        return found

    def fresh(self, indices: Times, ticks: Times) -> npt.NDArray[np.bool_]:
        """Return (K,) whether there is a message for each tick, and it is not too old."""
        ages = (ticks - self.times[np.maximum(indices, 0)]) / SECOND
        found: npt.NDArray[np.bool_] = (indices >= 0) & (ages <= self.limit + 1e-9)
        return found


@dataclass(frozen=True)
class Steps:
    """Indices of the messages that make up an episode of T steps at a fixed rate."""

    ticks: Times
    """(T+1,) times of the observations [ns]"""
    indices: Mapping[str, Times]
    """Index of the message that each step uses.

    Name of a signal -> (T + 1,) for an observation, (T,) for an action; T is the number of steps.
    """
    remarks: tuple[str, ...] = ()


def in_order(topic: str, times: Sequence[int], limit: float, clock: str) -> tuple[Times, int]:
    """Return the indices of messages whose times rise, and the number of the others.

    Args:
        topic: Name in errors.
        times: (N,) [ns] in the order of the recorder.
        limit: [s] by which a clock may go back; such messages are left out.
        clock: Where the times come from, for errors.

    Raises:
        DatasetError: The clock was set back by more.
    """
    found = np.asarray(times, np.int64)
    newest = np.maximum.accumulate(found) if len(found) else found
    behind = (newest - found) / SECOND
    if len(found) and behind.max() > limit:
        at = int(np.argmax(behind > limit))
        other = "log" if clock == "header" else "header"
        raise DatasetError(
            f"The clock of {topic} runs backward.",
            got=f"{behind[at]:.3f} s at message {at} of {len(found)}, by its {clock} time",
            allowed=f"{limit:g} s",
            fix=f"clock: {other} in the mapping, if that one was not set; or split the bag there",
        )
    rising = np.flatnonzero(np.concatenate([[True], found[1:] > newest[:-1]])) if len(found) else np.zeros(0, np.int64)
    return rising.astype(np.int64), len(found) - len(rising)


def steps_between(
    signals: Mapping[str, Signal], first: int, last: int, rate: float, *, cuts: bool, at_end: bool = True, name: str = ""
) -> Steps:
    """Return the steps of an episode: from when every signal has a value, to when the last one ends.

    Args:
        signals: Name -> signal.
        first: [ns] begin of the episode.
        last: [ns] its end.
        rate: [1/s] of the steps.
        cuts: Whether a gap ends the episode; otherwise it is an error.
        at_end: Whether actions are those at the end of a step, or at its begin.
        name: Of the episode, for errors.

    Raises:
        DatasetError: A signal has no message in the episode, or a gap; or no step is left.
    """
    inside = {key: signal.times[(signal.times >= first) & (signal.times <= last)] for key, signal in signals.items()}
    if empty := [signals[key].topic for key, times in inside.items() if not len(times)]:
        got = f"{', '.join(sorted(set(empty)))}: no message in {(last - first) / SECOND:.2f} s"
        raise DatasetError(f"{name} lacks messages.", got=got, fix="leave the topic out of the mapping, or this bag")
    ticks = _ticks(signals, inside, SECOND / rate, at_end)
    indices = {key: _indices(signal, ticks, at_end) for key, signal in signals.items()}
    fresh = {key: signal.fresh(indices[key], _wanted(signal, ticks, at_end)) for key, signal in signals.items()}
    seen = np.logical_and.reduce([values for key, values in fresh.items() if not signals[key].is_action])
    answered = np.logical_and.reduce(
        [np.ones(len(ticks) - 1, bool), *(fresh[key] for key in signals if signals[key].is_action)]
    )
    steps = min(_leading(seen) - 1, _leading(answered))
    remarks = []
    if steps < len(ticks) - 1:
        is_observed = steps + 1 == _leading(seen)
        key = next(k for k, values in fresh.items() if signals[k].is_action != is_observed and not values[steps + is_observed])
        if gap := _gap(signals[key], ticks, steps + 1):
            if not cuts:
                fix = (
                    "a larger most_gap for this topic, .inf if it comes only when it changes; gaps: cut ends the episode there"
                )
                raise DatasetError(f"{name} has a gap.", got=gap, allowed=f"a value every {signals[key].limit:g} s", fix=fix)
            remarks.append(f"cut where a topic is silent for longer than {signals[key].limit:g} s: {signals[key].topic}")
    if steps < 1:
        fix = "look at the topics and their times: robo-rl data convert BAG without --mapping lists them"
        raise DatasetError(f"{name} has no step in which every topic has a value.", fix=fix)
    kept = {key: found[: steps + (not signals[key].is_action)] for key, found in indices.items()}
    return Steps(ticks[: steps + 1], kept, tuple(remarks))


def _ticks(signals: Mapping[str, Signal], inside: Mapping[str, Times], period: float, at_end: bool) -> Times:
    """Return the times [ns] of the steps, at least one.

    They begin with the newest of the first observations, or so many periods later that the first step has an action.
    inside: signal -> times of its messages in the episode.
    """
    begin = max(int(times[0]) for key, times in inside.items() if not signals[key].is_action)
    wait = max([0, *(int(times[0]) - begin for key, times in inside.items() if signals[key].is_action)])
    begin += round(np.ceil((max(wait - period + 1, 0) if at_end else wait) / period) * period)
    end = max(int(times[-1]) for times in inside.values())
    count = int(max(end - begin, 0) / period + 1e-6) + 1
    found: Times = begin + np.round(np.arange(count) * period).astype(np.int64)
    return found


def _gap(signal: Signal, ticks: Times, at: int) -> str:
    """Return the silence of a signal at a tick in words; "" if it only ends a little before the others, as topics do."""
    since = (ticks[at] - ticks[0]) / SECOND
    later = signal.times[signal.times > ticks[at]]
    if len(later):
        return f"{signal.topic} is silent for {(later[0] - ticks[at]) / SECOND + signal.limit:.2f} s, after {since:.2f} s"
    is_end = (ticks[-1] - ticks[at]) / SECOND <= signal.limit
    return "" if is_end else f"{signal.topic} is silent until the end, after {since:.2f} s"


def _leading(values: npt.NDArray[np.bool_]) -> int:
    """Return the number of true values before the first false one."""
    return len(values) if values.all() else int(np.argmin(values))


def _wanted(signal: Signal, ticks: Times, at_end: bool) -> Times:
    """Return the times [ns] at which a signal is read: T for an action, T+1 for anything else."""
    if not signal.is_action:
        return ticks
    return ticks[1:] if at_end else ticks[:-1]


def _indices(signal: Signal, ticks: Times, at_end: bool) -> Times:
    return signal.indices(_wanted(signal, ticks, at_end), is_before=signal.is_action and at_end)


def used(count: int, indices: Sequence[Array]) -> int:
    """Return how many of `count` messages are used by any of the index arrays."""
    return len(np.unique(np.concatenate([np.zeros(0, np.int64), *indices]))) if count else 0
