"""What PPO climbs: the clipped surrogate, the loss of the values, and their derivatives.

Equation numbers are those of Schulman et al. 2017, "Proximal Policy Optimization Algorithms", arXiv:1707.06347. B rows of a
minibatch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robo_policies.networks.tanh_towers import Floats

LARGEST_LOG_RATIO = 20.0  # far outside any clip range, and its exponential is finite


class ClippedSurrogate:
    """The equations, for one clip range."""

    def __init__(self, clip_range: float) -> None:
        self._lowest, self._highest = np.float32(1.0 - clip_range), np.float32(1.0 + clip_range)

    def ratio(self, log_densities: Floats, old_log_densities: Floats) -> Floats:
        """Returns r(theta) = pi(a|s) / pi_old(a|s), section 3, (B,)."""
        ratio: Floats = np.exp(np.minimum(log_densities - old_log_densities, np.float32(LARGEST_LOG_RATIO)))
        return ratio

    def surrogate(self, ratio: Floats, advantages: Floats) -> Floats:
        """Returns min(r A, clip(r, 1 - epsilon, 1 + epsilon) A), eq. 7 without the mean, (B,)."""
        return np.minimum(ratio * advantages, self._clipped(ratio) * advantages)

    def surrogate_slope(self, ratio: Floats, advantages: Floats) -> Floats:
        """Returns the derivative of eq. 7 by log pi(a|s), (B,): r A, or 0 where clipping took the gain away."""
        gain = ratio * advantages
        return gain * (gain <= self._clipped(ratio) * advantages)

    def value_loss(self, values: Floats, returns: Floats) -> Floats:
        """Returns (V - V_target)^2, eq. 9, (B,)."""
        return (values - returns) ** 2

    def value_slope(self, values: Floats, returns: Floats) -> Floats:
        """Returns the derivative of the value loss by V, (B,)."""
        return np.float32(2.0) * (values - returns)

    def _clipped(self, ratio: Floats) -> Floats:
        return np.minimum(np.maximum(ratio, self._lowest), self._highest)  # np.clip takes three times as long on so few numbers


@dataclass(frozen=True)
class Descent:
    """What one gradient step saw of each row, (B,) each."""

    ratio: Floats
    advantages: Floats
    value_losses: Floats

    def joined(self, other: Descent) -> Descent:
        """Returns what both saw."""
        return Descent(*(np.concatenate((mine, vars(other)[name])) for name, mine in vars(self).items()))


def divergence(ratio: Floats) -> float:
    """Returns an estimate of KL(pi_old || pi) [nat], (r - 1) - log r (Schulman 2020, "Approximating KL Divergence")."""
    return float(((ratio - 1.0) - np.log(ratio)).mean())
