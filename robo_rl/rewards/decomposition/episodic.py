"""The return of an episode, paid with its last step: the reward that return decomposition is compared with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from robo_rl.rewards.identity import settings_hash
from robo_rl.spec import EnvironmentSpec, Observation
from robo_rl.types import Array, Episode, Labels, Metrics, RewardLabels, StateDict, StepRewards


@dataclass(frozen=True)
class EpisodicReward:
    """Withholds the environment's reward until the episode ends."""

    @property
    def identity(self) -> tuple[str, str]:
        """Name, and hash of the settings."""
        return "episodic", settings_hash(self)

    def label(self, episode: Episode) -> RewardLabels:
        """Returns the return at the last step and 0 before it; a return that is not finite is missing."""
        values, valid = np.zeros(len(episode), np.float32), np.ones(len(episode), np.bool_)
        if len(episode):
            total = float(np.sum(episode.rewards, dtype=np.float64))
            values[-1], valid[-1] = (total, True) if np.isfinite(total) else (0.0, False)
        return RewardLabels(values, valid, *self.identity, prompt_hash="none")

    def online(self, spec: EnvironmentSpec, *, weight: float, discount: float | None) -> EpisodicRewards:
        """Returns what withholds the rewards of any environment."""
        del spec, discount
        return EpisodicRewards(self, weight)


@dataclass(frozen=True)
class EpisodicRewards:
    """Implements `robo_rl.reward_protocols.OnlineRewards`."""

    model: EpisodicReward
    weight: float = 1.0
    """Factor of the return."""

    @property
    def identity(self) -> Mapping[str, str | float]:
        """Name, hash and factor."""
        name, settings = self.model.identity
        return {"model": name, "weights": settings, "weight": self.weight}

    def visible(self, spec: EnvironmentSpec) -> EnvironmentSpec:
        """Returns the spec: nothing is drawn for this reward."""
        return spec

    def running(self, environments: int) -> RunningReturns:
        """Returns what adds up the rewards of so many environments."""
        return RunningReturns(environments, self.weight)

    def labelled(self, episode: Episode, spec: EnvironmentSpec) -> Iterator[Episode]:
        """Yields a recorded episode with its return at the end; nothing where that is not known."""
        del spec
        labels = self.model.label(episode)
        if labels.valid.all():
            yield replace(episode, rewards=np.float32(self.weight) * labels.values)


class RunningReturns:
    """Implements `robo_rl.reward_protocols.DelayedRewards`: adds up, and waits for nothing."""

    def __init__(self, environments: int, weight: float) -> None:
        self._weight = weight
        self._totals = [0.0] * environments
        self._paid: list[float] = []

    @property
    def is_due(self) -> bool:
        """True at once: what a step is paid is known when it is taken."""
        return bool(self._paid)

    @property
    def metrics(self) -> Metrics:
        """Nothing that the environment's own return does not say."""
        return {}

    def restart(self) -> None:
        """Forgets what waits, and all sums."""
        self._paid, self._totals = [], [0.0] * len(self._totals)

    def begin(self, index: int, observation: Observation, instruction: str | None) -> None:
        """Environment `index` begins an episode."""
        del observation, instruction
        self._totals[index] = 0.0

    def add(
        self, index: int, observation: Observation, *, action: Array, reward: float, terminated: bool, truncated: bool
    ) -> None:
        """Environment `index` took a step; `reward` is paid when its episode ends."""
        del observation, action
        self._totals[index] += reward
        self._paid.append(self._weight * self._totals[index] if terminated or truncated else 0.0)

    def score(self) -> StepRewards:
        """Return the rewards of the steps since the last call; a return that is not finite is missing."""
        values, self._paid = np.array(self._paid), []
        return StepRewards(Labels.finite(values), np.zeros(len(values), np.bool_))

    def state_dict(self) -> StateDict:
        """Returns sums and what waits."""
        return {"totals": list(self._totals), "paid": list(self._paid)}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores it."""
        self._totals, self._paid = list(state["totals"]), list(state["paid"])
