"""Means of a learner's metrics over a window of updates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from robo_rl.types import Metrics, StateDict

METRICS_EVERY = 100
"""Number of updates between two reports of the mean metrics."""


class MetricsWindow:
    """Averages a learner's metrics (numbers, or tensors on a device) over METRICS_EVERY updates."""

    def __init__(self) -> None:
        self._sums: dict[str, Any] = {}
        self._updates = 0

    def add(self, scalars: Mapping[str, Any]) -> Metrics:
        """Add the values of one update, by name.

        Returns:
            The mean of each over the last METRICS_EVERY updates if it is due, else {}.
        """
        for name, value in scalars.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
        self._updates += 1
        if self._updates < METRICS_EVERY:
            return {}
        means = {name: total / self._updates for name, total in self._totals().items()}
        self._sums, self._updates = {}, 0
        return means

    def _totals(self) -> dict[str, float]:
        fetched = {name: total.cpu() if hasattr(total, "cpu") else total for name, total in self._sums.items()}
        return {name: float(total) for name, total in fetched.items()}

    def state_dict(self) -> StateDict:
        """Return the sums so far, so that a resumed run logs the same lines."""
        return {"sums": self._totals(), "updates": self._updates}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore the state returned by `state_dict`."""
        self._sums, self._updates = dict(state["sums"]), int(state["updates"])
