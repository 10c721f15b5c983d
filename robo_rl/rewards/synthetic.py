"""Synthetic rewards of known quality, to test a pipeline or an audit before a real model is paid for.

Each label depends only on the settings and the episode, not on the order of labelling.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from typing_extensions import override

from robo_rl.errors import require_allowed
from robo_rl.protocols.rewards import RewardModel
from robo_rl.rewards.identity import NamedSettings
from robo_rl.types import Array, Episode, Labels, RewardLabels


@dataclass(frozen=True)
class Oracle(NamedSettings, RewardModel):
    """Reward model that returns the recorded rewards, as a perfect model would."""

    name: ClassVar[str] = "oracle"

    @override
    def label(self, episode: Episode) -> RewardLabels:
        return _labels(self.identity, episode.rewards, np.ones(len(episode), np.bool_))


@dataclass(frozen=True)
class NoisyOracle(NamedSettings, RewardModel):
    """Reward model that returns the recorded rewards with errors and gaps, as a mediocre model would."""

    name: ClassVar[str] = "noisy-oracle"

    deviation: float = 0.1
    """Standard deviation of the Gaussian error of a step, in units of the reward; 0 or more."""
    missing: float = 0.0
    """Share of steps that get no label, 0 to 1."""
    seed: int = 0
    """Seed of errors and gaps."""

    def __post_init__(self) -> None:
        allowed = {"deviation": (self.deviation >= 0, "0 or more"), "missing": (0 <= self.missing <= 1, "0 to 1")}
        require_allowed(self, allowed | {"seed": (self.seed >= 0, "0 or more")})

    def label(self, episode: Episode) -> RewardLabels:
        """Return the recorded rewards with random errors; labels drawn as missing are not valid."""
        content = hashlib.sha256(episode.actions.tobytes() + episode.timestamps.tobytes()).digest()
        generator = np.random.default_rng([self.seed, *content])
        values = episode.rewards + generator.normal(0.0, self.deviation, len(episode))
        return _labels(self.identity, values, generator.random(len(episode)) >= self.missing)


@dataclass(frozen=True)
class Constant(NamedSettings, RewardModel):
    """Reward model that returns the same reward in every step, as a model that sees nothing would."""

    name: ClassVar[str] = "constant"

    value: float = 0.0
    """Reward of every step."""

    def __post_init__(self) -> None:
        require_allowed(self, {"value": (np.isfinite(self.value), "a finite number")})

    @override
    def label(self, episode: Episode) -> RewardLabels:
        return _labels(self.identity, np.full(len(episode), self.value), np.ones(len(episode), np.bool_))


def _labels(identity: tuple[str, str], values: Array, valid: Array) -> RewardLabels:
    """Return labels; a reward that is not finite is missing."""
    return Labels.finite(values, valid).by(identity)
