"""Whether values rise in time, as they should where something is being achieved."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from robo_rl.statistics import rank_correlation
from robo_rl.types import Array


def value_order_correlation(values: Array, valid: npt.NDArray[np.bool_]) -> float:
    """Returns Spearman's correlation of values (T,) with time over the valid steps; NaN where it is undefined.

    Ma et al. 2024 (GVL), arXiv:2411.04549. It is 0 by construction for a way there and back, and low for a right reward that
    is the same in most steps.
    """
    steps = np.flatnonzero(valid)
    return rank_correlation(values[steps], steps) if len(steps) > 1 else np.nan
