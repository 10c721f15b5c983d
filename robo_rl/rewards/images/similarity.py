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
"""(D,), of length 1"""
SHORTEST = 1e-4
"""Length below which a difference of sentences is rounding, and has no direction."""


@dataclass(frozen=True, kw_only=True)
class SimilarityReward(PictureReward):
    """A reward of an image-text model's embeddings of a picture and some sentences."""

    method: ClassVar[str]
    """Name of the method."""
    model: str
    """The image-text model: embedded, transformers, open-clip, or one of yours."""
    model_settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the image-text model, such as {model: FOLDER}."""

    @property
    @abstractmethod
    def words(self) -> Mapping[str, Sequence[str]]:
        """Its sentences by their role."""

    @abstractmethod
    def values(self, pictures: Direction, instruction: str | None) -> npt.NDArray[np.float64]:
        """Return (N,) scores for (N, D) embedded pictures."""

    @cached_property
    def identity(self) -> tuple[str, str]:
        """Method and model, and a hash of the model's weights and of all settings but the model's."""
        model, weights = self.embedder.identity
        own = {name: plain(value) for name, value in self.settings().items() if name != "model_settings"}
        return f"{self.method} with {model}", hash_of(json.dumps(own, sort_keys=True).encode(), weights.encode())

    @property
    def prompt_hash(self) -> str:
        """A hash of its words."""
        return hash_of(json.dumps([self.instruction, plain(self.words)], sort_keys=True).encode())

    def score(self, pictures: Pictures, firsts: Pictures, instruction: str | None) -> Labels:
        """Return one score for each of N pictures; none if the model's numbers are not finite."""
        embedded, valid = self.embedded(pictures)
        values = self.values(embedded, instruction)
        return Labels.finite(values, valid)

    def embedded(self, pictures: Pictures) -> tuple[Direction, npt.NDArray[np.bool_]]:
        """Return (N, D) vectors of length 1, and their validity (N,)."""
        found = self.embedder.embed_pictures(pictures).astype(np.float64)
        valid = np.asarray(np.isfinite(found).all(axis=1) & found.any(axis=1))
        found[~valid] = 1
        return found / np.linalg.norm(found, axis=1, keepdims=True), valid

    @cached_property
    def embedder(self) -> ImageTextModel:
        """The image-text model; it loads its weights on first use."""
        return image_text_model(self.model, self.model_settings)

    def direction(self, words: Sequence[str]) -> Direction:
        """Return the mean of the sentences' embeddings, scaled to length 1."""
        key = tuple(words)
        if key not in self._directions:
            self._directions[key] = unit(self.embedder.embed_texts(words).astype(np.float64).mean(axis=0), words)
        return self._directions[key]

    @cached_property
    def _directions(self) -> dict[tuple[str, ...], Direction]:
        return {}


def unit(vector: Direction, words: Sequence[str]) -> Direction:
    """Return a vector with length 1; raise InvalidSetting if sentences leave none."""
    length = np.linalg.norm(vector)
    if not length >= SHORTEST:  # NaN too
        raise InvalidSetting(
            "The image-text model finds nothing in sentences.", got=f"{list(words)}: length {length:.1e}", allowed=f"{SHORTEST}"
        )
    return vector / length
