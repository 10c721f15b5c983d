"""What the parts of a reward added up to in recent episodes, for the log."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from robo_rl.rewards.steps import Steps
from robo_rl.types import Metrics, StateDict

RECENT = 100  # episodes of which means are told, as of the environment's own return (robo_rl.record)


class EpisodeSums:
    """Sums of named values over each episode, and their mean over the last episodes that ended."""

    def __init__(self) -> None:
        self._running: dict[int, dict[str, float]] = {}
        self._recent: dict[str, deque[float]] = {}

    @property
    def means(self) -> Metrics:
        """Name -> mean over the last 100 episodes of the sum over the episode; nothing before the first has ended."""
        return {name: float(np.mean(sums)) for name, sums in self._recent.items()}

    def add(self, steps: Steps, values: Mapping[str, npt.NDArray[np.float64]]) -> None:
        """Adds the values (K,) of steps, by name; NaN, which is missing, adds nothing."""
        known = {name: np.where(np.isnan(each), 0.0, each) for name, each in values.items()}
        order, ended = np.argsort(steps.index, kind="stable"), steps.ended
        bounds = np.flatnonzero(np.diff(steps.index[order]).astype(np.bool_) | ended[order][:-1]) + 1
        for part in np.split(order, bounds) if len(order) else ():
            index = int(steps.index[part[0]])
            self._add(index, {name: float(each[part].sum()) for name, each in known.items()})
            if ended[part[-1]]:
                self._finish(index)

    def restart(self) -> None:
        """Forgets the episodes under way."""
        self._running.clear()

    def _add(self, index: int, sums: Mapping[str, float]) -> None:
        running = self._running.setdefault(index, {})
        for name, value in sums.items():
            running[name] = running.get(name, 0.0) + value

    def _finish(self, index: int) -> None:
        for name, value in self._running.pop(index).items():
            self._recent.setdefault(name, deque(maxlen=RECENT)).append(value)

    def state_dict(self) -> StateDict:
        """Returns the sums under way and the recent ones."""
        return {
            "running": {str(index): dict(sums) for index, sums in self._running.items()},
            "recent": {name: list(sums) for name, sums in self._recent.items()},
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned."""
        self._running = {int(index): dict(sums) for index, sums in state["running"].items()}
        self._recent = {name: deque(sums, maxlen=RECENT) for name, sums in state["recent"].items()}
