"""Measured numbers, each with its interval and what it was measured on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from robo_rl.statistics import Interval, percentile_interval

RESAMPLES = 500
"""Of each bootstrap: enough for bounds at 2.5 %."""
Floats = npt.NDArray[np.float64]
Statistic = Callable[[Floats], Floats]
"""Of how often each episode counts, (R, episodes), one number for each of R resamples; NaN where it is undefined."""


@dataclass(frozen=True)
class Figure:
    """One number of an audit."""

    interval: Interval
    n: int
    of: str
    """what n counts, such as "episodes" """

    @property
    def is_measured(self) -> bool:
        """Whether there was anything to measure it on."""
        return bool(np.isfinite(self.interval.estimate))

    @property
    def low(self) -> float:
        """The lower bound; the estimate itself where every resample gives the same."""
        return self.interval.low if np.isfinite(self.interval.low) else self.interval.estimate

    @property
    def high(self) -> float:
        """The upper bound; the estimate itself where every resample gives the same."""
        return self.interval.high if np.isfinite(self.interval.high) else self.interval.estimate

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON values; None for what is not known."""
        numbers = {name: getattr(self.interval, name) for name in ("estimate", "low", "high")}
        return {name: float(value) if np.isfinite(value) else None for name, value in numbers.items()} | {
            "n": self.n,
            "of": self.of,
        }


def unknown(of: str) -> Figure:
    """Returns the figure of something that there was nothing to measure on."""
    return Figure(Interval(np.nan, np.nan, np.nan), 0, of)


def resampled(episodes: int, seed: int = 0) -> Floats:
    """Returns how often each episode occurs in each resample, (RESAMPLES, episodes)."""
    drawn = np.random.default_rng(seed).multinomial(episodes, np.full(episodes, 1 / episodes), size=RESAMPLES)
    return drawn.astype(np.float64)


def by_episode(statistic: Statistic, episodes: int, *, n: int, of: str) -> Figure:
    """Returns a statistic of how often each episode counts, with its bootstrap interval over episodes.

    Resamples on which it is undefined are left out.
    """
    estimate = float(statistic(np.ones((1, episodes)))[0]) if episodes else np.nan
    if not np.isfinite(estimate):
        return unknown(of)
    draws = statistic(resampled(episodes))
    draws = draws[np.isfinite(draws)]
    return Figure(percentile_interval(estimate, draws) if len(draws) else Interval(estimate, np.nan, np.nan), n, of)


def mean_of(values: npt.ArrayLike, of: str) -> Figure:
    """Returns the mean of the known ones of some values (n,), one of each episode or clip."""
    known = np.asarray(values, np.float64)
    known = known[np.isfinite(known)]
    return by_episode(lambda counts: counts @ known / counts.sum(1), len(known), n=len(known), of=of)


def ratio_of(first: npt.ArrayLike, second: npt.ArrayLike, of: str) -> Figure:
    """Returns the mean of some values (n,) divided by that of others of the same episodes; unknown unless that is above 0."""
    pairs = np.stack([np.asarray(side, np.float64) for side in (first, second)])
    pairs = pairs[:, np.isfinite(pairs).all(axis=0)]

    def ratio(counts: Floats) -> Floats:
        above, below = (counts @ side for side in pairs)
        is_share = below > 0
        return np.where(is_share, above / np.where(is_share, below, 1), np.nan)

    return by_episode(ratio, pairs.shape[1], n=pairs.shape[1], of=of)
