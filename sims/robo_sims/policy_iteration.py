"""Exact values of a known MDP of S states and A actions."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
TIE = 1e-9
"""Relative difference of values up to which two actions count as equally good."""


def optimal_values(moves: Array, rewards: Array, discount: float) -> Array:
    """Return the optimal values Q* (S, A), computed exactly by policy iteration.

    Args:
        moves: Transition probabilities (S, A, S).
        rewards: Expected rewards (S, A).
        discount: Discount, below 1.
    """
    policy = rewards.argmax(1)
    states = np.arange(len(rewards))
    while True:
        values = np.linalg.solve(np.eye(len(states)) - discount * moves[states, policy], rewards[states, policy])
        found: Array = rewards + discount * moves @ values
        better = found.max(1) > found[states, policy] + TIE * (1.0 + np.abs(values))
        if not better.any():
            return found
        policy = np.where(better, found.argmax(1), policy)
