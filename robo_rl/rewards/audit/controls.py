"""Spoilt clips: episodes that are changed so that a sound reward says something else about them, or the same.

A control returns another episode of as many steps and never changes the one it is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from robo_rl.types import Array, Episode


class Control(Protocol):
    """Changes an episode."""

    @property
    def name(self) -> str:
        """What the clips are, such as "blank pictures"."""

    def apply(self, episode: Episode, random: np.random.Generator) -> Episode:
        """Returns the changed episode."""


@dataclass(frozen=True)
class BlankPictures:
    """Every picture is black: what is still rewarded does not come from the pictures."""

    name: str = "blank pictures"

    def apply(self, episode: Episode, random: np.random.Generator) -> Episode:
        """Blackens all pictures; everything else stays."""
        black = {name: np.zeros_like(pictures) for name, pictures in pictures_in(episode).items()}
        return replace(episode, observations={**episode.observations, **black})


@dataclass(frozen=True)
class ShuffledTime:
    """All but the first observation in an order by chance: values that still rise are read from the clock."""

    name: str = "time-shuffled clips"

    def apply(self, episode: Episode, random: np.random.Generator) -> Episode:
        """Deals the observations out anew."""
        return _with_rows(episode, np.concatenate(([0], 1 + random.permutation(len(episode)))))


@dataclass(frozen=True)
class Reversed:
    """Backwards in time: what was achieved is undone."""

    name: str = "reversed clips"

    def apply(self, episode: Episode, random: np.random.Generator) -> Episode:
        """Turns the observations round."""
        return _with_rows(episode, np.arange(len(episode), -1, -1))


@dataclass(frozen=True)
class Loitering:
    """From the middle on nothing moves any more."""

    name: str = "loitering clips"

    def apply(self, episode: Episode, random: np.random.Generator) -> Episode:
        """Holds the observation at the middle until the end."""
        return _with_rows(episode, np.minimum(np.arange(len(episode) + 1), held_from(len(episode))))


@dataclass(frozen=True)
class WrongText:
    """Another instruction than the one that was carried out."""

    text: str
    """Empty where the reward is told the wrong words in another way."""
    name: str = "wrong text"

    def apply(self, episode: Episode, random: np.random.Generator) -> Episode:
        """Replaces the instruction, where there is a text."""
        return replace(episode, instruction=self.text or episode.instruction)


@dataclass(frozen=True)
class HiddenRewards:
    """Without recorded rewards and success: labels that change were read from them."""

    name: str = "recorded rewards hidden"

    def apply(self, episode: Episode, random: np.random.Generator) -> Episode:
        """Takes away all that was recorded of how well things went."""
        nothing = np.zeros_like(episode.rewards)
        return replace(episode, rewards=nothing, reward_terms={}, success=None, stop_reason="unknown")


def held_from(steps: int) -> int:
    """Returns the step from which `Loitering` holds an episode of so many steps still: its first half is real."""
    return (steps + 1) // 2


def pictures_in(episode: Episode) -> Mapping[str, Array]:
    """Returns the observations that are pictures."""
    return {name: array for name, array in episode.observations.items() if array.dtype == np.uint8 and array.ndim == 4}


def _with_rows(episode: Episode, rows: npt.NDArray[np.int64]) -> Episode:
    return replace(episode, observations={name: array[rows] for name, array in episode.observations.items()})
