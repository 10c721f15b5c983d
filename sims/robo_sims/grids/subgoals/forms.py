"""Forms of a subgoal in the student's observation: numbers under one name, `subgoal`.

Without a subgoal all of them are 0, whatever the form: in evaluation, and in training if none is left.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt

from robo_sims.grids.subgoals.level import COLOURS, DIRECTIONS, DOOR_STATES, KINDS, Subgoal

WORDS = ("go", "to", "pick", "up", "open", "free", "cell", *(word for word in DOOR_STATES if word != "open"), *COLOURS, *KINDS)


Floats = npt.NDArray[np.float32]
RANGE = 7.0
"""[cells] Distances are given in its multiples: the width of MiniGrid's view."""
AXES = np.array([[[1, 0], [0, 1]], [[0, 1], [-1, 0]], [[-1, 0], [0, -1]], [[0, -1], [1, 0]]])
"""(direction, 2, 2) what lies ahead, and to the right, of who looks right, down, left or up"""
assert DIRECTIONS == ("right", "down", "left", "up")


def count_words(sentence: str) -> Floats:
    """Returns counts of the known WORDS of a sentence (W,), scaled to length 1: no model, no meaning beyond the words.

    Differs from the paper's 384 numbers of a sentence transformer, whose weights would have to be downloaded.
    """
    words = sentence.split()
    counts = np.array([words.count(word) for word in WORDS], np.float32)
    length = float(np.linalg.norm(counts))
    return counts / np.float32(length) if length > 0 else counts


class SubgoalForm(ABC):
    """A way to tell subgoals."""

    size: int
    """Numbers that the student sees."""

    @abstractmethod
    def features(self, subgoal: Subgoal) -> Floats:
        """Returns (F,), what can be said without knowing where the student stands."""

    def tell(self, features: Floats, offsets: npt.NDArray[np.int64], directions: npt.NDArray[np.int64]) -> Floats:
        """Returns (N, size) for features (N, F) and (dx, dy) to the subgoals (N, 2) [cells] of students that look somewhere.

        By default these are the features as they are.
        """
        del offsets, directions
        return features


class Position(SubgoalForm):
    """1, then how far ahead and how far to the right [RANGE cells].

    Differs from the paper's (dx, dy): turned to where the student looks, as its view is, and with a number that tells a subgoal
    right here from none.
    """

    size = 3

    def features(self, subgoal: Subgoal) -> Floats:
        """Returns nothing: all that counts is the place."""
        del subgoal
        return np.zeros(0, np.float32)

    def tell(self, features: Floats, offsets: npt.NDArray[np.int64], directions: npt.NDArray[np.int64]) -> Floats:
        """Returns (N, 3)."""
        del features
        told = np.ones((len(offsets), 3), np.float32)
        told[:, 1:] = np.einsum("nij,nj->ni", AXES[directions], offsets) / RANGE
        return told


class Object(SubgoalForm):
    """One-hot kind, colour and state. Differs from the paper's three numbers, whose order means nothing."""

    size = 1 + len(KINDS) + len(COLOURS) + len(DOOR_STATES)

    def features(self, subgoal: Subgoal) -> Floats:
        """Returns (16,): whether it is a free cell, then kind, colour and state."""
        parts = [not subgoal.kind, *(subgoal.kind == kind for kind in KINDS)]
        parts += [subgoal.colour == colour for colour in COLOURS]
        parts += [subgoal.state == state for state in DOOR_STATES]
        return np.array(parts, np.float32)


class Language(SubgoalForm):
    """A sentence, embedded; every sentence of the small pool once."""

    def __init__(self, embed: Callable[[str], Floats] = count_words, size: int = len(WORDS)) -> None:
        """embed: returns (size,) for a sentence, such as a sentence transformer; the same for the same sentence."""
        self._embed, self.size = cache(embed), size

    def features(self, subgoal: Subgoal) -> Floats:
        """Returns (size,) for its words."""
        return self._embed(subgoal.words)


FORMS: dict[str, type[SubgoalForm]] = {"position": Position, "object": Object, "language": Language}
