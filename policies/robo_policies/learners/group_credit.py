"""Advantages of the episodes of a group, which begin in one state (GRPO: Shao et al. 2024, arXiv:2402.03300)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def group_advantages(scores: Floats, group: int) -> Floats:
    """Return the score of each episode minus the mean of its group, over the group's deviation, (E,); 0 if scores are equal.

    scores: (E,), those of a group adjacent. group: number of episodes in a group.
    """
    return np.concatenate([standardised(each) for each in scores.reshape(-1, group)])


def standardised(values: Floats) -> Floats:
    """Return (value - mean) / standard deviation of values (N,); 0 if all are equal."""
    centred, deviation = values - values.mean(), values.std()
    return np.asarray(centred / deviation if deviation > 1e-6 else np.zeros_like(centred))
