"""How well values follow time: the value-order correlation of GVL (Ma et al. 2024, arXiv 2411.04549)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from robo_rl.types import Array


def value_order_correlation(values: Array, valid: npt.NDArray[np.bool_]) -> float:
    """Returns Spearman's correlation of the valid ones of (T,) values with their place in time, in [-1, 1].

    1 where they only rise, -1 where they only fall, 0 where all are equal, because then they say nothing about time; NaN with
    less than two. It is 0 by construction for a clip that runs forth and back: look at more than this number.
    """
    if valid.sum() < 2:
        return float("nan")
    ranks = rankdata(values[valid])
    if (ranks == ranks[0]).all():
        return 0.0
    return float(np.corrcoef(ranks, np.arange(len(ranks)))[0, 1].clip(-1, 1))
