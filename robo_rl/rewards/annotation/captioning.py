"""Steps in words: the promise of a captioner, and how often an episode has had a caption.

Captioners know simulators, rewards do not: entry points `robo_rl.captioners` bring them together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from robo_rl.rewards.steps import Steps
from robo_rl.spec import EnvironmentSpec
from robo_rl.types import Array

LOOK = "look"
"""Name of a captioner's looks where they are kept in the place of observations."""


class Captioner(Protocol):
    """Describes steps, so that equal descriptions mean equal things; knows neither success nor reward."""

    def require(self, spec: EnvironmentSpec) -> None:
        """Raises InvalidSetting for an environment that it cannot describe."""

    def look(self, observations: Mapping[str, Array]) -> Array:
        """Returns what it needs to know of N observations, name -> (N, ...), as a fresh and small array (N, ...)."""

    def captions(self, before: Array, actions: Array, after: Array) -> Sequence[str]:
        """Returns the descriptions of K steps, from such looks before and after them and the actions (K, ...)."""


class Described(NamedTuple):
    """K steps in words, in their order."""

    captions: Sequence[str]
    """(C,) the distinct ones, in the order of their last occurrences."""
    numbers: npt.NDArray[np.int64]
    """(K,) which of the captions each step has"""
    occurrences: npt.NDArray[np.int64]
    """(K,) how often the episode has had this caption so far, this time included: 1 for the first."""


def described(captioner: Captioner, steps: Steps, counts: dict[str, dict[str, int]], *, says_task: bool) -> Described:
    """Return steps in words.

    counts: number of an environment -> captions of its running episode so far, which is updated. says_task: put the instruction
    of the episode before each description of its steps.
    """
    looks = [side[LOOK] if LOOK in side else captioner.look(side) for side in (steps.before, steps.after)]
    captions = captioner.captions(looks[0], steps.actions, looks[1])
    if says_task:
        pairs = zip(steps.instructions, captions, strict=True)
        captions = [f"Task: {told}. {caption}" if told else caption for told, caption in pairs]
    last = {caption: step for step, caption in enumerate(captions)}
    distinct = sorted(last, key=lambda caption: last[caption])
    place = {caption: number for number, caption in enumerate(distinct)}
    numbers = np.array([place[caption] for caption in captions], np.int64)
    return Described(distinct, numbers, _counted(steps, captions, counts))


def _counted(steps: Steps, captions: Sequence[str], counts: dict[str, dict[str, int]]) -> npt.NDArray[np.int64]:
    """Return how often each step's caption has been in its episode; one loop, because every step of all passes here."""
    found, running = [], [counts.get(str(index), {}) for index in range(int(steps.index.max(initial=-1)) + 1)]
    for index, caption, begins in zip(steps.index.tolist(), captions, steps.begins.tolist(), strict=True):
        if begins:
            running[index] = {}
        found.append(times := running[index].get(caption, 0) + 1)
        running[index][caption] = times
    counts.update(zip(map(str, range(len(running))), running, strict=True))
    return np.array(found, np.int64)
