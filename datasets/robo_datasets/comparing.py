"""Have pairs of segments compared, each answer durable before the next question; made to be stopped and to go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import groupby, islice
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from robo_datasets.catalogue import Entry
from robo_datasets.dataset import Dataset
from robo_datasets.preferences import PreferenceSet
from robo_rl.errors import EpisodeCorrupt, InvalidSetting, RoboRLError
from robo_rl.rewards.preferences.raters import Rater, Segment
from robo_rl.types import Episode, Preference

HELD = 256
"""Episodes that are kept in memory while pairs are compared."""


class Question(NamedTuple):
    """Two segments of equal length; where each begins."""

    first: tuple[Entry, int]
    second: tuple[Entry, int]


Watch = Callable[[Sequence[Question]], Iterable[Question]]
"""Passes questions on one by one, and may show how far that got."""


def questions(entries: Sequence[Entry], pairs: int, length: int, seed: int) -> list[Question]:
    """Returns pairs of different segments drawn uniformly over all steps at which one of `length` steps begins.

    The first n of more pairs are the same. Raises InvalidSetting if episodes are too short for two segments.
    """
    places = [(entry, start) for entry in entries for start in range(entry.steps - length + 1)]
    if len(places) < 2:
        raise InvalidSetting(
            "There are not two segments to compare.",
            got=f"{len(places)} of {length} steps",
            fix="shorter segments, or more data",
        )
    generator = np.random.default_rng(seed)
    drawn = []
    for _ in range(pairs):
        first, other = generator.integers(len(places)), generator.integers(len(places) - 1)
        drawn.append(Question(places[first], places[other + (other >= first)]))
    return drawn


def compare(dataset: Dataset, rater: Rater, asked: Sequence[Question], length: int, name: str, watch: Watch = iter) -> int:
    """Asks a rater what the set `name` has no answer to yet, and returns how many questions were answered.

    One that a rater could not be reached for stays open. Raises InvalidSetting if the set holds segments of another length,
    EpisodeCorrupt for an answer to what is gone or has changed since the rater saw it.
    """
    preferences, rater_name, answered = PreferenceSet(dataset, name), ":".join(rater.identity), 0
    lengths = {stop - start for each in preferences for _, start, stop in (each.first, each.second)}
    if lengths - {length}:
        raise InvalidSetting(
            f"The set {name!r} compares segments of another length.",
            got=f"{length} steps",
            allowed=f"{', '.join(map(str, sorted(lengths)))} steps",
            fix="another --name: a reward is fitted to segments of one length",
        )
    there = {(each.first, each.second) for each in preferences if each.rater == rater_name}
    pending = [question for question in dict.fromkeys(asked) if _ends(question, length) not in there]

    seen: dict[Entry, _Stamp] = {}

    @lru_cache(HELD)
    def read(entry: Entry) -> Episode:
        seen[entry] = _stamp(dataset, entry)
        return dataset.read(entry)

    watched = iter(watch(pending))
    while group := [*islice(watched, getattr(rater, "together", 1))]:
        pairs = [tuple(Segment(read(entry), start, start + length) for entry, start in question) for question in group]
        answers = rater.compare_all(pairs) if hasattr(rater, "compare_all") else [rater.compare(*pair) for pair in pairs]
        found = [(question, answer) for question, answer in zip(group, answers, strict=True) if answer is not None]
        for entry in {entry for question, _ in found for entry, _ in question}:
            _require_as_seen(dataset, entry, seen[entry])
        preferences.add([Preference(*_ends(question, length), answer, rater_name, rater.kind) for question, answer in found])
        answered += len(found)
    return answered


def agreement(dataset: Dataset, preferences: Iterable[Preference]) -> tuple[int, int]:
    """Returns how many decided comparisons agree with the recorded rewards, and of how many that tell two segments apart."""
    decided = [each for each in preferences if each.label in (0, 1)]
    places = sorted({place for each in decided for place in (each.first, each.second)})
    wanted = {identity: [*group] for identity, group in groupby(places, key=itemgetter(0))}
    sums: dict[tuple[str, int, int], float] = {}
    for entry in dataset.entries():
        if entry.identity in wanted:
            rewards = dataset.read(entry).rewards.astype(np.float64)
            sums |= {place: float(rewards[place[1] : place[2]].sum()) for place in wanted[entry.identity]}
    differences = [(sums.get(each.second, np.nan) - sums.get(each.first, np.nan), each.label) for each in decided]
    told = [
        (difference > 0) == (label == 1) for difference, label in differences if np.isfinite(difference) and difference != 0
    ]
    return sum(told), len(told)


_Stamp = tuple[int, int, int] | None
"""Of a file: what no change of its content leaves as it was; None if it is gone"""


def _stamp(dataset: Dataset, entry: Entry) -> _Stamp:
    try:
        found = (dataset.path / "episodes" / entry.file).stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _require_as_seen(dataset: Dataset, entry: Entry, seen: _Stamp) -> None:
    if seen is not None and _stamp(dataset, entry) == seen:
        return
    try:
        dataset.read(entry)  # its name says what its content must be
    except (RoboRLError, OSError) as error:
        raise EpisodeCorrupt(
            "The answer is about a clip that is gone, or has changed, since it was shown; it is not kept.",
            got=entry.file,
            fix=f"robo-rl data repair {dataset.path}; then the same command goes on with what is there",
        ) from error


def _ends(question: Question, length: int) -> tuple[tuple[str, int, int], tuple[str, int, int]]:
    (first, start), (second, other) = question
    return (first.identity, start, start + length), (second.identity, other, other + length)
