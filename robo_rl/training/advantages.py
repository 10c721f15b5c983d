"""Generalised advantage estimation: Schulman, Moritz, Levine, Jordan and Abbeel 2016, arXiv:1506.02438.

    A_t = delta_t + gamma lambda A_t+1   (eq. 16),      delta_t = r_t + gamma V(s_t+1) - V(s_t)   (eq. 9)

These are eq. 11 and 12 of the paper on PPO. Differs from both: if a time limit cuts an episode, the value of its last
observation replaces the missing rest, as in Stable-Baselines3, because the limit is no property of the task.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def generalized_advantages(
    rewards: npt.NDArray[Any],
    values: npt.NDArray[Any],
    *,
    discount: float,
    gae_lambda: float,
    ended: npt.NDArray[np.bool_],
    final_values: npt.NDArray[Any],
    valid: npt.NDArray[np.bool_] | None = None,
) -> npt.NDArray[Any]:
    """Return the generalised advantage estimates (T, ...), in the precision of the values.

    Args:
        rewards: r, (T, ...).
        values: V of all observations, (T + 1, ...).
        discount: gamma.
        gae_lambda: lambda, 0 to 1: 0 for one-step estimates, 1 for whole returns.
        ended: (T, ...) True if an episode ended with the step, for any reason; no sum goes beyond it.
        final_values: (T, ...) V of the last observation of an episode that was cut, 0 if it terminated; read where `ended`.
        valid: (T, ...) False if no reward is known: the advantage of the step is 0, and sums before it bootstrap from its
            value.
    """
    number = values.dtype.type
    gamma, following = number(discount), np.where(ended, final_values, values[1:])
    residuals = rewards + gamma * following - values[:-1]
    decay = np.broadcast_to(gamma * number(gae_lambda) * ~ended, residuals.shape)
    total, found = np.zeros_like(values[0]), np.empty(residuals.shape, values.dtype)
    for step in reversed(range(len(residuals))):
        total = residuals[step] + decay[step] * total
        if valid is not None:
            total = np.where(valid[step], total, number(0.0))
        found[step] = total
    return found


def episode_advantages(
    rewards: npt.NDArray[Any], values: npt.NDArray[Any], *, discount: float, gae_lambda: float, terminated: bool
) -> npt.NDArray[Any]:
    """Return the advantages (T,) of one whole episode from its rewards (T,) and the values (T + 1,) of all observations."""
    ended, final_values = np.zeros(len(rewards), np.bool_), np.zeros_like(values[1:])
    ended[-1:] = True
    final_values[-1:] = 0.0 if terminated else values[-1]
    return generalized_advantages(
        rewards, values, discount=discount, gae_lambda=gae_lambda, ended=ended, final_values=final_values
    )
