"""Some vectors of an observation side by side, as a network in NumPy reads them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from robo_policies.networks.tanh_towers import Floats
from robo_rl.spec import ObservationSpec
from robo_rl.types import Array


class Columns:
    """Arrays of a spec, in its order, as D columns of float32; there may be none."""

    def __init__(self, arrays: ObservationSpec) -> None:
        self.names = tuple(arrays)
        self.size = sum(array.size for array in arrays.values())

    def stack(self, observations: Mapping[str, Array]) -> Floats:
        """Returns (N, D) of N observations."""
        rows = len(next(iter(observations.values())))
        parts = [np.asarray(observations[name], np.float32).reshape(rows, -1) for name in self.names]
        return parts[0] if len(parts) == 1 else np.concatenate([np.zeros((rows, 0), np.float32), *parts], axis=1)

    def write(self, observation: Mapping[str, Array], out: Floats) -> None:
        """Writes one observation into (D,) without allocating."""
        start = 0
        for name in self.names:
            value = observation[name]
            out[start : start + value.size] = value.reshape(-1)
            start += value.size
