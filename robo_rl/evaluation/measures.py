"""Measures of an episode besides return and success, such as infractions or the distance driven.

An environment declares them in its attribute `measures`, a tuple of `Measure`, and reports their values, finite floats, in
`info["measures"]` of every step. The values of the last step count, and are stored in `Episode.metadata["measures"]`. The sum
of each constraint cost over an episode is a measure, too, with its limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from robo_rl.evaluation.statistics import Interval, event_rate, stratified_bootstrap, wilson
from robo_rl.spec.cost import CostSpec
from robo_rl.types import MEASURES, Episode


@dataclass(frozen=True)
class Measure:
    """Description of a number that each episode has, such as collisions: name, unit, meaning, limit."""

    name: str
    """Name in flat snake_case."""
    unit: str = "1"
    """SI unit; "1" for none."""
    meaning: str = ""
    """Meaning in words."""
    per: str = ""
    """Name of another measure: this one counts events and is reported as a rate, events divided by the sum of the other
    measure."""
    limit: float | None = None
    """Largest allowed value in an episode, in `unit`; only for constraint costs."""

    def interval(self, measured: Mapping[str, Sequence[float]]) -> Interval:
        """Return the mean with a bootstrap interval, or the rate of events with Garwood's interval, over episodes with a value.

        measured: name of a measure -> one value per episode, NaN if there is none.
        """
        values = np.array([measured[name] for name in (self.name, self.per or self.name)], np.float64)
        known = values[:, np.isfinite(values).all(axis=0)]
        if not known.size:
            return Interval(np.nan, np.nan, np.nan)
        return event_rate(*known.sum(axis=1).tolist()) if self.per else stratified_bootstrap([known[0]], np.mean)

    def exceeded(self, measured: Mapping[str, Sequence[float]]) -> Interval | None:
        """Return the share of episodes above the limit with Wilson's interval; None if there is no limit or no value."""
        known = [value for value in measured[self.name] if np.isfinite(value)]
        return wilson(sum(value > self.limit for value in known), len(known)) if self.limit is not None and known else None


def measures_of(environment: gymnasium.Env[Any, Any]) -> tuple[Measure, ...]:
    """Return the measures that an environment declares, also through wrappers; empty if it declares none."""
    try:
        return tuple(environment.get_wrapper_attr("measures"))
    except AttributeError:
        return ()


def measured_in(episodes: Sequence[Episode], measures: Sequence[Measure]) -> dict[str, tuple[float, ...]]:
    """Return name of each measure -> one value per episode, NaN for an episode without a value."""
    reported = [{**episode.metadata.get(MEASURES, {}), **_sums(episode)} for episode in episodes]
    return {measure.name: tuple(float(each.get(measure.name, np.nan)) for each in reported) for measure in measures}


def cost_measures(costs: Sequence[CostSpec], episodes: Sequence[Episode]) -> tuple[Measure, ...]:
    """Return a measure "cost_NAME" for each declared cost, and for each cost that the episodes report without a declaration."""
    declared = {f"cost_{cost.name}": Measure(f"cost_{cost.name}", cost.unit, cost.meaning, limit=cost.limit) for cost in costs}
    reported = dict.fromkeys(name for episode in episodes for name in _sums(episode))
    return tuple(({name: Measure(name, meaning="a cost without a limit") for name in reported} | declared).values())


def _sums(episode: Episode) -> dict[str, float]:
    return {f"cost_{name}": float(np.sum(values, dtype=np.float64)) for name, values in episode.costs.items()}
