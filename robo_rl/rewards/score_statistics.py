"""Statistics of scores: calibration, separation of successes from failures, and order in time.

Expected calibration error: Naeini et al. (2015) and Guo et al. (2017), arXiv:1706.04599. Interval of the area under the ROC
curve: Newcombe (2006), "Confidence intervals for an effect size measure based on the Mann-Whitney statistic. Part 2", method 5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidSetting
from robo_rl.evaluation.statistics import Interval, rank_correlation, wilson
from robo_rl.types import Array


@dataclass(frozen=True)
class Bin:
    """Cases with similar scores: their mean score, their success rate and their number."""

    score: float
    """mean score of the cases in the bin"""
    rate: Interval
    """success rate of the cases with Wilson's interval"""
    n: int
    """number of cases in the bin"""


def reliability(probabilities: Array, successes: npt.NDArray[np.bool_], bins: int = 10) -> list[Bin]:
    """Return bins of equal width in [0, 1] with the success rate of the cases in each; empty bins are left out.

    Args:
        probabilities: (n,) scores in [0, 1].
        successes: (n,) True for a success.
        bins: Number of bins.
    """
    index = np.minimum((probabilities * bins).astype(np.int64), bins - 1)
    return [_bin(probabilities, successes, index == each) for each in np.unique(index)]


def by_rank(scores: Array, successes: npt.NDArray[np.bool_], bins: int = 5) -> list[Bin]:
    """Return bins with about equal numbers of the cases (n,), for scores of any scale; equal scores are in one bin."""
    edges = np.unique(np.quantile(scores, np.linspace(0, 1, bins + 1)[1:-1]))
    index = np.searchsorted(edges, scores, side="left")
    return [_bin(scores, successes, index == each) for each in np.unique(index)]


def expected_calibration_error(bins: Sequence[Bin]) -> float:
    """Return the mean distance between score and success rate, weighted by the cases in each bin; NaN without cases."""
    cases = sum(each.n for each in bins)
    return sum(each.n * abs(each.score - each.rate.estimate) for each in bins) / cases if cases else np.nan


def _bin(scores: Array, successes: npt.NDArray[np.bool_], member: npt.NDArray[np.bool_]) -> Bin:
    count = int(member.sum())
    return Bin(float(scores[member].mean()), wilson(int(successes[member].sum()), count), count)


Floats = npt.NDArray[np.float64]


def roc_area(scores: Array, successes: npt.NDArray[np.bool_]) -> float:
    """Return the probability that a success scores above a failure, ties counted half; NaN without successes or failures."""
    from scipy import stats  # late, as in robo_rl.evaluation.statistics

    ranks, count = stats.rankdata(scores), int(successes.sum())
    pairs = count * (len(scores) - count)
    return float((ranks[successes].sum() - count * (count + 1) / 2) / pairs) if pairs else np.nan


def area_under_curve(scores: Array, successes: npt.NDArray[np.bool_]) -> Interval:
    """Return the probability that a success scores above a failure, with its interval; ties count half.

    A bootstrap would claim certainty if a few successes and failures are perfectly separated, so that Newcombe's interval is
    used. Raises InvalidSetting if there are no successes or no failures.

    Args:
        scores: (n,) scores.
        successes: (n,) True for a success.
    """
    won, lost = _both(scores, successes)
    area = roc_area(scores, successes)
    sizes = len(won), len(lost)
    return Interval(area, 1 - _highest(1 - area, *sizes), _highest(area, *sizes))


def roc_curve(scores: Array, successes: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Return the points of the ROC curve for falling thresholds.

    Returns:
        Share of failures (k,) and share of successes (k,) with a score at or above each threshold; both start at 0 and end at
            1.

    Raises:
        InvalidSetting: There are no successes or no failures.
    """
    won, lost = _both(scores, successes)
    thresholds = np.unique(scores)[::-1]
    shares = [(side[:, None] >= thresholds).mean(axis=0) for side in (lost, won)]
    false, true = (np.concatenate(([0.0], share)) for share in shares)
    return false, true


def _both(scores: Array, successes: npt.NDArray[np.bool_]) -> tuple[Array, Array]:
    won, lost = scores[successes], scores[~successes]
    if not len(won) or not len(lost):
        raise InvalidSetting(
            "A ROC curve needs successes and failures.", got=f"{len(won)} and {len(lost)}", allowed="one or more of each"
        )
    return won, lost


def _highest(area: float, won: int, lost: int, confidence: float = 0.95) -> float:
    """Return the upper bound of the interval for the area under the curve."""
    from scipy import optimize, stats

    z, mean = float(stats.norm.ppf(0.5 + confidence / 2)), (won + lost) / 2

    def excess(true: float) -> float:
        spread = 2 * mean - 1 - (3 * mean - 3) / ((2 - true) * (1 + true))
        return (true - area) - z * math.sqrt(max(true * (1 - true) * spread, 0.0) / (won * lost))

    return 1.0 if area >= 1.0 else float(optimize.brentq(excess, max(area, 1e-9), 1.0))


def value_order_correlation(values: Array, valid: npt.NDArray[np.bool_]) -> float:
    """Return Spearman's correlation of values (T,) with time over the valid steps; NaN if it is undefined.

    Source: Ma et al. 2024 (GVL), arXiv:2411.04549. The correlation is 0 for a motion there and back, and low for a correct
    reward that is constant in most steps.
    """
    steps = np.flatnonzero(valid)
    return rank_correlation(values[steps], steps) if len(steps) > 1 else np.nan
