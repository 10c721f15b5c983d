"""Rewards whose quality is known, to try a pipeline or an audit on before a real model costs anything.

Every answer follows from the settings and the episode alone, in whatever order episodes are labelled.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from robo_rl.errors import require_allowed
from robo_rl.reward_protocols import RewardModel
from robo_rl.rewards.identity import settings_hash
from robo_rl.types import Array, Episode, Labels, RewardLabels


@dataclass(frozen=True)
class Oracle(RewardModel):
    """The recorded rewards themselves: what a perfect model would say."""

    @property
    def identity(self) -> tuple[str, str]:
        """Name, and hash of the settings."""
        return "oracle", settings_hash(self)

    def label(self, episode: Episode) -> RewardLabels:
        """Returns the recorded rewards, all valid."""
        return _labels(self.identity, episode.rewards, np.ones(len(episode), np.bool_))


@dataclass(frozen=True)
class NoisyOracle(RewardModel):
    """The recorded rewards with errors and gaps, as a mediocre model would see them."""

    deviation: float = 0.1
    """Standard deviation of the Gaussian error of a step, in units of the reward."""
    missing: float = 0.0
    """Share of steps without an answer."""
    seed: int = 0
    """Of errors and gaps."""

    def __post_init__(self) -> None:
        allowed = {"deviation": (self.deviation >= 0, "0 or more"), "missing": (0 <= self.missing <= 1, "0 to 1")}
        require_allowed(self, allowed | {"seed": (self.seed >= 0, "0 or more")})

    @property
    def identity(self) -> tuple[str, str]:
        """Name, and hash of the settings."""
        return "noisy-oracle", settings_hash(self)

    def label(self, episode: Episode) -> RewardLabels:
        """Returns rewards with errors; a step without an answer is not valid."""
        content = hashlib.sha256(episode.actions.tobytes() + episode.timestamps.tobytes()).digest()
        generator = np.random.default_rng([self.seed, *content])
        values = episode.rewards + generator.normal(0.0, self.deviation, len(episode))
        return _labels(self.identity, values, generator.random(len(episode)) >= self.missing)


@dataclass(frozen=True)
class Constant(RewardModel):
    """The same everywhere: a model that sees nothing."""

    value: float = 0.0
    """The reward of every step."""

    def __post_init__(self) -> None:
        require_allowed(self, {"value": (np.isfinite(self.value), "a finite number")})

    @property
    def identity(self) -> tuple[str, str]:
        """Name, and hash of the settings."""
        return "constant", settings_hash(self)

    def label(self, episode: Episode) -> RewardLabels:
        """Returns the value for each step."""
        return _labels(self.identity, np.full(len(episode), self.value), np.ones(len(episode), np.bool_))


def _labels(identity: tuple[str, str], values: Array, valid: Array) -> RewardLabels:
    """Returns labels; where a recorded reward is not finite there is none."""
    return Labels.finite(values, valid).by(identity)
