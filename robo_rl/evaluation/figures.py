"""Measured numbers with their intervals, and the agreement of scores' order with the truth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from robo_rl.evaluation.statistics import Interval, percentile_interval

RESAMPLES = 500
"""Resamples of each bootstrap: enough for bounds at 2.5 %."""
Floats = npt.NDArray[np.float64]
Statistic = Callable[[Floats], Floats]
"""Maps counts of the episodes, (R, episodes), to one number for each of R resamples; NaN if it is undefined."""


@dataclass(frozen=True)
class Figure:
    """One number of an audit."""

    interval: Interval
    n: int
    of: str
    """unit of n, such as "episodes" """

    @property
    def is_measured(self) -> bool:
        """True if there was data to measure it on."""
        return bool(np.isfinite(self.interval.estimate))

    @property
    def low(self) -> float:
        """The lower bound; the estimate itself if every resample gives the same."""
        return self.interval.low if np.isfinite(self.interval.low) else self.interval.estimate

    @property
    def high(self) -> float:
        """The upper bound; the estimate itself if every resample gives the same."""
        return self.interval.high if np.isfinite(self.interval.high) else self.interval.estimate

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; None for unknown numbers."""
        numbers = {name: getattr(self.interval, name) for name in ("estimate", "low", "high")}
        return {name: float(value) if np.isfinite(value) else None for name, value in numbers.items()} | {
            "n": self.n,
            "of": self.of,
        }


def unknown(of: str) -> Figure:
    """Return the figure of a measure without data."""
    return Figure(Interval(np.nan, np.nan, np.nan), 0, of)


def resampled(episodes: int, seed: int = 0) -> Floats:
    """Return the counts of the episodes in each resample, (RESAMPLES, episodes)."""
    drawn = np.random.default_rng(seed).multinomial(episodes, np.full(episodes, 1 / episodes), size=RESAMPLES)
    return drawn.astype(np.float64)


def by_episode(statistic: Statistic, episodes: int, *, n: int, of: str) -> Figure:
    """Return a statistic of the counts of episodes, with its bootstrap interval over episodes.

    Resamples on which it is undefined are left out.
    """
    estimate = float(statistic(np.ones((1, episodes)))[0]) if episodes else np.nan
    if not np.isfinite(estimate):
        return unknown(of)
    draws = statistic(resampled(episodes))
    draws = draws[np.isfinite(draws)]
    return Figure(percentile_interval(estimate, draws) if len(draws) else Interval(estimate, np.nan, np.nan), n, of)


def mean_of(values: npt.ArrayLike, of: str) -> Figure:
    """Return the mean of the known values among (n,), one of each episode or clip."""
    known = np.asarray(values, np.float64)
    known = known[np.isfinite(known)]
    return by_episode(lambda counts: counts @ known / counts.sum(1), len(known), n=len(known), of=of)


def ratio_of(first: npt.ArrayLike, second: npt.ArrayLike, of: str) -> Figure:
    """Return the mean of some values (n,) divided by that of others of the same episodes; unknown unless that is above 0."""
    pairs = np.stack([np.asarray(side, np.float64) for side in (first, second)])
    pairs = pairs[:, np.isfinite(pairs).all(axis=0)]

    def ratio(counts: Floats) -> Floats:
        above, below = (counts @ side for side in pairs)
        is_share = below > 0
        return np.where(is_share, above / np.where(is_share, below, 1), np.nan)

    return by_episode(ratio, pairs.shape[1], n=pairs.shape[1], of=of)


MOST_STEPS = 20_000  # whose ranks are taken in each resample; of more, an even choice
MOST_AT_ONCE = 1_000_000  # numbers of one array: a bootstrap of many steps is done in pieces
PAIRS = 2_000
CANDIDATES = 100_000  # among which pairs that the truth tells apart are looked for
NEAR = (0.5, 2.0)  # differences of close pairs, in units of the usual change of one step


class PooledSteps(NamedTuple):
    """Steps of all episodes one after the other, of which both numbers are known."""

    scores: Floats
    """(N,)"""
    truth: Floats
    """(N,)"""
    episode: npt.NDArray[np.int64]
    """(N,) number of the episode, from 0"""
    episodes: int
    usual: float
    """usual change of the truth in one step: the median of all nonzero changes; NaN without any"""


