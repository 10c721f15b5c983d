"""Captions of steps: words for what happened, and how often it happened in its episode.

A captioner knows its simulator; a reward does not, and finds the captioner by an entry point in `robo_rl.captioners`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from robo_rl.rewards.step_rewards.steps import Steps
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Array

LOOK = "look"
"""Name under which the looks of a captioner are stored in place of observations."""


class Captioner(Protocol):
    """Describes steps in words; equal words mean equal events. It knows neither success nor reward."""

    def require(self, spec: EnvironmentSpec) -> None:
        """Raise InvalidSetting for an environment that it cannot describe."""

    def look(self, observations: Mapping[str, Array]) -> Array:
        """Return looks (N, ...): the part of N observations, name -> (N, ...), that captions need, as a small new array."""

    def captions(self, before: Array, actions: Array, after: Array) -> Sequence[str]:
        """Return the descriptions of K steps, from looks before and after them and the actions (K, ...)."""


class Described(NamedTuple):
    """K steps in words, in their order."""

    captions: Sequence[str]
    """(C,) the distinct ones, in the order of their last occurrences."""
    numbers: npt.NDArray[np.int64]
    """(K,) index of each step's caption"""
    occurrences: npt.NDArray[np.int64]
    """(K,) occurrences of this caption in the episode so far, this one included: 1 for the first."""


def described(captioner: Captioner, steps: Steps, counts: dict[str, dict[str, int]], *, says_task: bool) -> Described:
    """Describe steps in words, and count how often each description has occurred in its episode.

    Args:
        captioner: What describes the steps.
        steps: K steps of one or more environments.
        counts: Number of the environment, as text -> caption -> occurrences in its running episode; updated in place.
        says_task: True to put the instruction of the episode before each caption.

    Returns:
        The captions of the K steps, and their occurrences.
    """
    looks = [side[LOOK] if LOOK in side else captioner.look(side) for side in (steps.before, steps.after)]
    captions = captioner.captions(looks[0], steps.actions, looks[1])
    if says_task:
        pairs = zip(steps.instructions, captions, strict=True)
        captions = [f"Task: {task}. {caption}" if task else caption for task, caption in pairs]
    last = {caption: step for step, caption in enumerate(captions)}
    distinct = sorted(last, key=lambda caption: last[caption])
    place = {caption: number for number, caption in enumerate(distinct)}
    numbers = np.array([place[caption] for caption in captions], np.int64)
    return Described(distinct, numbers, _counted(steps, captions, counts))


def _counted(steps: Steps, captions: Sequence[str], counts: dict[str, dict[str, int]]) -> npt.NDArray[np.int64]:
    """Return (K,): how often the caption of each step has occurred in its episode, this step included."""
    found, running = [], [counts.get(str(index), {}) for index in range(int(steps.index.max(initial=-1)) + 1)]
    for index, caption, begins in zip(steps.index.tolist(), captions, steps.begins.tolist(), strict=True):
        if begins:
            running[index] = {}
        episode = running[index]
        episode[caption] = times = episode.get(caption, 0) + 1
        found.append(times)
    counts.update(zip(map(str, range(len(running))), running, strict=True))
    return np.array(found, np.int64)
