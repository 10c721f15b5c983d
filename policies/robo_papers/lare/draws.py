"""Which steps of an episode its return is compared with, and the loss of the comparison.

With T steps, return R and a reward r(t) of each, return decomposition (Efroni, Merlis & Mannor 2021, arXiv:2008.06036; as a
baseline in Ren et al. 2022) fits all of them, and randomised return decomposition (Ren et al. 2022, "Learning long-term reward
redistribution via randomized return decomposition", arXiv:2111.13485) K steps I that are drawn again in each update:

    RD        ( R/T - 1/T sum over all t of r(t) )^2
    RRD       ( R/T - 1/K sum over t in I of r(t) )^2
    unbiased  the same - c s^2 / K          s^2 = sum over t in I of (r(t) - mean)^2 / (K - 1)

A mean of K steps varies, by c s^2 / K in expectation, and its squared error grows by as much; without the correction RRD also
asks for rewards that are alike. Drawn without replacement c = 1 - K/T, which is 0 if all steps are drawn; drawn with
replacement c = 1, however short the episode. (1 - K/T for K > T steps drawn with replacement is negative.)

M episodes, L steps of each at most, K of them drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from robo_rl.errors import require_allowed

Lengths = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Draw:
    """At most L chosen steps of each of M episodes, from which one update of the reward model is computed."""

    steps: npt.NDArray[np.int64]
    """(M, L) numbers of the chosen steps in each episode, from 0; entries beyond `used` repeat a step"""
    used: npt.NDArray[np.bool_]
    """(M, L) True for chosen steps, False for padding"""
    correction: npt.NDArray[np.float32]
    """(M,) c of the unbiased loss; 0 if nothing is subtracted"""


class Drawing(Protocol):
    """Interface of ways to choose the steps of episodes for an update of the reward model."""

    def episodes(self, rows: int, mean_length: float) -> int:
        """Return how many episodes an update draws, so that it has about `rows` steps."""

    def draw(self, lengths: Lengths, generator: np.random.Generator) -> Draw:
        """Choose steps of M episodes with these lengths (M,)."""


@dataclass(frozen=True)
class EveryStep:
    """Way to choose steps for return decomposition (RD): all steps of each episode."""

    def episodes(self, rows: int, mean_length: float) -> int:
        """Return the number of episodes of an update, at least one, so that it has about `rows` steps."""
        return max(int(rows / mean_length), 1)

    def draw(self, lengths: Lengths, generator: np.random.Generator) -> Draw:
        """Return all steps of each episode; no random number is drawn."""
        del generator
        every = np.arange(int(lengths.max()))
        used = every < lengths[:, None]
        return Draw(np.where(used, every, 0), used, np.zeros(len(lengths), np.float32))


@dataclass(frozen=True)
class _DrawnSteps:
    """K steps of each episode: base of both ways to draw them."""

    count: int = 64
    """K"""
    unbiased: bool = True
    """Subtract the variance of the drawn mean."""

    def __post_init__(self) -> None:
        least = 2 if self.unbiased else 1
        reason = ": one step has no variance to correct for (unbiased: false allows 1)" if self.unbiased else ""
        require_allowed(self, {"count": (self.count >= least, f"{least} or more{reason}")})

    def episodes(self, rows: int, mean_length: float) -> int:
        """Return at least one."""
        del mean_length
        return max(rows // self.count, 1)


@dataclass(frozen=True)
class SomeSteps(_DrawnSteps):
    """Way to choose steps for randomised return decomposition: K different ones; a shorter episode is used whole."""

    def draw(self, lengths: Lengths, generator: np.random.Generator) -> Draw:
        """Draw min(K, T) different steps of each episode of T steps."""
        longest = int(lengths.max())
        keys = generator.random((len(lengths), longest))
        keys[np.arange(longest) >= lengths[:, None]] = 2.0  # steps beyond the episode come last
        steps = np.argsort(keys, axis=1)[:, : self.count]
        drawn = np.minimum(self.count, lengths)
        used = np.arange(steps.shape[1]) < drawn[:, None]
        correction = (1.0 - drawn / lengths) * self.unbiased
        return Draw(np.where(used, steps, 0), used, correction.astype(np.float32))


@dataclass(frozen=True)
class RepeatedSteps(_DrawnSteps):
    """Way to choose steps for randomised return decomposition: K of each episode, with replacement."""

    def draw(self, lengths: Lengths, generator: np.random.Generator) -> Draw:
        """Draw K steps of each episode, some of them more than once."""
        steps = generator.integers(lengths[:, None], size=(len(lengths), self.count))
        correction = np.full(len(lengths), float(self.unbiased), np.float32)
        return Draw(steps, np.ones(steps.shape, np.bool_), correction)


def decomposition_loss(rewards: Floats, mean_rewards: Floats, draw: Draw) -> tuple[float, Floats]:
    """Return the loss, averaged over episodes, and its derivative by each predicted reward (M, L).

    rewards: (M, L) predictions for the drawn steps. mean_rewards: (M,) R/T.
    """
    counts = draw.used.sum(1, keepdims=True).astype(np.float32)
    means = (rewards * draw.used).sum(1, keepdims=True) / counts
    errors = means - mean_rewards[:, None]
    deviations = (rewards - means) * draw.used
    weights = draw.correction[:, None] / (counts * np.maximum(counts - 1, 1))  # of one step the deviation is 0
    each = errors**2 - weights * (deviations**2).sum(1, keepdims=True)
    by_rewards = 2 * (draw.used * errors / counts - weights * deviations) / len(rewards)
    return float(each.mean()), by_rewards.astype(np.float32)
