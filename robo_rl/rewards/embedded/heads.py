"""Sentences as numbers, and the networks (heads) that relate them to pictures described by the encoder.

A word outside the training data has no number. Shapes: B pictures, S slots, F = 4 S numbers that describe a picture, L words of
a sentence, E size of the common space.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.rewards.embedded.encoder import perceptron

LENGTH = 12
"""Largest number L of words of a sentence."""


@dataclass(frozen=True)
class Vocabulary:
    """Numbering of the known words, from 1; the number 0 stands for no word."""

    words: tuple[str, ...]

    @classmethod
    def of(cls, sentences: Iterable[str]) -> Vocabulary:
        """Return the vocabulary of all words in the sentences."""
        return cls(tuple(sorted({word for sentence in sentences for word in _split(sentence)})))

    def numbers(self, sentences: Sequence[str]) -> npt.NDArray[np.int64]:
        """Return the word numbers (N, LENGTH); raises UnknownName for an unknown word, InvalidSetting for a wrong length."""
        known = {word: number for number, word in enumerate(self.words, start=1)}
        numbers = np.zeros((len(sentences), LENGTH), np.int64)
        for row, sentence in zip(numbers, sentences, strict=True):
            words = _split(sentence)
            if not 1 <= len(words) <= LENGTH:
                raise InvalidSetting("A sentence has the wrong length.", got=repr(sentence), allowed=f"1 to {LENGTH} words")
            for word in words:
                if word not in known:
                    fix = "say it in words of the captions (--reward.settings.instruction WORDS); it knows no others"
                    raise UnknownName(f"word in {sentence!r}:", word, known, fix=fix)
            row[: len(words)] = [known[word] for word in words]
        return numbers


def _split(sentence: str) -> list[str]:
    return sentence.lower().replace(",", " ").rstrip(". ").split()


@dataclass(frozen=True)
class ReadByTower:
    """Reader of sentences as vectors of a frozen text encoder, which also reads words that are in no caption."""

    def numbers(self, sentences: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return the vectors (N, 384) of N sentences.

        Raises MissingExtra without the encoder, InvalidSetting for an empty or too long sentence.
        """
        from robo_rl.rewards.images.sentences import minilm  # late: it needs the library transformers

        for sentence in sentences:
            if not sentence.strip():
                raise InvalidSetting("A sentence has the wrong length.", got=repr(sentence), allowed="1 word or more")
        return minilm().encode([" ".join(_split(sentence)) for sentence in sentences])


COMMON = 64
"""E, size of the common space of pictures and sentences."""
TOWER = 384
"""Size of the vector of a sentence from the text encoder."""


class Heads(nn.Module):
    """Networks that relate described pictures (B, F) to sentences: word numbers (B, L) or text encoder vectors (B, TOWER)."""

    def __init__(self, slots: int, words: int | None) -> None:
        """Build the networks; words: size of the vocabulary, None for sentences from a text encoder."""
        super().__init__()
        self.slots = slots
        self.words = None if words is None else nn.Embedding(words + 1, 32)
        self.sentence = perceptron(TOWER if words is None else LENGTH * 32, 128, 128)
        self.text = nn.Linear(128, COMMON)
        self.picture = perceptron(4 * slots + slots**2, 256, COMMON)
        self.asked = nn.Linear(128, 2 * slots)
        self.meant = nn.Linear(128, 32)
        self.relation = perceptron(6 * 4 + 15 + 32, 128, 2)
        self.straight = nn.Linear(15, 2)  # progress mostly falls in proportion to distances
        nn.init.zeros_(self.straight.weight)  # progress begins at one half, not cut off
        nn.init.constant_(self.straight.bias, 0.5)
        self.scale = nn.Parameter(torch.tensor(2.0))

    def embed_pictures(self, described: Tensor) -> Tensor:
        """Return unit vectors (B, E) of described pictures (B, F)."""
        things = described.view(-1, self.slots, 4)
        apart = _lengths(things[:, :, None, 1:] - things[:, None, :, 1:])
        return functional.normalize(self.picture(torch.cat([described, apart.flatten(1)], -1)), dim=-1)

    def embed_texts(self, numbers: Tensor) -> Tensor:
        """Return unit vectors (B, E) of sentences, given as word numbers (B, L) or text encoder vectors (B, TOWER)."""
        return functional.normalize(self.text(self.read(numbers)), dim=-1)

    def read(self, numbers: Tensor) -> Tensor:
        """Return features (B, 128) of sentences, given as word numbers (B, L) or text encoder vectors (B, TOWER)."""
        said: Tensor = self.sentence(numbers if self.words is None else self.words(numbers).flatten(1))
        return said

    def chosen(self, said: Tensor) -> Tensor:
        """Return log odds (B, 2, S): which of the S slots are the two that a sentence names, given its features (B, 128)."""
        odds: Tensor = self.asked(said)
        return odds.view(-1, 2, self.slots)

    def relate(self, firsts: Tensor, now: Tensor, said: Tensor) -> Tensor:
        """Return (B, 2): progress of the instruction, not yet clipped to [0, 1], and log odds of its completion.

        The sentence selects two slots. A network gets these and the first slot, the hand, in the present picture and in the
        first one of the episode, in which nothing hid them; and all distances between these six.

        Args:
            firsts: (B, F) descriptions of the first pictures.
            now: (B, F) descriptions of the present pictures.
            said: (B, 128) features of sentences.
        """
        shares = self.chosen(said).softmax(-1)
        pictures = [part.reshape(-1, self.slots, 4) for part in (now, firsts)]
        things = torch.cat([part for slots in pictures for part in (slots[:, :1], shares @ slots)], 1)  # (B, 6, 4)
        one, other = torch.triu_indices(6, 6, 1)
        apart = _lengths(things[:, one, 1:] - things[:, other, 1:])  # (B, 15)
        related: Tensor = self.relation(torch.cat([things.flatten(1), apart, self.meant(said)], -1)) + self.straight(apart)
        return related


def _lengths(vectors: Tensor) -> Tensor:
    """Return the lengths of vectors (..., 3), with a finite gradient at zero."""
    return (vectors.square().sum(-1) + 1e-4).sqrt()
