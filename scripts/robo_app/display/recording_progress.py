"""Progress of a recording on the display."""

from __future__ import annotations

from collections import deque
from statistics import fmean

from robo_datasets.catalogue import Entry
from robo_rl.types import Metrics

RECENT = 100  # episodes over which the display averages


class Progress:
    """Means over the newest episodes."""

    def __init__(self) -> None:
        self._returns: deque[float] = deque(maxlen=RECENT)
        self._successes: deque[bool] = deque(maxlen=RECENT)

    def add(self, entry: Entry) -> Metrics:
        """Take note of an episode and return the present means."""
        self._returns.append(entry.episode_return)
        self._successes += [] if entry.success is None else [entry.success]
        rate = {"rollout/success_rate": fmean(self._successes)} if self._successes else {}
        return {"rollout/ep_rew_mean": fmean(self._returns)} | rate
