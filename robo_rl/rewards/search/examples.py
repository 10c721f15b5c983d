"""Programs for other tasks that are shown to a model: the nearest ones by the words of their tasks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from robo_rl.rewards.search.prompts import Example

WORD = re.compile(r"[a-z]+")


def nearest(sentence: str, known: Sequence[Example], count: int = 3) -> list[Example]:
    """Returns the examples whose tasks are most like a sentence, the most alike last, where a model heeds it most.

    By the cosine of word counts, a word weighing less the more tasks have it. Text2Reward compares embeddings of a language
    model; a few dozen sentences do not need one. A task of the very same words is left out: it would give away its program.
    """
    others = [example for example in known if _words(example.sentence) != _words(sentence)]
    if not others:
        return []
    vectors = _vectors([sentence, *(example.sentence for example in others)])
    likeness = vectors[1:] @ vectors[0]
    order = np.argsort(-likeness, kind="stable")[:count]
    return [others[place] for place in order[::-1]]


def _vectors(sentences: Sequence[str]) -> npt.NDArray[np.float64]:
    """Returns a row of length 1 for each sentence."""
    counts = [Counter(_words(sentence)) for sentence in sentences]
    spread = Counter(chain.from_iterable(counts))
    weights = {word: np.log((1 + len(counts)) / (1 + number)) + 1 for word, number in spread.items()}
    rows = np.array([[count[word] * weight for word, weight in weights.items()] for count in counts], np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1.0)


def _words(sentence: str) -> list[str]:
    return WORD.findall(sentence.lower())
