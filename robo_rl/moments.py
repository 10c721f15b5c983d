"""Running mean and variance of vectors, updated batch by batch, and the standardisation of vectors by them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.types import Array, StateDict

LARGEST = 10.0  # standard deviations; VecNormalize's limit for observations and rewards
SMALLEST_VARIANCE = 1e-8  # added under the root, as there
FIRST_COUNT = 1e-4  # weight of the first guess, mean 0 and variance 1, as there


class RunningMoments:
    """Running mean and variance of vectors with D elements (Chan et al. 1983, "Algorithms for computing the variance").

    The full title is "Algorithms for computing the sample variance".
    """

    def __init__(self, size: int, count: float = 0.0) -> None:
        """Start with mean 0 and variance 1, which count as much as `count` vectors."""
        self.mean: npt.NDArray[np.float64] = np.zeros(size)
        self.variance: npt.NDArray[np.float64] = np.ones(size)
        self.count = count

    def merge(self, values: Array) -> None:
        """Add B vectors (B, D) to the moments."""
        rows = len(values)
        total = self.count + rows
        mean = np.add.reduce(values, 0, dtype=np.float64) / rows
        centred = values - mean
        squares = np.einsum("bd,bd->d", centred, centred)
        difference = mean - self.mean
        self.mean = self.mean + difference * (rows / total)
        squares += self.variance * self.count + difference * difference * (self.count * rows / total)
        self.variance, self.count = squares / total, total

    def state_dict(self) -> StateDict:
        """Return copies of mean, variance and count, to save them."""
        return {"mean": np.array(self.mean), "variance": np.array(self.variance), "count": float(self.count)}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore the state returned by `state_dict`."""
        self.mean, self.variance, self.count = np.array(state["mean"]), np.array(state["variance"]), float(state["count"])


class Normalizer(RunningMoments):
    """Standardises vectors by their running mean and deviation, as VecNormalize of Stable-Baselines3 does."""

    def __init__(self, size: int, *, is_on: bool = True, is_centred: bool = True) -> None:
        """Start with mean 0 and variance 1.

        Args:
            size: Number D of elements.
            is_on: False to return values unchanged.
            is_centred: False to subtract no mean, so that signs are kept.
        """
        super().__init__(size, FIRST_COUNT)
        self.is_on, self._is_centred = is_on, is_centred
        """True if values are scaled at all."""

    @override
    def merge(self, values: Array) -> None:
        if self.is_on:
            super().merge(values)

    def scaled(self, values: Array) -> npt.NDArray[np.float32]:
        """Return values (B, D) minus the mean, divided by the standard deviation, clipped to +-10, float32.

        `values` may also have only the first columns.
        """
        if not self.is_on:
            return np.asarray(values, np.float32)
        size = values.shape[1]
        centred = values - self.mean[:size] if self._is_centred else values
        scaled = centred / np.sqrt(self.variance[:size] + SMALLEST_VARIANCE)
        return np.minimum(np.maximum(scaled, -LARGEST), LARGEST).astype(np.float32)
