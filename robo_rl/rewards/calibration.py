"""Whether scores mean what they say: how often there was success where the score was such and such.

Naeini et al. (2015) and Guo et al. (2017), arXiv:1706.04599, for the expected calibration error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from robo_rl.statistics import Interval, wilson
from robo_rl.types import Array


@dataclass(frozen=True)
class Bin:
    """Cases with similar scores."""

    score: float
    """their mean"""
    rate: Interval
    """of success among them (Wilson)"""
    n: int


def reliability(probabilities: Array, successes: npt.NDArray[np.bool_], bins: int = 10) -> list[Bin]:
    """Returns the bins of equal width in [0, 1] that hold any of the cases (n,)."""
    index = np.minimum((probabilities * bins).astype(np.int64), bins - 1)
    return [_bin(probabilities, successes, index == each) for each in np.unique(index)]


def by_rank(scores: Array, successes: npt.NDArray[np.bool_], bins: int = 5) -> list[Bin]:
    """Returns bins that hold about equally many of the cases (n,), for scores of any scale; equal scores stay together."""
    edges = np.unique(np.quantile(scores, np.linspace(0, 1, bins + 1)[1:-1]))
    index = np.searchsorted(edges, scores, side="left")
    return [_bin(scores, successes, index == each) for each in np.unique(index)]


def expected_calibration_error(bins: Sequence[Bin]) -> float:
    """Returns the mean distance of score and rate of success, weighted by the cases in the bins; NaN without any."""
    cases = sum(each.n for each in bins)
    return sum(each.n * abs(each.score - each.rate.estimate) for each in bins) / cases if cases else np.nan


def _bin(scores: Array, successes: npt.NDArray[np.bool_], member: npt.NDArray[np.bool_]) -> Bin:
    count = int(member.sum())
    return Bin(float(scores[member].mean()), wilson(int(successes[member].sum()), count), count)
