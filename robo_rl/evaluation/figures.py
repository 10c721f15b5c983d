"""Measured numbers with confidence intervals, and rank agreement of scores and truth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from robo_rl.evaluation.statistics import Interval, percentile_interval

RESAMPLES = 500
"""Number of bootstrap resamples: enough for bounds at 2.5 %."""
Floats = npt.NDArray[np.float64]
Statistic = Callable[[Floats], Floats]
"""Function that returns one number for each of R bootstrap resamples. Its argument (R, episodes) holds how often each episode
is in each resample. NaN: undefined."""


@dataclass(frozen=True)
class Figure:
    """One measured number with its confidence interval, and the number of data behind it."""

    interval: Interval
    n: int
    of: str
    """What the number of data `n` counts, such as "episodes"."""

    @property
    def is_measured(self) -> bool:
        """True if there was data to compute it."""
        return bool(np.isfinite(self.interval.estimate))

    @property
    def low(self) -> float:
        """Lower bound; the estimate if there is none."""
        return self.interval.low if np.isfinite(self.interval.low) else self.interval.estimate

    @property
    def high(self) -> float:
        """Upper bound; the estimate if there is none."""
        return self.interval.high if np.isfinite(self.interval.high) else self.interval.estimate

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; None for unknown numbers."""
        numbers = {name: getattr(self.interval, name) for name in ("estimate", "low", "high")}
        return {name: float(value) if np.isfinite(value) else None for name, value in numbers.items()} | {
            "n": self.n,
            "of": self.of,
        }


def shown(figure: Figure, *, rate: bool = False) -> tuple[str, str]:
    """Return a figure's estimate and its interval as text."""
    if not figure.is_measured:
        return "–", "not measured"
    number = "{:.1%}".format if rate else "{:.3g}".format
    interval = figure.interval
    if not np.isfinite(interval.low):
        return number(interval.estimate), "all alike"
    return number(interval.estimate), f"{number(interval.low)} to {number(interval.high)}"


def unknown(of: str) -> Figure:
    """Return a figure without estimate, because there is no data; of: what `n` would count."""
    return Figure(Interval(np.nan, np.nan, np.nan), 0, of)


def resampled(episodes: int, seed: int = 0) -> Floats:
    """Draw bootstrap resamples of some episodes; return how often each episode is in each resample, (RESAMPLES, episodes)."""
    drawn = np.random.default_rng(seed).multinomial(episodes, np.full(episodes, 1 / episodes), size=RESAMPLES)
    return drawn.astype(np.float64)


def by_episode(statistic: Statistic, episodes: int, *, n: int, of: str) -> Figure:
    """Return a statistic with its bootstrap interval over episodes.

    Resamples with an undefined statistic are left out.
    """
    estimate = float(statistic(np.ones((1, episodes)))[0]) if episodes else np.nan
    if not np.isfinite(estimate):
        return unknown(of)
    draws = statistic(resampled(episodes))
    draws = draws[np.isfinite(draws)]
    return Figure(percentile_interval(estimate, draws) if len(draws) else Interval(estimate, np.nan, np.nan), n, of)


def mean_of(values: npt.ArrayLike, of: str) -> Figure:
    """Return the mean of the finite values among (n,), one for each episode or clip."""
    known = np.asarray(values, np.float64)
    known = known[np.isfinite(known)]
    return by_episode(lambda counts: counts @ known / counts.sum(1), len(known), n=len(known), of=of)


def ratio_of(first: npt.ArrayLike, second: npt.ArrayLike, of: str) -> Figure:
    """Return the mean of `first` (n,) divided by the mean of `second` (n,), over the same n episodes.

    The figure is unknown unless the mean of `second` is above 0.
    """
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
    """Steps of all episodes in a row for which score and truth are known."""

    scores: Floats
    """(N,) scores by a reward or world model"""
    truth: Floats
    """(N,) true progress"""
    episode: npt.NDArray[np.int64]
    """(N,) number of the episode of each step"""
    episodes: int
    usual: float
    """usual change of the truth in a step: the median of all nonzero changes; NaN if there are none"""


def pooled(scores: Sequence[Floats], truth: Sequence[Floats]) -> PooledSteps:
    """Join the steps of all episodes in which both score (T,) and truth (T,) are finite; of too many steps keep every n-th."""
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
    """Return Spearman's correlation of scores and truth over steps."""

    def statistic(counts: Floats) -> Floats:
        pieces = np.array_split(counts, -(-len(counts) * len(steps.episode) // MOST_AT_ONCE))
        return np.concatenate([rank_correlations(steps.scores, steps.truth, piece[:, steps.episode]) for piece in pieces])

    return by_episode(statistic, steps.episodes, n=len(steps.scores), of=f"steps of {steps.episodes} episodes")


def episode_correlation(scores: Floats, truth: Floats) -> Figure:
    """Return Spearman's correlation of two numbers of episodes (n,), over those for which both are finite."""
    known = np.isfinite(scores) & np.isfinite(truth)
    count = int(known.sum())
    return by_episode(lambda counts: rank_correlations(scores[known], truth[known], counts), count, n=count, of="episodes")


def rank_correlations(first: Floats, second: Floats, counts: Floats) -> Floats:
    """Return Spearman's rank correlation in each of R resamples, (R,), of two series (n,).

    counts: (R, n) how often each member of the series is in a resample.
    """
    middle = (counts.sum(1, keepdims=True) + 1) / 2
    ranks = [_ranks(side, counts) - middle for side in (first, second)]
    products = [np.einsum("rn,rn,rn->r", counts, ranks[a], ranks[b]) for a, b in ((0, 1), (0, 0), (1, 1))]
    squares = products[1] * products[2]
    return np.where(squares > 0, products[0] / np.sqrt(np.where(squares > 0, squares, 1)), np.nan)


def _ranks(values: Floats, counts: Floats) -> Floats:
    """Return the mean ranks (R, n) of values (n,) that occur `counts` (R, n) times."""
    _, group = np.unique(values, return_inverse=True)
    order = np.argsort(group, kind="stable")
    sizes = np.add.reduceat(counts[:, order], np.flatnonzero(np.diff(group[order], prepend=-1)), axis=1)
    means: Floats = (np.cumsum(sizes, axis=1) - (sizes - 1) / 2)[:, group]
    return means


def pair_accuracy(steps: PooledSteps, seed: int = 0) -> Figure:
    """Return the share of random pairs of steps that the scores order like the truth; equal scores count half."""
    random = np.random.default_rng(seed)
    if not len(steps.truth):
        return unknown("pairs")
    first, second = random.integers(len(steps.truth), size=(2, CANDIDATES))
    differs = np.flatnonzero(steps.truth[first] != steps.truth[second])[:PAIRS]
    return _accuracy(steps, first[differs], second[differs])


def close_pair_accuracy(steps: PooledSteps, seed: int = 0) -> Figure:
    """Return pair_accuracy for pairs that differ in truth by about one step's change; unknown if truth varies too little."""
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
    """Return the accuracy over given pairs; a pair's weight in a resample is the product of its episodes' counts."""
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
