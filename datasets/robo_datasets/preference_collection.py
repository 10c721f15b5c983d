"""Collect preferences of a rater over pairs of segments; each answer is durable before the next question."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import groupby, islice
from operator import itemgetter
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from robo_datasets.catalogue import Entry
from robo_datasets.dataset import Dataset
from robo_datasets.preferences import PreferenceSet
from robo_rl.errors import DatasetNotFound, EpisodeCorrupt, InvalidSetting, SpecMismatch
from robo_rl.rewards.preferences.raters import Rater, Segment
from robo_rl.types import Episode, Preference

HELD = 256
"""Episodes kept in memory."""


class Question(NamedTuple):
    """Episodes and first steps of two segments of equal length."""

    first: tuple[Entry, int]
    second: tuple[Entry, int]


Watch = Callable[[Sequence[Question]], Iterable[Question]]
"""Passes questions on one by one; may show progress."""


def draw_questions(entries: Sequence[Entry], pairs: int, length: int, seed: int) -> list[Question]:
    """Return pairs of different segments of `length` steps, drawn uniformly over all possible first steps.

    A larger `pairs` only appends. Raises InvalidSetting if the episodes are too short for two segments.
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


@runtime_checkable
class Expecting(Protocol):
    """A rater that shows how many comparisons are to come."""

    def expect(self, total: int) -> None:
        """Take the number of comparisons to come."""


def collect_preferences(
    dataset: Dataset, rater: Rater, drawn: Sequence[Question], length: int, name: str, watch: Watch = iter
) -> int:
    """Store a rater's answers to the open questions in the set `name` and return their number.

    A question stays open if the rater is unreachable. Raises InvalidSetting if the set holds segments of another length,
    EpisodeCorrupt if an episode was changed or removed after the rater saw it.
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
    pending = [question for question in dict.fromkeys(drawn) if _ends(question, length) not in there]

    if isinstance(rater, Expecting):
        rater.expect(len(pending))
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
    """Return the number of comparisons that agree with the recorded returns, and of those with different returns."""
    decided = [each for each in preferences if each.label in (0, 1)]
    places = sorted({place for each in decided for place in (each.first, each.second)})
    wanted = {identity: [*group] for identity, group in groupby(places, key=itemgetter(0))}
    sums: dict[tuple[str, int, int], float] = {}
    for entry in dataset.entries():
        if entry.identity in wanted:
            rewards = dataset.read(entry).rewards.astype(np.float64)
            sums |= {place: float(rewards[place[1] : place[2]].sum()) for place in wanted[entry.identity]}
    differences = [(sums.get(each.second, np.nan) - sums.get(each.first, np.nan), each.label) for each in decided]
    agree = [(gap > 0) == (label == 1) for gap, label in differences if np.isfinite(gap) and gap != 0]
    return sum(agree), len(agree)


_Stamp = tuple[int, int, int] | None
"""Inode, size and time of a file, which differ after any change; None if it is gone"""


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
        dataset.read(entry)  # checks the content against the hash in the name
    except (EpisodeCorrupt, DatasetNotFound, SpecMismatch) as error:
        raise EpisodeCorrupt(
            "The answer is about a clip that is gone, or has changed, since it was shown; it is not kept.",
            got=entry.file,
            fix=f"robo-rl data repair {dataset.path}; then the same command goes on with what is there",
        ) from error


def _ends(question: Question, length: int) -> tuple[tuple[str, int, int], tuple[str, int, int]]:
    (first, start), (second, other) = question
    return (first.identity, start, start + length), (second.identity, other, other + length)
