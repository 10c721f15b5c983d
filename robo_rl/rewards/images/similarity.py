"""Rewards that compare pictures with sentences in the space of an image-text model."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidSetting
from robo_rl.rewards.identity import hash_of
from robo_rl.rewards.images.image_text import ImageTextModel, image_text_model
from robo_rl.rewards.images.picture_reward import PictureReward, Pictures
from robo_rl.settings import plain
from robo_rl.types import Labels

Direction = npt.NDArray[np.float64]
"""Unit vector (D,) in the space of the image-text model, or one unit vector for each picture (N, D)."""
SHORTEST = 1e-4
"""Length below which a difference between sentences is a rounding error without a direction."""


@dataclass(frozen=True, kw_only=True)
class SimilarityReward(PictureReward):
    """Base class of rewards that compare the embedding of a picture with those of sentences, by an image-text model."""

    method: ClassVar[str]
    """Name of the method, a part of the reward's identity."""
    model: str
    """Name of the image-text model: embedded, transformers, open-clip, or one of yours."""
    model_settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the image-text model, such as {model: FOLDER}."""

    @property
    @abstractmethod
    def words(self) -> Mapping[str, Sequence[str]]:
        """Role, such as goal or baseline -> sentences that the reward uses in this role."""

    @abstractmethod
    def values(self, pictures: Direction, instruction: str | None) -> npt.NDArray[np.float64]:
        """Return a score (N,) for each picture, higher for one that fits the sentences better.

        Args:
            pictures: Embedded pictures (N, D), unit vectors.
            instruction: Instruction of the episode; None if it has none. A method may take its sentences from the settings.

        Raises:
            InvalidSetting: The method lacks a sentence or a setting.
        """

    @cached_property
    def identity(self) -> tuple[str, str]:
        """Name of method and model, and a hash of the model's weights and of the other settings."""
        model, weights = self.embedder.identity
        own = {name: plain(value) for name, value in self.settings().items() if name != "model_settings"}
        return f"{self.method} with {model}", hash_of(json.dumps(own, sort_keys=True).encode(), weights.encode())

    @property
    def prompt_hash(self) -> str:
        """Hash of the words that the reward uses, so that labels by other words are not mixed with these."""
        return hash_of(json.dumps([self.instruction, plain(self.words)], sort_keys=True).encode())

    def score(self, pictures: Pictures, firsts: Pictures, instruction: str | None) -> Labels:
        """Return one score for each of N pictures; a score is missing if the model's numbers are not finite."""
        embedded, valid = self.embedded(pictures)
        values = self.values(embedded, instruction)
        return Labels.finite(values, valid)

    def embedded(self, pictures: Pictures) -> tuple[Direction, npt.NDArray[np.bool_]]:
        """Return unit vectors (N, D) of pictures, and their validity (N,)."""
        found = self.embedder.embed_pictures(pictures).astype(np.float64)
        valid = np.asarray(np.isfinite(found).all(axis=1) & found.any(axis=1))
        found[~valid] = 1
        return found / np.linalg.norm(found, axis=1, keepdims=True), valid

    @cached_property
    def embedder(self) -> ImageTextModel:
        """The image-text model, which loads its weights at first use."""
        return image_text_model(self.model, self.model_settings)

    def direction(self, words: Sequence[str]) -> Direction:
        """Return the mean of the sentences' embeddings as a unit vector (D,)."""
        key = tuple(words)
        if key not in self._directions:
            self._directions[key] = unit(self.embedder.embed_texts(words).astype(np.float64).mean(axis=0), words)
        return self._directions[key]

    @cached_property
    def _directions(self) -> dict[tuple[str, ...], Direction]:
        return {}


def unit(vector: Direction, words: Sequence[str]) -> Direction:
    """Scale a vector to length 1; raises InvalidSetting if its length is about zero.

    words: sentences that the vector stands for, for the message.
    """
    length = np.linalg.norm(vector)
    if not length >= SHORTEST:  # NaN too
        raise InvalidSetting(
            "The image-text model finds nothing in sentences.", got=f"{list(words)}: length {length:.1e}", allowed=f"{SHORTEST}"
        )
    return vector / length
