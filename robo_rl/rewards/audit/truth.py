"""What is recorded of how far an episode got at each step; a reward is compared with it, and never sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.types import Array, Episode

Floats = npt.NDArray[np.float64]


class Progress(Protocol):
    """Measures true progress."""

    def __str__(self) -> str: ...

    def of(self, episode: Episode) -> Floats:
        """Returns (T,) how far things got after each step; NaN where it is not known."""


@dataclass(frozen=True)
class TimeToSuccess:
    """Minus the steps that are left until an episode succeeds; episodes that do not succeed have none."""

    def __str__(self) -> str:
        return "time to success"

    def of(self, episode: Episode) -> Floats:
        """Returns (T,) [steps]."""
        steps = len(episode)
        return np.arange(1 - steps, 1, dtype=np.float64) if episode.success else np.full(steps, np.nan)


@dataclass(frozen=True)
class RecordedReward:
    """The recorded reward, or one of its terms."""

    term: str = ""
    """Empty for the reward itself."""

    def __str__(self) -> str:
        return f"the reward term {self.term}" if self.term else "the recorded reward"

    def of(self, episode: Episode) -> Floats:
        """Returns (T,) values; raises UnknownName for a term that was not recorded."""
        if self.term and self.term not in episode.reward_terms:
            raise UnknownName("reward term", self.term, episode.reward_terms)
        return (episode.reward_terms[self.term] if self.term else episode.rewards).astype(np.float64)


@dataclass(frozen=True)
class RunningSum:
    """The sum so far of the recorded reward or one of its terms, for those that pay by how much a step brings."""

    reward: RecordedReward

    def __str__(self) -> str:
        return f"the sum so far of {self.reward}"

    def of(self, episode: Episode) -> Floats:
        """Returns (T,) sums."""
        return np.cumsum(self.reward.of(episode))


@dataclass(frozen=True)
class Nearness:
    """Minus the distance of two observations, or the length of one, such as that from gripper to goal."""

    names: tuple[str, ...]
    """One or two observations."""

    def __str__(self) -> str:
        return f"nearness of {' and '.join(self.names)}" if len(self.names) > 1 else f"smallness of {self.names[0]}"

    def of(self, episode: Episode) -> Floats:
        """Returns (T,) after each step; raises UnknownName for an observation that was not recorded."""
        if missing := [name for name in self.names if name not in episode.observations]:
            raise UnknownName("observation", missing[0], episode.observations)
        places: list[Array] = [episode.observations[name][1:].astype(np.float64) for name in self.names]
        away = places[0] - places[1] if len(places) > 1 else places[0]
        distances: Floats = np.linalg.norm(away.reshape(len(away), -1), axis=1)
        return -distances


def _nearness(names: str) -> Nearness:
    found = tuple(names.split(","))
    if not all(found) or len(found) > 2:
        raise InvalidSetting("near: takes one observation or two.", got=names, allowed="near:NAME or near:NAME,NAME")
    return Nearness(found)


KINDS: Mapping[str, Callable[[str], Progress]] = {
    "time-to-success": lambda _: TimeToSuccess(),
    "reward": RecordedReward,
    "sum": lambda term: RunningSum(RecordedReward(term)),
    "near": _nearness,
}


def progress_of(text: str) -> Progress:
    """Returns what "time-to-success", "reward[:TERM]", "sum[:TERM]" or "near:OBSERVATION[,OBSERVATION]" names."""
    kind, _, rest = text.partition(":")
    if kind not in KINDS:
        raise UnknownName("kind of progress", kind, KINDS)
    return KINDS[kind](rest)
