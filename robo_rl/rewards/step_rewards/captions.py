"""Captions of steps: words for what happened, and how often it has happened in the episode.

A captioner knows one simulator. A reward finds it by an entry point of `robo_rl.captioners`.
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
"""Name under which the parts of observations that a captioner needs (looks) are stored in place of observations."""


class Captioner(Protocol):
    """Interface of captioners, which describe steps in words; equal captions mean equal events.

    A captioner reads neither success nor reward.
    """

    def require(self, spec: EnvironmentSpec) -> None:
        """Raise InvalidSetting for an environment that the captioner cannot describe."""

    def look(self, observations: Mapping[str, Array]) -> Array:
        """Return the part of N observations that captions need (looks), (N, ...), as a small new array.

        observations: name -> (N, ...).
        """

    def captions(self, before: Array, actions: Array, after: Array) -> Sequence[str]:
        """Return the captions of K steps.

        Args:
            before: (K, ...) looks before the steps.
            actions: (K, ...) executed actions.
            after: (K, ...) looks after the steps.
        """


class Described(NamedTuple):
    """Captions of K steps, and how often each has occurred."""

    captions: Sequence[str]
    """(C,) different captions, ordered by their last occurrence."""
    numbers: npt.NDArray[np.int64]
    """(K,) index of the caption of each step in `captions`"""
    occurrences: npt.NDArray[np.int64]
    """(K,) how often the caption has occurred in the episode so far, including this step: 1 for the first time"""


def described(captioner: Captioner, steps: Steps, counts: dict[str, dict[str, int]], *, says_task: bool) -> Described:
    """Describe steps in words, and count how often each caption has occurred in its episode.

    Args:
        captioner: Captioner of the environment.
        steps: K steps of one or more environments.
        counts: Number of the environment, as text -> caption -> occurrences in its running episode; updated in place.
        says_task: True to put the instruction of the episode before each caption.

    Returns:
        Captions of the K steps, and their occurrences.
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
    """Return (K,) occurrences of the caption of each step in its episode so far, including this step."""
    found, running = [], [counts.get(str(index), {}) for index in range(int(steps.index.max(initial=-1)) + 1)]
    for index, caption, begins in zip(steps.index.tolist(), captions, steps.begins.tolist(), strict=True):
        if begins:
            running[index] = {}
        episode = running[index]
        episode[caption] = times = episode.get(caption, 0) + 1
        found.append(times)
    counts.update(zip(map(str, range(len(running))), running, strict=True))
    return np.array(found, np.int64)
