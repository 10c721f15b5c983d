"""Raters: which of two segments is better."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import numpy as np

from robo_rl.errors import require_allowed
from robo_rl.rewards.identity import NamedSettings
from robo_rl.types import Episode

Preference = float | Literal["skip"]
"""0 first is better, 1 second is better, 0.5 equal, "skip" cannot tell"""


@dataclass(frozen=True)
class Segment:
    """Steps `start` to `stop`, this one excluded, of an episode."""

    episode: Episode
    start: int
    stop: int


class Rater(Protocol):
    """Compares segments. Its settings are its fields."""

    @property
    def kind(self) -> Literal["human", "model", "oracle"]:
        """Kind of the judge."""

    @property
    def identity(self) -> tuple[str, str]:
        """Its name and a hash of all that its answers follow from."""

    def compare(self, first: Segment, second: Segment) -> Preference:
        """Return which is better."""


@dataclass(frozen=True)
class OracleRater(NamedSettings):
    """Prefers the segment with the larger recorded reward, with a set error rate."""

    name: ClassVar[str] = "oracle"
    kind: ClassVar[Literal["oracle"]] = "oracle"

    mistakes: float = 0.0
    """Share of decided answers that are turned round."""
    margin: float = 0.0
    """Difference of the sums of rewards up to which two segments are equal."""
    seed: int = 0
    """Of the mistakes."""

    def __post_init__(self) -> None:
        allowed = {"mistakes": (0 <= self.mistakes <= 1, "0 to 1"), "margin": (self.margin >= 0, "0 or more")}
        require_allowed(self, allowed | {"seed": (self.seed >= 0, "0 or more")})

    def compare(self, first: Segment, second: Segment) -> Preference:
        """Return 0, 0.5 or 1; "skip" if a recorded reward is not finite."""
        sums = [float(part.episode.rewards[part.start : part.stop].sum(dtype=np.float64)) for part in (first, second)]
        difference = sums[1] - sums[0]
        if not np.isfinite(difference):
            return "skip"
        if abs(difference) <= self.margin:
            return 0.5
        content = b"".join(part.episode.timestamps.tobytes() + bytes(str(part.start), "ascii") for part in (first, second))
        chance = np.random.default_rng([self.seed, *hashlib.sha256(content).digest()])
        is_wrong = chance.random() < self.mistakes
        return float((difference > 0) != is_wrong)
