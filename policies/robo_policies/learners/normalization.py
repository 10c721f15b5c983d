"""Running normalisation of observations and rewards, as Stable-Baselines3's VecNormalize and Gymnasium's wrappers do it.

N environments, D elements of an observation.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from robo_policies.networks.tanh_towers import Floats
from robo_rl.protocols import Stateful
from robo_rl.types import Array, StateDict

LARGEST = 10.0  # standard deviations; VecNormalize's limit for both
SMALLEST_VARIANCE = 1e-8  # added under the root, as there
FIRST_COUNT = 1e-4  # weight of the first guess, mean 0 and variance 1, as there


class RunningMoments:
    """Mean and variance of everything seen so far, merged batch by batch (Chan et al. 1979)."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.mean: npt.NDArray[np.float64] = np.zeros(shape)
        self.variance: npt.NDArray[np.float64] = np.ones(shape)
        self.count = FIRST_COUNT

    def merge(self, values: Array) -> None:
        """Takes in values with a leading axis."""
        rows = len(values)
        total = self.count + rows
        mean = values.mean(0, dtype=np.float64)
        centred = values - mean
        squares = np.einsum("n...,n...->...", centred, centred)
        difference = mean - self.mean
        self.mean = self.mean + difference * (rows / total)
        squares += self.variance * self.count + difference * difference * (self.count * rows / total)
        self.variance = squares / total
        self.count = total

    @property
    def deviation(self) -> npt.NDArray[np.float64]:
        """Standard deviation, never 0."""
        deviation: npt.NDArray[np.float64] = np.sqrt(self.variance + SMALLEST_VARIANCE)
        return deviation

    def state_dict(self) -> StateDict:
        """Returns the moments, copied."""
        return {"mean": np.array(self.mean), "variance": np.array(self.variance), "count": float(self.count)}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned."""
        self.mean, self.variance = np.array(state["mean"]), np.array(state["variance"])
        self.count = float(state["count"])


class ObservationNormalizer(Stateful, Protocol):
    """Scales observations (N, D)."""

    def fit(self, observations: Floats) -> None:
        """Learns from observations of training."""
        ...

    def __call__(self, observations: Floats, /) -> Floats:
        """Returns scaled observations, float32."""
        ...


class RewardNormalizer(Stateful, Protocol):
    """Scales rewards (N,)."""

    def __call__(self, rewards: Array, ended: Array, /) -> Floats:
        """Learns from rewards and returns them scaled; `ended` marks those that closed an episode."""
        ...

    def restart(self, environments: int) -> None:
        """All environments begin a new episode."""
        ...


class RunningObservations:
    """(o - mean) / std with the moments of all observations so far, clipped."""

    def __init__(self, size: int) -> None:
        self.moments = RunningMoments((size,))
        self._refresh()

    def fit(self, observations: Floats) -> None:
        """Merges the observations into the moments."""
        self.moments.merge(observations)
        self._refresh()

    def __call__(self, observations: Floats) -> Floats:
        """Returns scaled observations, float32."""
        return limited((observations - self.moments.mean) * self._inverse_deviation)

    def state_dict(self) -> StateDict:
        """Returns the moments."""
        return self.moments.state_dict()

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned."""
        self.moments.load_state_dict(state)
        self._refresh()

    def _refresh(self) -> None:
        self._inverse_deviation = 1.0 / self.moments.deviation


class RunningReturns:
    """r / std of the discounted return so far, clipped: keeps the sign, and the scale of the values near 1."""

    def __init__(self, discount: float) -> None:
        self.moments = RunningMoments(())
        self._discount = discount
        self._returns: npt.NDArray[np.float64] = np.zeros(0)

    def __call__(self, rewards: Array, ended: Array) -> Floats:
        """Merges the returns that the rewards lead to, then scales the rewards."""
        self._returns = self._returns * self._discount + rewards
        self.moments.merge(self._returns)
        self._returns[ended] = 0.0
        return limited(rewards / self.moments.deviation)

    def restart(self, environments: int) -> None:
        """Forgets the returns of running episodes."""
        self._returns = np.zeros(environments)

    def state_dict(self) -> StateDict:
        """Returns the moments and the returns of running episodes."""
        return {"moments": self.moments.state_dict(), "returns": self._returns.copy()}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned."""
        self.moments.load_state_dict(state["moments"])
        self._returns = np.array(state["returns"])


class Unchanged:
    """Leaves observations or rewards as they are."""

    def fit(self, observations: Floats) -> None:
        """Learns nothing."""

    def __call__(self, values: Array, ended: Any = None) -> Floats:
        """Returns the values as float32."""
        return np.asarray(values, np.float32)

    def restart(self, environments: int) -> None:
        """Does nothing."""

    def state_dict(self) -> StateDict:
        """Returns nothing."""
        return {}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores nothing."""


def limited(values: Array) -> Floats:
    """Returns float32 values clipped to +-LARGEST."""
    clipped: Floats = np.minimum(np.maximum(values, -LARGEST), LARGEST).astype(np.float32)
    return clipped
