"""Encodings of a subgoal in the student's observation `subgoal`.

Without a subgoal it is all zeros: in evaluation, and in training if none is left.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_papers.words_as_beacons.level import COLOURS, DIRECTIONS, DOOR_STATES, KINDS, Subgoal

WORDS = ("go", "to", "pick", "up", "open", "free", "cell", *(word for word in DOOR_STATES if word != "open"), *COLOURS, *KINDS)


Floats = npt.NDArray[np.float32]
RANGE = 7.0
"""[cells] divisor of distances: the width of MiniGrid's view."""
AXES = np.array([[[1, 0], [0, 1]], [[0, 1], [-1, 0]], [[-1, 0], [0, -1]], [[0, -1], [1, 0]]])
"""(direction, 2, 2) unit vectors ahead and to the right, looking right, down, left or up"""
assert DIRECTIONS == ("right", "down", "left", "up")


def count_words(sentence: str) -> Floats:
    """Return the counts of known WORDS in a sentence (W,), scaled to norm 1.

    Differs from the paper's sentence transformer (384 numbers), whose weights would have to be downloaded.
    """
    words = sentence.split()
    counts = np.array([words.count(word) for word in WORDS], np.float32)
    length = float(np.linalg.norm(counts))
    return counts / np.float32(length) if length > 0 else counts


class SubgoalForm(ABC):
    """Base class of encodings of a subgoal as numbers that the student observes."""

    size: int
    """Number of elements of the observation."""

    @abstractmethod
    def features(self, subgoal: Subgoal) -> Floats:
        """Return features (F,) that do not depend on the student's position."""

    def encode(self, features: Floats, offsets: npt.NDArray[np.int64], directions: npt.NDArray[np.int64]) -> Floats:
        """Return the observations (N, size) of N students; by default the features.

        Args:
            features: (N, F) of their subgoals.
            offsets: (N, 2) (dx, dy) from the students to their subgoals [cells].
            directions: (N,) in which the students look.
        """
        del offsets, directions
        return features


class Position(SubgoalForm):
    """Encoding of a subgoal by its place: 1, then the distances ahead and to the right [RANGE cells].

    Differs from the paper's (dx, dy): in the student's frame, like its view, and with a leading 1 that distinguishes a subgoal
    at distance 0 from none.
    """

    size = 3

    @override
    def features(self, subgoal: Subgoal) -> Floats:
        del subgoal
        return np.zeros(0, np.float32)

    @override
    def encode(self, features: Floats, offsets: npt.NDArray[np.int64], directions: npt.NDArray[np.int64]) -> Floats:
        del features
        encoded = np.ones((len(offsets), 3), np.float32)
        encoded[:, 1:] = np.einsum("nij,nj->ni", AXES[directions], offsets) / RANGE
        return encoded


class Object(SubgoalForm):
    """Encoding of a subgoal by its object: kind, colour and state, one-hot.

    Differs from the paper, which has three integers; their order means nothing.
    """

    size = 1 + len(KINDS) + len(COLOURS) + len(DOOR_STATES)

    @override
    def features(self, subgoal: Subgoal) -> Floats:
        """Return the features (16,): 1 for a free cell, then kind, colour and state."""
        parts = [not subgoal.kind, *(subgoal.kind == kind for kind in KINDS)]
        parts += [subgoal.colour == colour for colour in COLOURS]
        parts += [subgoal.state == state for state in DOOR_STATES]
        return np.array(parts, np.float32)


class Language(SubgoalForm):
    """Encoding of a subgoal by its sentence; each sentence is embedded once."""

    def __init__(self, embed: Callable[[str], Floats] = count_words, size: int = len(WORDS)) -> None:
        """embed: deterministic function from a sentence to (size,), such as a sentence transformer."""
        self._embed, self.size = cache(embed), size

    @override
    def features(self, subgoal: Subgoal) -> Floats:
        return self._embed(subgoal.words)


FORMS: dict[str, type[SubgoalForm]] = {"position": Position, "object": Object, "language": Language}
