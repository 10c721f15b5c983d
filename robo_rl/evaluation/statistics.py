"""Confidence intervals and comparisons for few runs and few episodes.

Sources: Wilson (1927) and Newcombe (1998) for rates; Agarwal et al. (2021), "Deep RL at the edge of the statistical precipice",
for the interquartile mean, the stratified bootstrap and the probability of improvement; Owen (2007), "The pigeonhole
bootstrap", for training runs crossed with evaluation seeds; McNemar (1947) for paired outcomes; Garwood (1936) for rates of
events; Fisher (1925), "Statistical methods for research workers", for the pooled deviation of groups; Agresti and Coull (1998)
for the deviation of a rate near 0 and 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidSetting

Floats = npt.NDArray[np.float64]
Statistic = Callable[..., Any]
"""Function such as np.mean that reduces the axis given as `axis`."""

RESAMPLES = 2000


@dataclass(frozen=True)
class Interval:
    """An estimate with the lower and upper bound of its confidence interval.

    The bounds are NaN if the data do not determine them: for one value, or if all resamples give the same statistic.
    """

    estimate: float
    low: float
    high: float
    confidence: float = 0.95

    def within(self, low: float, high: float) -> Interval:
        """Return the interval clipped to the range of the figure, such as 0 to 1 for a rate."""
        return replace(self, low=max(low, self.low), high=min(high, self.high)) if np.isfinite(self.low) else self

    def __format__(self, number: str) -> str:
        """Format estimate and bounds with one format: f"{interval:.0%}" is "92% [81%, 97%]"."""
        number = number or ".3g"
        if np.isnan([self.low, self.high]).any():
            return f"{self.estimate:{number}} [no interval]"
        return f"{self.estimate:{number}} [{self.low:{number}}, {self.high:{number}}]"

    def __str__(self) -> str:
        return format(self, "")


@dataclass(frozen=True)
class Comparison:
    """Result of comparing two sides on the same evaluation seeds; differences are second minus first."""

    first_mean: float
    second_mean: float
    mean_difference: Interval
    median_difference: Interval
    """Median of the differences per evaluation seed."""
    improvement: Interval
    """Probability that the second side is better on a seed; ties count half."""
    p_value: float | None
    """p value of McNemar's exact test; None unless success is compared with one run per side."""
    episodes: int
    """Number of shared evaluation seeds with a known outcome in all runs."""
    runs: tuple[int, int]
    """Number of runs of each side."""

    def left_out(self, shared: int) -> str:
        """Return a note on shared seeds without a known outcome; "" if there are none.

        shared: number of shared seeds.
        """
        missing = shared - self.episodes
        return f"; {missing} more left out, whose episode was cut before its outcome was known" if missing else ""

    @property
    def is_resolved(self) -> bool:
        """True if the interval of the mean difference does not contain zero."""
        return self.mean_difference.low > 0.0 or self.mean_difference.high < 0.0

    def __str__(self) -> str:
        extent = f"{self.episodes} shared seeds, {self.runs[0]} and {self.runs[1]} run(s)"
        lines = [
            f"{self.first_mean:.3g} -> {self.second_mean:.3g} on {extent}",
            f"mean difference {self.mean_difference:+.3g}, median {self.median_difference:+.3g}",
            f"probability of improvement {self.improvement:.0%}",
        ]
        lines += [f"McNemar exact p = {self.p_value:.3g}"] if self.p_value is not None else []
        return "\n".join(lines)


def _stats() -> Any:
    """Return scipy.stats, whose import takes longer than most commands."""
    from scipy import stats

    return stats


