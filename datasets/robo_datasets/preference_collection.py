"""Ask a rater which of two segments is better, for many pairs. Each answer is stored durably before the next question."""

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
"""number of episodes that are kept in memory"""


class Question(NamedTuple):
    """Question about two segments of equal length; each has an episode and the number of its first step, from 0."""

    first: tuple[Entry, int]
    second: tuple[Entry, int]


Watch = Callable[[Sequence[Question]], Iterable[Question]]
"""Function that passes questions on one by one, and may show progress"""


def draw_questions(entries: Sequence[Entry], pairs: int, length: int, seed: int) -> list[Question]:
    """Draw pairs of different segments, uniformly over all segments of the episodes.

    With a larger number of pairs and the same seed, the same pairs come first.

    Args:
        entries: Entries of the episodes.
        pairs: Number of pairs.
        length: Number of steps of a segment.
        seed: Seed of the drawing.

    Raises:
        InvalidSetting: The episodes are too short for two segments.
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
    """Rater that shows how many comparisons are to come."""

    def expect(self, total: int) -> None:
        """Set the number of comparisons that are to come."""


def collect_preferences(
    dataset: Dataset, rater: Rater, drawn: Sequence[Question], length: int, name: str, watch: Watch = iter
) -> int:
    """Ask a rater all questions that it has not answered in a set yet, and store the answers.

    A question to which the rater gives no answer, because it cannot be reached, stays open.

    Args:
        dataset: Dataset of the segments.
        rater: The rater.
        drawn: The questions.
        length: Number of steps of a segment.
        name: Name of the set of preferences.
        watch: Passes the open questions on one by one; may show progress.

    Returns:
        The number of new answers.

    Raises:
        InvalidSetting: The set compares segments of another length.
        EpisodeCorrupt: An episode was changed or removed while the rater compared it; that answer is not stored.
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
    """Compare answers with the sums of the recorded rewards of the segments.

    Ties, skipped questions and segments of equal sums are left out.

    Returns:
        The number of answers that prefer the segment with the larger sum, and the number of compared answers.
    """
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
"""Inode, size and time of a file, which differ after any change; None for a file that is gone"""


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
