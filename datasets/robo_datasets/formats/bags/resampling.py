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
    """(N,) [ns], rising"""
    limit: float
    """[s] largest age of a value"""
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
    """Messages that make up an episode of T steps."""

    ticks: Times
    """(T+1,) [ns]"""
    indices: Mapping[str, Times]
    """name of a signal -> (T+1,) of observations, (T,) of actions"""
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
    period = SECOND / rate
    # an action needs to come before its step ends only: it answers the observation at the begin
    begin = max(int(times[0]) for key, times in inside.items() if not signals[key].is_action)
    wait = max([0, *(int(times[0]) - begin for key, times in inside.items() if signals[key].is_action)])
    begin += round(np.ceil((wait if not at_end else max(wait - period + 1, 0)) / period) * period)
    end = min(last, max(int(times[-1]) for times in inside.values()))
    ticks = begin + np.round(np.arange(int(max(end - begin, 0) / period + 1e-6) + 1) * period).astype(np.int64)
    indices = {key: _indices(signal, ticks, at_end) for key, signal in signals.items()}
    remarks = []
    fresh = {key: signals[key].fresh(found, _wanted(signals[key], ticks, at_end)) for key, found in indices.items()}
    for key in fresh:
        if signals[key].is_action:  # the last tick has no action
            fresh[key] = np.append(fresh[key], True)
    is_whole = np.logical_and.reduce([*fresh.values()])
    kept = len(ticks) if is_whole.all() else int(np.argmin(is_whole))
    if kept < len(ticks):
        key = min((key for key in fresh if not fresh[key][kept]), key=lambda key: signals[key].limit)
        signal, since = signals[key], ticks[kept] - begin
        later = signal.times[signal.times > ticks[kept]]
        is_end = not len(later) and (end - ticks[kept]) / SECOND <= signal.limit  # topics never end at the same moment
        until = f"for {(later[0] - ticks[kept]) / SECOND + signal.limit:.2f} s" if len(later) else "until the end"
        words = f"{signal.topic} is silent {until}, after {since / SECOND:.2f} s"
        if not cuts and not is_end:
            raise DatasetError(
                f"{name} has a gap.",
                got=words,
                allowed=f"a value every {signal.limit:g} s",
                fix="a larger most_gap for this topic (.inf if it comes only when it changes); gaps: cut ends the episode there",
            )
        action = [key for key in fresh if signals[key].is_action and not fresh[key][kept]]
        ticks = ticks[: kept + 1 if action and not _observation_gap(fresh, signals, kept) else kept]
        if not is_end:
            remarks.append(f"cut where a topic is silent for longer than {signal.limit:g} s: {signal.topic}")
    if len(ticks) < 2:
        what = f"{name} has no step in which every topic has a value."
        fix = "look at the topics and their times: robo-rl data convert BAG without --mapping lists them"
        raise DatasetError(what, got=f"{(end - begin) / SECOND:.3f} s", fix=fix)
    count = {key: len(ticks) - signals[key].is_action for key in signals}
    return Steps(ticks, {key: found[: count[key]] for key, found in indices.items()}, tuple(remarks))


def _wanted(signal: Signal, ticks: Times, at_end: bool) -> Times:
    """Return the times at which a signal is read: of an action T, of anything else T+1."""
    if not signal.is_action:
        return ticks
    return ticks[1:] if at_end else ticks[:-1]


def _indices(signal: Signal, ticks: Times, at_end: bool) -> Times:
    return signal.indices(_wanted(signal, ticks, at_end), is_before=signal.is_action and at_end)


def _observation_gap(fresh: Mapping[str, npt.NDArray[np.bool_]], signals: Mapping[str, Signal], at: int) -> bool:
    return any(not fresh[key][at] for key in fresh if not signals[key].is_action)


def used(count: int, indices: Sequence[Array]) -> int:
    """Return how many of `count` messages are used by any of the index arrays."""
    return len(np.unique(np.concatenate([np.zeros(0, np.int64), *indices]))) if count else 0
