"""Stand-ins whose quality is known, to try a pipeline or an audit on before a real model costs anything.

Rewards that repeat what was recorded, a judge that guesses, an image-text model that knows nothing but colours. Every answer
follows from the settings and what is asked alone, in whatever order that is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from robo_rl.errors import UnknownName, require_allowed
from robo_rl.protocols.rewards import RewardModel
from robo_rl.rewards.identity import NamedSettings, hash_of
from robo_rl.rewards.judging import Answer, Question, Terms
from robo_rl.rewards.pictures import Pictures
from robo_rl.types import Array, Episode, Labels, RewardLabels


@dataclass(frozen=True)
class Oracle(NamedSettings, RewardModel):
    """The recorded rewards themselves: what a perfect model would say."""

    name: ClassVar[str] = "oracle"

    def label(self, episode: Episode) -> RewardLabels:
        """Returns the recorded rewards, all valid."""
        return _labels(self.identity, episode.rewards, np.ones(len(episode), np.bool_))


@dataclass(frozen=True)
class NoisyOracle(NamedSettings, RewardModel):
    """The recorded rewards with errors and gaps, as a mediocre model would see them."""

    name: ClassVar[str] = "noisy-oracle"

    deviation: float = 0.1
    """Standard deviation of the Gaussian error of a step, in units of the reward."""
    missing: float = 0.0
    """Share of steps without an answer."""
    seed: int = 0
    """Of errors and gaps."""

    def __post_init__(self) -> None:
        allowed = {"deviation": (self.deviation >= 0, "0 or more"), "missing": (0 <= self.missing <= 1, "0 to 1")}
        require_allowed(self, allowed | {"seed": (self.seed >= 0, "0 or more")})

    def label(self, episode: Episode) -> RewardLabels:
        """Returns rewards with errors; a step without an answer is not valid."""
        content = hashlib.sha256(episode.actions.tobytes() + episode.timestamps.tobytes()).digest()
        generator = np.random.default_rng([self.seed, *content])
        values = episode.rewards + generator.normal(0.0, self.deviation, len(episode))
        return _labels(self.identity, values, generator.random(len(episode)) >= self.missing)


@dataclass(frozen=True)
class Constant(NamedSettings, RewardModel):
    """The same everywhere: a model that sees nothing."""

    name: ClassVar[str] = "constant"

    value: float = 0.0
    """The reward of every step."""

    def __post_init__(self) -> None:
        require_allowed(self, {"value": (np.isfinite(self.value), "a finite number")})

    def label(self, episode: Episode) -> RewardLabels:
        """Returns the value for each step."""
        return _labels(self.identity, np.full(len(episode), self.value), np.ones(len(episode), np.bool_))


def _labels(identity: tuple[str, str], values: Array, valid: Array) -> RewardLabels:
    """Returns labels; where a recorded reward is not finite there is none."""
    return Labels.finite(values, valid).by(identity)


@dataclass(frozen=True)
class Chance:
    """Guesses: answers of the right form that say nothing about the pictures. Each follows from question and seed alone."""

    missing: float = 0.0
    """Share of the questions that it refuses."""
    seed: int = 0
    """Of the guesses."""
    terms: Terms = field(default_factory=Terms)
    """Budget and cache; an answer takes one token for each character."""

    def __post_init__(self) -> None:
        require_allowed(self, {"missing": (0 <= self.missing <= 1, "0 to 1"), "seed": (self.seed >= 0, "0 or more")})

    @property
    def identity(self) -> tuple[str, str]:
        """Its name, and a hash of share and seed."""
        return "chance", hash_of(f"{self.missing} {self.seed}".encode())

    def ask(self, questions: Iterable[Question]) -> Iterator[tuple[int, Answer]]:
        """Yields guesses in the order of the questions."""
        for number, question in enumerate(questions):
            chance = np.random.default_rng([self.seed, int(question.hash, 16)])
            if chance.random() < self.missing:
                yield number, Answer("refused", raw="I cannot tell.", model="chance")
                continue
            schema = question.schema
            words = json.dumps(_guess(schema, schema, chance)) if schema else f"A guess, {question.hash}."
            yield number, Answer("ok", raw=words, model="chance", completion_tokens=len(words))


def _guess(schema: Mapping[str, Any], whole: Mapping[str, Any], chance: np.random.Generator) -> Any:
    """Returns a value that a schema allows; `whole` has the definitions that it may refer to."""
    if "$ref" in schema:
        return _guess(whole["$defs"][schema["$ref"].rsplit("/", 1)[-1]], whole, chance)
    if "enum" in schema:
        return schema["enum"][chance.integers(len(schema["enum"]))]
    if schema["type"] == "object":
        return {name: _guess(part, whole, chance) for name, part in schema["properties"].items()}
    if schema["type"] in ("number", "integer"):
        return int(chance.integers(int(schema["minimum"]), int(schema["maximum"]) + 1))
    return "a guess"


RGB = {
    "black": (0, 0, 0),
    "white": (255, 255, 255),
    "grey": (127, 127, 127),
    "red": (255, 0, 0),
    "green": (0, 255, 0),
    "blue": (0, 0, 255),
    "yellow": (255, 255, 0),
    "cyan": (0, 255, 255),
    "magenta": (255, 0, 255),
}


@dataclass(frozen=True)
class Colours(NamedSettings):
    """The mean colour of a picture, and sentences that are names of colours."""

    name: ClassVar[str] = "colours"

    def embed_pictures(self, pictures: Pictures) -> npt.NDArray[np.float32]:
        """Returns (N, 4) for the mean colour of each picture."""
        return _embedded([picture.reshape(-1, 3).mean(axis=0, dtype=np.float64) for picture in pictures])

    def embed_texts(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Returns (N, 4) for the mean of the colours that a sentence names; raises UnknownName for any other word."""
        for word in (word for text in texts for word in text.lower().split() or [""]):
            if word not in RGB:
                raise UnknownName("colour", word, RGB)
        return _embedded([np.mean([RGB[word] for word in text.lower().split()], axis=0) for text in texts])


def _embedded(colours: Sequence[npt.NDArray[np.float64]]) -> npt.NDArray[np.float32]:
    """Returns unit vectors: a colour seen from grey, and a constant that gives grey itself a direction."""
    found = np.zeros((len(colours), 4))
    found[:, 3] = 0.1
    if len(colours):
        found[:, :3] = np.stack(colours) / 255 - 0.5
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    return found.astype(np.float32)
