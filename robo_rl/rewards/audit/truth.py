"""What is recorded of how far an episode got at each step; a reward is compared with it, and never sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.types import Array, Episode

Floats = npt.NDArray[np.float64]


class Progress(NamedTuple):
    """A measure of true progress."""

    words: str
    of: Callable[[Episode], Floats]
    """Returns (T,) how far things got after each step of an episode; NaN where it is not known."""

    def __str__(self) -> str:
        return self.words


def _time_to_success(rest: str) -> Progress:
    """Minus the steps that are left until an episode succeeds; episodes that do not succeed have none."""
    del rest

    def of(episode: Episode) -> Floats:
        steps = len(episode)
        return np.arange(1 - steps, 1, dtype=np.float64) if episode.success else np.full(steps, np.nan)

    return Progress("time to success", of)


def _reward(term: str) -> Progress:
    """The recorded reward, or one of its terms; raises UnknownName for a term that was not recorded."""

    def of(episode: Episode) -> Floats:
        if term and term not in episode.reward_terms:
            raise UnknownName("reward term", term, episode.reward_terms)
        return (episode.reward_terms[term] if term else episode.rewards).astype(np.float64)

    return Progress(f"the reward term {term}" if term else "the recorded reward", of)


def _running_sum(term: str) -> Progress:
    """The sum so far of the recorded reward or one of its terms, for those that pay by how much a step brings."""
    reward = _reward(term)
    return Progress(f"the sum so far of {reward}", lambda episode: np.cumsum(reward.of(episode)))


def _nearness(rest: str) -> Progress:
    """Minus the distance of two observations, or the length of one, such as that from gripper to goal."""
    names = tuple(rest.split(","))
    if not all(names) or len(names) > 2:
        raise InvalidSetting("near: takes one observation or two.", got=rest, allowed="near:NAME or near:NAME,NAME")

    def of(episode: Episode) -> Floats:
        if missing := [name for name in names if name not in episode.observations]:
            raise UnknownName("observation", missing[0], episode.observations)
        places: list[Array] = [episode.observations[name][1:].astype(np.float64) for name in names]
        away = places[0] - places[1] if len(places) > 1 else places[0]
        distances: Floats = np.linalg.norm(away.reshape(len(away), -1), axis=1)
        return -distances

    return Progress(f"nearness of {' and '.join(names)}" if len(names) > 1 else f"smallness of {names[0]}", of)


KINDS: Mapping[str, Callable[[str], Progress]] = {
    "time-to-success": _time_to_success,
    "reward": _reward,
    "sum": _running_sum,
    "near": _nearness,
}


def progress_of(text: str) -> Progress:
    """Returns what "time-to-success", "reward[:TERM]", "sum[:TERM]" or "near:OBSERVATION[,OBSERVATION]" names."""
    kind, _, rest = text.partition(":")
    if kind not in KINDS:
        raise UnknownName("kind of progress", kind, KINDS)
    return KINDS[kind](rest)
