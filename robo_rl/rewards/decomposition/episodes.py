"""Whole episodes with what they returned: a ring of steps, each of which keeps its place until it is overwritten."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidSetting
from robo_rl.types import StateDict

Floats = npt.NDArray[np.float32]
Places = npt.NDArray[np.int64]
MOST_ROWS = 2**24
"""Places are told as float32, the type of a reward, which counts exactly up to here."""


class KeptEpisode(NamedTuple):
    """Where an episode lies, and what it brought."""

    start: int
    """Place of its first step."""
    length: int
    """T"""
    total: float
    """R"""


class EpisodeMemory:
    """Inputs (T, D) of the newest episodes."""

    def __init__(self, size: int, capacity: int) -> None:
        if not 1 <= capacity <= MOST_ROWS:
            raise InvalidSetting(
                "The memory of a decomposition cannot have that many steps.",
                got=capacity,
                allowed=f"1 to {MOST_ROWS}",
                fix="set learner.replay_capacity accordingly",
            )
        self._inputs = np.zeros((capacity, size), np.float32)  # handed out by the system as it is written
        self._cursor = self._used = self._steps = 0
        self._episodes: list[KeptEpisode] = []
        self._oldest = 0  # of `_episodes`: those before it are overwritten

    def __len__(self) -> int:
        """Number of episodes."""
        return len(self._episodes) - self._oldest

    @property
    def mean_length(self) -> float:
        """Steps of an episode."""
        return self._steps / max(len(self), 1)

    def add(self, inputs: Floats, total: float) -> Places:
        """Stores an episode and returns the places (T,) of its steps; forgets those that it overwrites."""
        capacity, length = len(self._inputs), len(inputs)
        if length > capacity:
            raise InvalidSetting(
                "An episode is longer than the replay memory.",
                got=f"{length} steps",
                allowed=f"{capacity}",
                fix="raise learner.replay_capacity",
            )
        kept = KeptEpisode(self._cursor, length, total)
        self._steps += length
        self._episodes.append(kept)
        while self._steps > capacity:
            self._steps -= self._episodes[self._oldest].length
            self._oldest += 1
        if self._oldest > 1000 and 2 * self._oldest > len(self._episodes):
            self._episodes, self._oldest = self._episodes[self._oldest :], 0
        places = (kept.start + np.arange(length)) % capacity
        self._inputs[places] = inputs
        self._cursor = (kept.start + length) % capacity
        self._used = max(self._used, int(places.max(initial=0)) + 1)
        return places

    def draw(self, count: int, generator: np.random.Generator) -> list[KeptEpisode]:
        """Returns so many episodes, uniformly, with replacement."""
        return [self._episodes[at] for at in generator.integers(self._oldest, len(self._episodes), count)]

    def inputs(self, places: Places) -> Floats:
        """Returns the inputs (..., D) of the steps there; places beyond the end begin anew."""
        return self._inputs.take(places, 0, mode="wrap")

    def state_dict(self) -> StateDict:
        """Returns the rows in use, as a view, and where the episodes lie."""
        kept = self._episodes[self._oldest :]
        return {
            "inputs": self._inputs[: self._used],
            "cursor": self._cursor,
            "places": np.array([[each.start, each.length] for each in kept], np.int64).reshape(-1, 2),
            "totals": np.array([each.total for each in kept], np.float64),
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restores it into a memory of the same capacity."""
        self._used, self._cursor = len(state["inputs"]), int(state["cursor"])
        self._inputs[: self._used] = state["inputs"]
        kept = zip(state["places"].tolist(), state["totals"].tolist(), strict=True)
        self._episodes = [KeptEpisode(start, length, total) for (start, length), total in kept]
        self._oldest, self._steps = 0, sum(each.length for each in self._episodes)
