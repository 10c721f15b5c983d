"""Metrics of a recording for the display of progress."""

from __future__ import annotations

from collections import deque
from statistics import fmean

from robo_datasets.catalogue import Entry
from robo_rl.types import Metrics

RECENT = 100  # episodes over which the display averages


class Progress:
    """Mean return and success rate of the newest 100 episodes."""

    def __init__(self) -> None:
        self._returns: deque[float] = deque(maxlen=RECENT)
        self._successes: deque[bool] = deque(maxlen=RECENT)

    def add(self, entry: Entry) -> Metrics:
        """Add an episode, and return the mean return and the success rate of the newest episodes, as metrics."""
        self._returns.append(entry.episode_return)
        self._successes += [] if entry.success is None else [entry.success]
        rate = {"rollout/success_rate": fmean(self._successes)} if self._successes else {}
        return {"rollout/ep_rew_mean": fmean(self._returns)} | rate
