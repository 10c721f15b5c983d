"""Random generators of N environments, seeded as by Gymnasium."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.utils import seeding


class Generators:
    """One random generator for each of N environments."""

    def __init__(self, count: int) -> None:
        self._generators = [seeding.np_random()[0] for _ in range(count)]

    def seeded(self, index: int, seed: int | None) -> np.random.Generator:
        """Return the generator of environment `index`, after seeding it unless `seed` is None."""
        if seed is not None:
            self._generators[index] = seeding.np_random(seed)[0]
        return self._generators[index]

    def states(self) -> list[Any]:
        """Return the state of each generator."""
        return [generator.bit_generator.state for generator in self._generators]

    def restore(self, states: Sequence[Any]) -> None:
        """Restore the states that `states` returned."""
        for generator, state in zip(self._generators, states, strict=True):
            generator.bit_generator.state = state
