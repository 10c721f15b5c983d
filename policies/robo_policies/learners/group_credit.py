"""Advantages of episodes relative to their group, which begins in one state (GRPO: Shao et al. 2024, arXiv:2402.03300)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def group_advantages(scores: Floats, group: int) -> Floats:
    """Return the advantage of each episode (E,): its score, standardised within its group.

    Args:
        scores: Score of each episode (E,); those of a group are adjacent.
        group: Number of episodes in a group.

    Returns:
        (score - mean of the group) / standard deviation of the group; 0 if the scores of a group are equal.
    """
    return np.concatenate([standardised(each) for each in scores.reshape(-1, group)])


def standardised(values: Floats) -> Floats:
    """Return (value - mean) / standard deviation of values (N,); 0 if all are equal."""
    centred, deviation = values - values.mean(), values.std()
    return np.asarray(centred / deviation if deviation > 1e-6 else np.zeros_like(centred))