def pooled(scores: Sequence[Floats], truth: Sequence[Floats]) -> PooledSteps:
    """Return the steps of episodes, each with scores (T,) and truth (T,), that are finite in both; evenly thinned if many."""
    pairs = [(a, b, np.flatnonzero(np.isfinite(a) & np.isfinite(b))) for a, b in zip(scores, truth, strict=True)]
    pairs = [pair for pair in pairs if len(pair[2])]
    if not pairs:
        return PooledSteps(np.empty(0), np.empty(0), np.empty(0, np.int64), 0, np.nan)
    stride = -(-sum(len(known) for _, _, known in pairs) // MOST_STEPS)
    changes = np.concatenate([np.abs(np.diff(b[known])) for _, b, known in pairs])
    rows = [known[::stride] for _, _, known in pairs]
    numbers = [np.concatenate([pair[side][row] for pair, row in zip(pairs, rows, strict=True)]) for side in (0, 1)]
    episode = np.repeat(np.arange(len(pairs)), [len(row) for row in rows])
    return PooledSteps(
        numbers[0], numbers[1], episode, len(pairs), float(np.median(changes[changes > 0])) if changes.any() else np.nan
    )


def step_correlation(steps: PooledSteps) -> Figure:
    """Return Spearman's correlation over steps."""

    def statistic(counts: Floats) -> Floats:
        pieces = np.array_split(counts, -(-len(counts) * len(steps.episode) // MOST_AT_ONCE))
        return np.concatenate([rank_correlations(steps.scores, steps.truth, piece[:, steps.episode]) for piece in pieces])

    return by_episode(statistic, steps.episodes, n=len(steps.scores), of=f"steps of {steps.episodes} episodes")


def episode_correlation(scores: Floats, truth: Floats) -> Figure:
    """Return Spearman's correlation of two numbers of each episode (n,), over those that have both."""
    known = np.isfinite(scores) & np.isfinite(truth)
    count = int(known.sum())
    return by_episode(lambda counts: rank_correlations(scores[known], truth[known], counts), count, n=count, of="episodes")


def rank_correlations(first: Floats, second: Floats, counts: Floats) -> Floats:
    """Return Spearman's correlations (R,) of two series (n,) whose members are counted `counts` (R, n) times."""
    middle = (counts.sum(1, keepdims=True) + 1) / 2
    ranks = [_ranks(side, counts) - middle for side in (first, second)]
    products = [np.einsum("rn,rn,rn->r", counts, ranks[a], ranks[b]) for a, b in ((0, 1), (0, 0), (1, 1))]
    squares = products[1] * products[2]
    return np.where(squares > 0, products[0] / np.sqrt(np.where(squares > 0, squares, 1)), np.nan)


def _ranks(values: Floats, counts: Floats) -> Floats:
    """Return the mean rank (R, n) of each of some values (n,) among all that occur."""
    _, group = np.unique(values, return_inverse=True)
    order = np.argsort(group, kind="stable")
    sizes = np.add.reduceat(counts[:, order], np.flatnonzero(np.diff(group[order], prepend=-1)), axis=1)
    means: Floats = (np.cumsum(sizes, axis=1) - (sizes - 1) / 2)[:, group]
    return means


def pair_accuracy(steps: PooledSteps, seed: int = 0) -> Figure:
    """Return the share of pairs of steps with different truth whose better step scores higher; equal scores count half."""
    random = np.random.default_rng(seed)
    if not len(steps.truth):
        return unknown("pairs")
    first, second = random.integers(len(steps.truth), size=(2, CANDIDATES))
    differs = np.flatnonzero(steps.truth[first] != steps.truth[second])[:PAIRS]
    return _accuracy(steps, first[differs], second[differs])


def close_pair_accuracy(steps: PooledSteps, seed: int = 0) -> Figure:
    """Return the same for pairs whose truth differs by about one step's change; unknown if truth has few values."""
    if not np.isfinite(steps.usual):
        return unknown("close pairs")
    order = np.argsort(steps.truth, kind="stable")
    ordered = steps.truth[order]
    if 2 * NEAR[1] * steps.usual >= ordered[-1] - ordered[0]:
        return unknown("close pairs")
    first = np.random.default_rng(seed).integers(len(ordered), size=CANDIDATES)
    low = np.searchsorted(ordered, ordered[first] + NEAR[0] * steps.usual, side="left")
    high = np.searchsorted(ordered, ordered[first] + NEAR[1] * steps.usual, side="right")
    second = low + (np.random.default_rng(seed + 1).random(CANDIDATES) * (high - low)).astype(np.int64)
    found = np.flatnonzero(high > low)[:PAIRS]
    return _accuracy(steps, order[first[found]], order[second[found]], "close pairs")


def _accuracy(steps: PooledSteps, first: npt.NDArray[np.int64], second: npt.NDArray[np.int64], of: str = "pairs") -> Figure:
    """Return the accuracy over pairs; in a resample a pair occurs as often as its steps meet there."""
    if not len(first):
        return unknown(of)
    found = np.sign(steps.scores[second] - steps.scores[first]) * np.sign(steps.truth[second] - steps.truth[first])
    right = (found + 1) / 2

    def accuracy(counts: Floats) -> Floats:
        columns = np.ascontiguousarray(counts.T)
        weights = columns[steps.episode[first]] * columns[steps.episode[second]]
        total = weights.sum(axis=0)
        return np.where(total > 0, right @ weights / np.where(total > 0, total, 1), np.nan)

    return by_episode(accuracy, steps.episodes, n=len(right), of=f"{of} of {steps.episodes} episodes")
