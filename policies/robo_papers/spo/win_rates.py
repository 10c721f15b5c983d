"""Shares of wins over a queue of recent trajectories.

Swamy et al. 2024, "A Minimaximalist Approach to Reinforcement Learning from Human Feedback", arXiv:2401.04056.
P(a, b) in [0, 1] is the preference for a over b, with P(a, b) + P(b, a) = 1. A policy is paid, for a trajectory, the mean of
P(trajectory, b) over trajectories b of its own recent past. No reward is fitted, so that preferences may be intransitive, noisy
or about whole trajectories. The guarantee is for the average of the policies, not for the last one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np

from robo_rl.protocols.components import Stateful
from robo_rl.types import StateDict

Item = TypeVar("Item")
Beats = Callable[[Item, Item], float | None]
"""Function P(first, second) in [0, 1], the preference for the first; None if the two cannot be compared."""


class WinRates(Stateful, Generic[Item]):
    """Queue of the newest trajectories, beside which new ones get their worth."""

    def __init__(self, beats: Beats[Item], *, queue: int, opponents: int, seed: int) -> None:
        """queue: trajectories that are kept. opponents: of these, drawn for each comparison; 0 for all."""
        self._beats, self._opponents = beats, opponents
        self._queue: deque[Item] = deque(maxlen=queue)
        self._generator = np.random.default_rng(seed)
        self.comparisons = 0
        """Comparisons so far."""

    def __len__(self) -> int:
        return len(self._queue)

    def worth(self, item: Item) -> float:
        """Return the share of the queue that a trajectory beats, less a half, [-0.5, 0.5]; 0 for an empty queue.

        NaN if none could be compared.
        """
        if not self._queue:
            return 0.0
        count = len(self._queue) if not self._opponents else min(self._opponents, len(self._queue))
        drawn = self._generator.choice(len(self._queue), count, replace=False)
        self.comparisons += count
        found = [self._beats(item, self._queue[at]) for at in drawn.tolist()]
        known = [share for share in found if share is not None]
        return float(np.mean(known)) - 0.5 if known else float("nan")

    def push(self, item: Item) -> None:
        """Add a trajectory to the queue; the oldest leaves it."""
        self._queue.append(item)

    def state_dict(self) -> StateDict:
        """Return the queue and the state of the random generator."""
        queue: list[Any] = list(self._queue)
        return {"queue": queue, "generator": self._generator.bit_generator.state, "comparisons": self.comparisons}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore what `state_dict` returned."""
        self._queue.clear()
        self._queue.extend(state["queue"])
        self._generator.bit_generator.state = state["generator"]
        self.comparisons = int(state["comparisons"])
