"""Sentences as numbers, word by word; a word that was never seen in training has no number."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidSetting, UnknownName

LENGTH = 12
"""Words of the longest sentence."""


@dataclass(frozen=True)
class Vocabulary:
    """The words that the model knows; number 0 is no word."""

    words: tuple[str, ...]

    @classmethod
    def of(cls, sentences: Iterable[str]) -> Vocabulary:
        """Returns the words of sentences in alphabetical order."""
        return cls(tuple(sorted({word for sentence in sentences for word in _split(sentence)})))

    def numbers(self, sentences: Sequence[str]) -> npt.NDArray[np.int64]:
        """Returns (N, LENGTH); raises UnknownName for a word, InvalidSetting for an empty or too long sentence."""
        known = {word: number for number, word in enumerate(self.words, start=1)}
        numbers = np.zeros((len(sentences), LENGTH), np.int64)
        for row, sentence in zip(numbers, sentences, strict=True):
            words = _split(sentence)
            if not 1 <= len(words) <= LENGTH:
                raise InvalidSetting("A sentence has the wrong length.", got=repr(sentence), allowed=f"1 to {LENGTH} words")
            for word in words:
                if word not in known:
                    fix = "say it in words of the captions (--settings instruction=WORDS); the embedded model knows no others"
                    raise UnknownName(f"word in {sentence!r}:", word, known, fix=fix)
            row[: len(words)] = [known[word] for word in words]
        return numbers


def _split(sentence: str) -> list[str]:
    return sentence.lower().replace(",", " ").rstrip(". ").split()
