"""Have pairs of segments compared, each answer durable before the next question; made to be stopped and to go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from robo_datasets.catalogue import Entry
from robo_datasets.dataset import Dataset
from robo_datasets.preferences import PreferenceSet
from robo_rl.errors import InvalidSetting
from robo_rl.rewards.raters import Rater, Segment
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

    The first n of more pairs are the same. Raises InvalidSetting where episodes are too short for two segments.
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
    """Asks a rater what the set `name` has no answer to yet, and returns how many questions that were."""
    preferences, rater_name = PreferenceSet(dataset, name), ":".join(rater.identity)
    there = {(each.first, each.second) for each in preferences if each.rater == rater_name}
    pending = [question for question in dict.fromkeys(asked) if _ends(question, length) not in there]

    @lru_cache(HELD)
    def read(entry: Entry) -> Episode:
        return dataset.read(entry)

    for question in watch(pending):
        first, second = (Segment(read(entry), start, start + length) for entry, start in question)
        answer = rater.compare(first, second)
        preferences.add([Preference(*_ends(question, length), answer, rater_name, rater.kind)])
    return len(pending)


def _ends(question: Question, length: int) -> tuple[tuple[str, int, int], tuple[str, int, int]]:
    (first, start), (second, other) = question
    return (first.identity, start, start + length), (second.identity, other, other + length)
