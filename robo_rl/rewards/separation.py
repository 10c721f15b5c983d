"""How well scores separate successes from failures: the ROC curve and the area under it.

Newcombe (2006), "Confidence intervals for an effect size measure based on the Mann-Whitney statistic. Part 2", method 5.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidSetting
from robo_rl.statistics import Interval
from robo_rl.types import Array

Floats = npt.NDArray[np.float64]


def area_under_curve(scores: Array, successes: npt.NDArray[np.bool_]) -> Interval:
    """Returns the probability that a success scores above a failure, ties counted half; scores and successes are (n,).

    The interval is no bootstrap, because that claims certainty where a few of both are separated perfectly. Raises
    InvalidSetting where there are no successes or no failures.
    """
    from scipy import stats  # late, as in robo_rl.statistics

    won, lost = _both(scores, successes)
    ranks = stats.rankdata(np.concatenate((won, lost)))
    area = float((ranks[: len(won)].sum() - len(won) * (len(won) + 1) / 2) / (len(won) * len(lost)))
    sizes = len(won), len(lost)
    return Interval(area, 1 - _highest(1 - area, *sizes), _highest(area, *sizes))


def roc_curve(scores: Array, successes: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Returns shares of the failures (k,) and of the successes (k,) that score at or above falling thresholds, from 0 to 1."""
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
    """Returns the largest area from which the found one is no further away than chance takes it."""
    from scipy import optimize, stats

    z, mean = float(stats.norm.ppf(0.5 + confidence / 2)), (won + lost) / 2

    def excess(true: float) -> float:
        spread = 2 * mean - 1 - (3 * mean - 3) / ((2 - true) * (1 + true))
        return (true - area) - z * math.sqrt(max(true * (1 - true) * spread, 0.0) / (won * lost))

    return 1.0 if area >= 1.0 else float(optimize.brentq(excess, max(area, 1e-9), 1.0))
