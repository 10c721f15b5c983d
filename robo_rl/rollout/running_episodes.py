"""Return, length, costs and success of the episodes that run in N environments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.errors import InvalidEpisode, InvalidSetting
from robo_rl.protocols.components import Stateful
from robo_rl.rollout.episode import end_of
from robo_rl.spec.cost import PLAIN
from robo_rl.types import Array, StateDict


@dataclass(frozen=True)
class EndedEpisode:
    """Figures of an episode that ended in one of N environments."""

    place: int
    """Number of its environment."""
    episode_return: float
    """Sum of rewards."""
    length: int
    """Steps."""
    success: bool | None
    """Success at any of its steps; None if none told."""
    stop_reason: str
    """As `Episode.stop_reason`."""
    costs: Mapping[str, float] = field(default_factory=dict)
    """Sums of its constraint costs."""


class RunningEpisodes(Stateful):
    """Counts the steps of the episode that runs in each of N environments."""

    def __init__(self, environments: int, costs: Sequence[str] = ()) -> None:
        """costs: names of the constraint costs."""
        self._returns = np.zeros(environments)
        self._costs = np.zeros((environments, len(costs)))
        self._cost_names, self._has_costs = tuple(costs), 0
        self._lengths = np.zeros(environments, np.int64)
        self._knows_success = np.zeros(environments, np.bool_)
        self._successes = np.zeros(environments, np.bool_)

    def restart(self) -> None:
        """All environments begin an episode."""
        for running in (self._returns, self._costs, self._lengths, self._knows_success, self._successes):
            running[:] = 0

    def add(self, rewards: Array, infos: Mapping[str, Any], costs: Array | None = None) -> None:
        """Count one step of each; costs: (N, C)."""
        self._returns += rewards
        if costs is not None:
            self._costs += costs
            self._has_costs = 1
        self._lengths += 1
        for source in (infos, infos.get("final_info", {})):
            if "success" in source:
                self._knows_success |= source["_success"]
                self._successes |= source["_success"] & source["success"].astype(np.bool_)

    def end(self, place: int, terminated: bool, infos: Mapping[str, Any]) -> EndedEpisode:
        """Return the episode that ended in an environment; infos: those of last steps."""
        success = bool(self._successes[place]) if self._knows_success[place] else None
        told = infos["stop_reason"][place] if "stop_reason" in infos and infos["_stop_reason"][place] else None
        ended = EndedEpisode(
            place,
            float(self._returns[place]),
            int(self._lengths[place]),
            success,
            end_of(terminated, not terminated, success, None if told is None else str(told)),
            dict(zip(self._cost_names, self._costs[place].tolist(), strict=True)) if self._has_costs else {},
        )
        self._returns[place], self._costs[place], self._lengths[place] = 0.0, 0.0, 0
        self._knows_success[place] = self._successes[place] = False
        return ended

    @override
    def state_dict(self) -> StateDict:
        return {name: np.array(value) for name, value in vars(self).items() if name != "_cost_names"}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        for name, value in vars(self).items():
            if name != "_cost_names":
                setattr(self, name, int(state[name]) if isinstance(value, int) else np.array(state[name]))


def costs_in(infos: Mapping[str, Any], names: Sequence[str], count: int) -> npt.NDArray[np.float64]:
    """Return the constraint costs (N, C) of a step of N environments; raises InvalidSetting if one is missing."""
    costs, found = np.zeros((count, len(names))), np.zeros((count, len(names)), np.bool_)
    for source in (infos, infos.get("final_info", {})):
        values = source.get("costs", {PLAIN: source[PLAIN], f"_{PLAIN}": source[f"_{PLAIN}"]} if PLAIN in source else {})
        for column, name in enumerate(names):
            if name in values:
                mask = values[f"_{name}"]
                costs[mask, column], found[mask, column] = values[name][mask], True
    if not found.all():
        raise InvalidSetting(
            "The learner needs constraint costs of each step, and a step has not all of them.",
            got=f"infos with {', '.join(sorted(key for key in infos if not key.startswith('_'))) or 'no entries'}",
            allowed=f'info["costs"] with {", ".join(names)}',
            fix="take an environment with costs (docs/constraints.md), or another learner",
        )
    if not (np.isfinite(costs) & (costs >= 0)).all():
        raise InvalidEpisode("A step has a cost that is none.", got=costs.tolist(), allowed="finite numbers, 0 or more")
    return costs