def wilson(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """Return a success rate with Wilson's score interval: inside [0, 1], with a width also at 0 and 1."""
    if not 0 <= successes <= n or n < 1:
        raise InvalidSetting("A success rate needs 0 <= successes <= n and n >= 1.", got=f"{successes} of {n}")
    z = float(_stats().norm.ppf(0.5 + confidence / 2.0))
    rate = successes / n
    center = (rate + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(rate * (1 - rate) / n + z**2 / (4 * n**2))
    low = 0.0 if successes == 0 else float(center - half)  # rounding must not take the bounds past 0 and 1
    high = 1.0 if successes == n else float(center + half)
    return Interval(rate, low, high, confidence)


def event_rate(events: float, extent: float, confidence: float = 0.95) -> Interval:
    """Return events per unit of exposure, with the exact interval of a Poisson count (Garwood 1936).

    Args:
        events: Number of events.
        extent: Exposure, such as a distance; the rate is NaN if it is 0.
        confidence: Level of the interval.
    """
    if not events >= 0 or not extent >= 0:
        raise InvalidSetting("A rate needs a count of events and a positive exposure.", got=f"{events} in {extent}")
    if not extent:
        return Interval(np.nan, np.nan, np.nan, confidence)
    tail = 0.5 - confidence / 2.0
    low = _stats().chi2.ppf(tail, 2 * events) / 2 if events else 0.0
    high = _stats().chi2.isf(tail, 2 * events + 2) / 2
    return Interval(events / extent, float(low / extent), float(high / extent), confidence)


def pass_at_k(attempts: int, successes: int, k: int) -> float:
    """Return an unbiased estimate of the probability that at least one of k attempts succeeds (Chen et al. 2021).

    It is 1 - C(n - c, k) / C(n, k) for c successes in n attempts (arXiv:2107.03374, eq. 1); 1 - (1 - c / n)^k would be too low.
    """
    return 1.0 - math.comb(attempts - successes, k) / math.comb(attempts, k)


def rank_correlation(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """Return Spearman's rank correlation of two series (n,), ties with their mean rank; NaN if one series is constant."""
    ranks = [_stats().rankdata(side) - (np.size(side) + 1) / 2 for side in (first, second)]
    squares = float(ranks[0] @ ranks[0]) * float(ranks[1] @ ranks[1])
    return float(ranks[0] @ ranks[1]) / np.sqrt(squares) if squares > 0.0 else np.nan


def interquartile_mean(values: npt.ArrayLike, axis: int = -1) -> Any:
    """Return the mean of the middle half of the values: more robust than the mean, more efficient than the median."""
    ordered = np.sort(np.asarray(values, np.float64), axis=axis)
    count = ordered.shape[axis]
    return np.take(ordered, range(count // 4, count - count // 4), axis=axis).mean(axis=axis)


def tail_mean(values: npt.ArrayLike, share: float, axis: int = -1) -> Any:
    """Return the mean of the smallest `share` of the values (conditional value at risk); a value at the edge counts in part.

    share: above 0, at most 1.
    """
    ordered = np.sort(np.asarray(values, np.float64), axis=axis)
    if not ordered.size or not 0.0 < share <= 1.0:
        raise InvalidSetting("A tail has no values.", got=f"share {share} of {ordered.size}", allowed="above 0, at most 1")
    weights = np.clip(share * ordered.shape[axis] - np.arange(ordered.shape[axis]), 0.0, 1.0)
    return np.moveaxis(ordered, axis, -1) @ (weights / weights.sum())


def stratified_bootstrap(
    strata: Sequence[npt.ArrayLike],
    statistic: Statistic = interquartile_mean,
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Return a statistic of all values with its percentile bootstrap interval.

    The interval covers the chance within strata, not the choice of the strata.

    Args:
        strata: Arrays (n_i,), such as one per task or training seed. Each is resampled separately, so that its weight is fixed.
        statistic: Statistic of all values together.
        confidence: Level of the interval.
        resamples: Number of bootstrap samples.
        seed: Seed of the resampling.
    """
    samples = [np.asarray(stratum, np.float64).ravel() for stratum in strata]
    if not samples or min(map(len, samples)) == 0:
        raise InvalidSetting("A bootstrap needs values in every stratum.", got=[len(s) for s in samples], allowed="one or more")
    estimate = float(statistic(np.concatenate(samples), axis=-1))
    generator = np.random.default_rng(seed)
    drawn = [sample[generator.integers(len(sample), size=(resamples, len(sample)))] for sample in samples]
    return percentile_interval(estimate, statistic(np.concatenate(drawn, axis=1), axis=-1), confidence)


def student_interval(values: npt.ArrayLike, *, confidence: float = 0.95) -> Interval:
    """Return the mean of values (n,), one per training seed, with the interval of Student's t distribution.

    The interval covers the choice of seeds; a bootstrap over so few values would be too narrow. For a rate its bounds may lie
    below 0 or above 1. The bounds are NaN for a single value or equal values.
    """
    sample = np.asarray(values, np.float64).ravel()
    mean, count = float(sample.mean()), len(sample)
    if count < 2 or np.ptp(sample) == 0:
        return Interval(mean, float("nan"), float("nan"), confidence)
    half = float(_stats().t.ppf((1 + confidence) / 2, count - 1) * sample.std(ddof=1) / np.sqrt(count))
    return Interval(mean, mean - half, mean + half, confidence)


def pooled_intervals(
    groups: Sequence[npt.ArrayLike], errors: Sequence[float] | None = None, *, confidence: float = 0.95
) -> list[Interval]:
    """Return the mean of each group (n_i,), with an interval whose deviation is estimated from all groups (Fisher 1925).

    A few training seeds say little about the spread between seeds; those of many settings together say more. For each group the
    largest of three deviations is used: the pooled deviation, that of the group, and its entry of `errors`. The bounds are NaN
    if no group has two values, or no deviation is known.

    Args:
        groups: Values of each group.
        errors: Standard error with which the values of each group were measured.
        confidence: Level of the intervals.
    """
    samples = [np.asarray(group, np.float64).ravel() for group in groups]
    freedom = sum(len(sample) - 1 for sample in samples)
    pooled = np.sqrt(sum(float(np.sum((sample - sample.mean()) ** 2)) for sample in samples) / max(freedom, 1))
    quantile = float(_stats().t.ppf((1 + confidence) / 2, freedom)) if freedom else np.nan
    intervals = []
    for sample, error in zip(samples, errors or [0.0] * len(samples), strict=True):
        own = float(sample.std(ddof=1)) if len(sample) > 1 else 0.0
        half = quantile * (max(pooled, own, error) or np.nan) / np.sqrt(len(sample))
        mean = float(sample.mean())
        intervals.append(Interval(mean, float(mean - half), float(mean + half), confidence))
    return intervals


def rate_error(successes: float, n: int) -> float:
    """Return the standard error of a success rate; two added successes and failures (Agresti-Coull 1998) keep it above 0."""
    rate = (successes + 2) / (n + 4)
    return float(np.sqrt(rate * (1 - rate) / (n + 4)))


def paired_comparison(first: npt.ArrayLike, second: npt.ArrayLike, *, seed: int = 0) -> Comparison:
    """Compare two sides that were evaluated on the same seeds.

    Pairing removes the variation between easy and hard starts. The bootstrap resamples the evaluation seeds of both sides
    together, and the runs of each side separately. So with several runs the intervals cover training, too; with one run per
    side they cover only the evaluation. The difference of two success rates has Newcombe's interval if there is one run per
    side, or if all resamples agree.

    Args:
        first: (runs, episodes) returns, or successes 0 and 1, with one column per shared seed; (episodes,) for one run.
        second: The same for the other side; the number of runs may differ.
        seed: Seed of the resampling.

    Raises:
        InvalidSetting: The numbers of episodes differ, or there are none.
    """
    a, b = (np.atleast_2d(np.asarray(side, np.float64)) for side in (first, second))
    if a.shape[1] != b.shape[1] or a.size == 0:
        raise InvalidSetting("Both sides need the same evaluation seeds.", got=f"{a.shape[1]} and {b.shape[1]} episodes")
    is_rate = bool(np.isin(np.concatenate((a.ravel(), b.ravel())), (0.0, 1.0)).all())
    alone = len(a) == len(b) == 1
    mean, median, improvement = _paired_bootstrap(a, b, seed)
    if is_rate and (alone or np.isnan(mean.low)):
        mean = newcombe(a[0], b[0])
    return Comparison(
        first_mean=float(a.mean()),
        second_mean=float(b.mean()),
        mean_difference=mean,
        median_difference=median,
        improvement=improvement,
        p_value=mcnemar(a[0], b[0]) if is_rate and alone else None,
        episodes=a.shape[1],
        runs=(len(a), len(b)),
    )


def mcnemar(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """Return the two-sided p value of the exact test that two paired success rates are equal (McNemar 1947).

    first, second: (n,) successes of both sides on the same seeds.
    """
    a, b = np.asarray(first, bool), np.asarray(second, bool)
    won, lost = int(np.sum(b & ~a)), int(np.sum(a & ~b))
    return float(_stats().binomtest(won, won + lost, 0.5).pvalue) if won + lost else 1.0


def newcombe(first: npt.ArrayLike, second: npt.ArrayLike, confidence: float = 0.95) -> Interval:
    """Return the difference of two paired success rates, second minus first, with the interval of Newcombe 1998, method 10.

    first, second: (n,) successes of both sides on the same seeds.
    """
    a, b = np.asarray(first, bool), np.asarray(second, bool)
    n = len(a)
    p, q = wilson(int(b.sum()), n, confidence), wilson(int(a.sum()), n, confidence)
    both, neither = int(np.sum(a & b)), int(np.sum(~a & ~b))
    won, lost = int(np.sum(b & ~a)), int(np.sum(a & ~b))
    margins = float((both + won) * (lost + neither) * (both + lost) * (won + neither))
    agreement = float(both * neither - won * lost)
    if agreement > 0.0:
        agreement = max(agreement - n / 2, 0.0)
    phi = agreement / np.sqrt(margins) if margins else 0.0
    return difference(p, q, float(phi))


def difference(first: Interval, second: Interval, correlation: float = 0.0) -> Interval:
    """Return the difference first - second of two estimates, with an interval computed from their two intervals.

    The method is that of Zou and Donner 2008, "Construction of confidence limits about effect measures". For Wilson intervals
    it is Newcombe's interval.

    correlation: correlation of the two estimates, -1 to 1; 0 if they are independent.
    """
    found, both = first.estimate - second.estimate, 2.0 * correlation
    below, above = first.estimate - first.low, first.high - first.estimate
    below_second, above_second = second.estimate - second.low, second.high - second.estimate
    low = found - np.sqrt(below**2 - both * below * above_second + above_second**2)
    high = found + np.sqrt(above**2 - both * above * below_second + below_second**2)
    return Interval(found, float(low), float(high), first.confidence)


def _paired_bootstrap(a: Floats, b: Floats, seed: int, confidence: float = 0.95) -> tuple[Interval, Interval, Interval]:
    generator = np.random.default_rng(seed)
    episodes = a.shape[1]
    better = ((b[:, None] > a[None]) + 0.5 * (b[:, None] == a[None])).astype(np.float64)  # (runs b, runs a, episodes)

    def statistics(rows_a: npt.NDArray[Any], rows_b: npt.NDArray[Any], columns: npt.NDArray[Any]) -> tuple[float, float, float]:
        differences = (b[rows_b].mean(axis=0) - a[rows_a].mean(axis=0))[columns]
        wins = better[np.ix_(rows_b, rows_a, columns)]
        return float(differences.mean()), float(np.median(differences)), float(wins.mean())

    estimates = statistics(np.arange(len(a)), np.arange(len(b)), np.arange(episodes))
    sizes = (len(a), len(b), episodes)
    draws = np.array([statistics(*(generator.integers(n, size=n) for n in sizes)) for _ in range(RESAMPLES)])
    mean, median, wins = (percentile_interval(e, column, confidence) for e, column in zip(estimates, draws.T, strict=True))
    return mean, median, wins


def percentile_interval(estimate: float, draws: Floats, confidence: float = 0.95) -> Interval:
    """Return an estimate with the percentile interval of bootstrap draws (R,); the bounds are NaN if all draws are equal."""
    low, high = np.quantile(draws, [0.5 - confidence / 2, 0.5 + confidence / 2])
    if low == high:  # a bootstrap of values that are all alike would claim certainty
        return Interval(estimate, np.nan, np.nan, confidence)
    return Interval(estimate, float(low), float(high), confidence)
