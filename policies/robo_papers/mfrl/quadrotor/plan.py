"""Minimum-snap trajectories: Mellinger and Kumar 2011, "Minimum snap trajectory generation and control for quadrotors".

S segments between S + 1 way-points, each a polynomial of degree 7 per axis in its own time from 0 to 1. The quadratic program
is that of Richter, Bry and Roy 2013, "Polynomial trajectory planning for aggressive quadrotor flight": its unknowns are
velocity, acceleration and jerk at the inner way-points, so that continuity needs no constraint.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import factorial

import numpy as np
import numpy.typing as npt

from robo_rl.errors import optional

Array = npt.NDArray[np.float64]
ORDER = 8
"""Number of coefficients of a polynomial."""


def basis(time: Array | float, derivative: int) -> Array:
    """Return the values (..., 8) of the polynomial basis 1, t, ..., t^7, or of its n-th derivative."""
    time = np.asarray(time, np.float64)[..., None]
    powers = np.arange(ORDER)
    factors = np.array([factorial(n) / factorial(n - derivative) if n >= derivative else 0.0 for n in powers])
    values: Array = factors * time ** np.maximum(powers - derivative, 0)
    return values


def _snap_cost() -> Array:
    """Return (8, 8): the integral of the squared fourth derivative over a segment is c' M c."""
    cost = np.zeros((ORDER, ORDER))
    for i in range(4, ORDER):
        for j in range(4, ORDER):
            factors = factorial(i) / factorial(i - 4) * factorial(j) / factorial(j - 4)
            cost[i, j] = factors / (i + j - 7)
    return cost


_ENDS = np.concatenate([[basis(time, derivative) for derivative in range(4)] for time in (0.0, 1.0)])
"""(8, 8) coefficients to position, velocity, acceleration and jerk at the start and at the end, in a segment's own time."""
_COEFFICIENTS = np.linalg.inv(_ENDS)
_COST = _COEFFICIENTS.T @ _snap_cost() @ _COEFFICIENTS
"""(8, 8) cost in terms of those ends."""


@dataclass(frozen=True)
class Trajectory:
    """Trajectory through way-points, a polynomial for each segment."""

    coefficients: Array
    """(S, 8, 3) coefficients of each segment's polynomials in its own time, 0 to 1, for x, y, z."""
    times: Array
    """(S,) [s] duration of each segment."""

    @property
    def duration(self) -> float:
        """[s] duration of the whole flight."""
        return float(self.times.sum())

    def sample(self, at: Array, derivative: int = 0) -> Array:
        """Return positions (N, 3) [m] at times (N,) [s], or a derivative [m/s^n]; times beyond the ends count as the ends."""
        ends = np.cumsum(self.times)
        at = np.clip(at, 0.0, ends[-1])
        segment = np.minimum(np.searchsorted(ends, at, side="right"), len(ends) - 1)
        local = (at - (ends - self.times)[segment]) / self.times[segment]
        values = np.einsum("nk,nka->na", basis(local, derivative), self.coefficients[segment])
        scaled: Array = values / self.times[segment, None] ** derivative
        return scaled

    def slowed(self, factor: float) -> Trajectory:
        """Return the same path with all times multiplied by `factor`."""
        return Trajectory(self.coefficients, self.times * factor)


def minimum_snap(waypoints: Array, times: Array, weights: Array | None = None) -> Trajectory:
    """Return the trajectory through way-points with the least weighted snap (fourth derivative), at rest at both ends.

    Args:
        waypoints: (S + 1, 3) [m].
        times: (S,) [s] durations of the segments.
        weights: (S,) weights of each segment's snap; None for 1.

    Raises:
        MissingExtra: The package quadprog is not installed.
    """
    with optional("A minimum-snap trajectory", "quadprog", "fidelity", of="robo-rl-papers"):
        from quadprog import solve_qp
    segments = len(times)
    weights = np.ones(segments) if weights is None else weights
    # relative to the mean duration, so that the cost does not depend on the unit of time
    relative = times / times.mean()
    scales = relative[:, None] ** np.tile(np.arange(4.0), 2)  # (S, 8) derivatives of seconds to a segment's own time
    costs = (weights * relative**-7.0)[:, None, None] * scales[:, :, None] * _COST * scales[:, None, :]
    knots = 4 * (segments + 1)
    total = np.zeros((knots, knots))
    for index, cost in enumerate(costs):
        total[4 * index : 4 * index + 8, 4 * index : 4 * index + 8] += cost
    ends = np.zeros((knots, 3))
    ends[::4] = waypoints
    free = np.array([number for number in range(4, knots - 4) if number % 4])
    if free.size:
        linear = total[free] @ ends
        ends[free] = np.stack([solve_qp(total[np.ix_(free, free)], -linear[:, axis])[0] for axis in range(3)], -1)
    own = np.stack([ends[4 * index : 4 * index + 8] for index in range(segments)]) * scales[:, :, None]
    return Trajectory(_COEFFICIENTS @ own, times)
