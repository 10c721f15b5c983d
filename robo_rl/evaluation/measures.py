"""Measures of an episode besides return and success, such as infractions or the distance driven.

An environment has an attribute `measures`, a tuple of `Measure`, and their values, finite floats, in `info["measures"]` of
every step; those of an episode's last step count, and are kept in `Episode.metadata["measures"]`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from robo_rl.evaluation.statistics import Interval, event_rate, stratified_bootstrap
from robo_rl.types import MEASURES, Episode


@dataclass(frozen=True)
class Measure:
    """One number per episode."""

    name: str
    """Flat snake_case."""
    unit: str = "1"
    meaning: str = ""
    """In words."""
    per: str = ""
    """Another measure: this one then counts events, reported as a rate: events over the sum of the other measure."""

    def interval(self, measured: Mapping[str, Sequence[float]]) -> Interval:
        """Returns the mean with a bootstrap interval, or a rate of events with Garwood's, over episodes with a value."""
        values = np.array([measured[name] for name in (self.name, self.per or self.name)], np.float64)
        known = values[:, np.isfinite(values).all(axis=0)]
        if not known.size:
            return Interval(np.nan, np.nan, np.nan)
        return event_rate(*known.sum(axis=1).tolist()) if self.per else stratified_bootstrap([known[0]], np.mean)


def measures_of(environment: gymnasium.Env[Any, Any]) -> tuple[Measure, ...]:
    """Returns the measures of an environment, through its wrappers; empty if it declares none."""
    try:
        return tuple(environment.get_wrapper_attr("measures"))
    except AttributeError:
        return ()


def measured_in(episodes: Sequence[Episode], measures: Sequence[Measure]) -> dict[str, tuple[float, ...]]:
    """Returns name -> one value per episode, NaN for an episode without one."""
    reported = [episode.metadata.get(MEASURES, {}) for episode in episodes]
    return {measure.name: tuple(float(each.get(measure.name, np.nan)) for each in reported) for measure in measures}
