"""Sentences as vectors, behind a seam where a sentence transformer fits."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from robo_rl.rewards.subgoals.level import COLOURS, DOOR_STATES, KINDS

WORDS = ("go", "to", "pick", "up", "open", "free", "cell", *(word for word in DOOR_STATES if word != "open"), *COLOURS, *KINDS)


class SentenceEmbedding(Protocol):
    """Turns a sentence into a vector; the same for the same sentence."""

    size: int

    def embed(self, sentence: str) -> npt.NDArray[np.float32]:
        """Returns (size,) float32."""


class BagOfWords:
    """Counts of the words of our sentences, scaled to length 1: no model, no meaning beyond the words.

    Differs from the paper's 384 numbers of a sentence transformer, whose weights would have to be downloaded.
    """

    size = len(WORDS)

    def embed(self, sentence: str) -> npt.NDArray[np.float32]:
        """Returns (size,); words that are not in WORDS are left out."""
        words = sentence.split()
        counts = np.array([words.count(word) for word in WORDS], np.float32)
        length = float(np.linalg.norm(counts))
        return counts / np.float32(length) if length > 0 else counts
