"""Steps in words: what a captioner promises, and steps that wait to be put into words.

Captioners know simulators, rewards do not: entry points `robo_rl.captioners` bring them together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from robo_rl.discovery import load
from robo_rl.spec import EnvironmentSpec, Observation
from robo_rl.types import Array, StateDict


class Captioner(Protocol):
    """Describes steps, so that equal descriptions mean equal things; knows neither success nor reward."""

    def require(self, spec: EnvironmentSpec) -> None:
        """Raises InvalidSetting for an environment that it cannot describe."""
        ...

    def look(self, observations: Mapping[str, Array]) -> Array:
        """Returns what it needs to know of N observations, name -> (N, ...), as a fresh and small array (N, ...)."""
        ...

    def captions(self, before: Array, actions: Array, after: Array) -> Sequence[str]:
        """Returns the descriptions of K steps, from such looks before and after them and the actions (K, ...)."""
        ...


def captioner(name: str) -> Captioner:
    """Returns a fresh captioner by its name; raises UnknownName."""
    found: Captioner = load("captioners", name)()
    return found


class Described(NamedTuple):
    """K steps in words, in their order."""

    captions: Sequence[str]
    """(C,) the distinct ones, in the order of their last occurrences."""
    numbers: npt.NDArray[np.int64]
    """(K,) which of the captions each step has"""
    occurrences: npt.NDArray[np.int64]
    """(K,) how often the episode has had this caption so far, this time included: 1 for the first."""
    rewards: npt.NDArray[np.float64]
    """(K,) of the environment"""
    environments: npt.NDArray[np.int64]
    """(K,) which of them took the step"""
    ended: npt.NDArray[np.bool_]
    """(K,) whether the episode ended with the step"""


class _Steps(NamedTuple):
    """Steps of n environments at one time."""

    environments: npt.NDArray[np.int64]
    before: Array
    actions: Array
    after: Array
    rewards: npt.NDArray[np.float64]
    ended: npt.NDArray[np.bool_]
    instructions: Sequence[str | None]


class WaitingCaptions:
    """Steps of N environments that wait to be described, many at once; counts captions within each episode.

    Every step of every environment passes here, so hardly anything is computed before `take`.
    """

    def __init__(self, captioner: Captioner, environments: int, *, says_task: bool) -> None:
        """says_task: put the instruction of the episode before each description of its steps."""
        self._captioner, self._says_task = captioner, says_task
        self._newest: Array | None = None
        """(N, ...) looks, never written to: steps that wait may hold them"""
        self._instructions: list[str | None] = [None] * environments
        self._counts: list[dict[str, int]] = [{} for _ in range(environments)]
        self._waiting: list[_Steps] = []
        self._length = 0

    def __len__(self) -> int:
        """Steps that wait."""
        return self._length

    def clear(self) -> None:
        """Forgets what waits, and the episodes under way."""
        self._waiting, self._length = [], 0
        for counts in self._counts:
            counts.clear()

    def begin(self, index: int, observation: Observation, instruction: str | None) -> None:
        """Environment `index` begins an episode."""
        self._instructions[index] = instruction
        self._newest = self._with(index, self._look(observation))

    def add(self, index: int, observation: Observation, *, action: Array, reward: float, ended: bool) -> None:
        """Environment `index` took a step that led to `observation`."""
        assert self._newest is not None, "an episode has begun"
        before, after = self._newest[index : index + 1], self._look(observation)
        one = np.array([index]), before, np.array(action)[None], after, np.array([reward]), np.array([ended])
        self._put(_Steps(*one, [self._instructions[index]]))
        self._newest = self._with(index, after)

    def add_all(self, observations: Mapping[str, Array], *, actions: Array, rewards: Array, ended: Array) -> None:
        """Every environment took a step; arrays (N, ...)."""
        assert self._newest is not None, "episodes have begun"
        after, told = self._captioner.look(observations), list(self._instructions)
        everyone = np.arange(len(ended))
        self._put(_Steps(everyone, self._newest, np.array(actions), after, np.array(rewards), np.array(ended), told))
        self._newest = after

    def take(self) -> Described:
        """Returns what waits, described, and forgets it."""
        waiting, self._waiting, self._length = self._waiting, [], 0
        if not waiting:
            none = np.zeros(0)
            return Described(
                [], none.astype(np.int64), none.astype(np.int64), none, none.astype(np.int64), none.astype(np.bool_)
            )
        steps = _joined(waiting)
        captions = self._captioner.captions(steps.before, steps.actions, steps.after)
        if self._says_task:
            pairs = zip(steps.instructions, captions, strict=True)
            captions = [f"Task: {told}. {caption}" if told else caption for told, caption in pairs]
        last = {caption: step for step, caption in enumerate(captions)}
        distinct = sorted(last, key=lambda caption: last[caption])
        place = {caption: number for number, caption in enumerate(distinct)}
        occurrences = self._counted(steps.environments.tolist(), captions, steps.ended.tolist())
        numbers = np.array([place[caption] for caption in captions], np.int64)
        return Described(distinct, numbers, occurrences, steps.rewards.astype(np.float64), steps.environments, steps.ended)

    def _put(self, steps: _Steps) -> None:
        self._waiting.append(steps)
        self._length += len(steps.ended)

    def _counted(self, environments: list[int], captions: Sequence[str], ended: list[bool]) -> npt.NDArray[np.int64]:
        """Returns how often each step's caption has been in its episode; one loop, because every step of all passes here."""
        found, all_counts = np.empty(len(captions), np.int64), self._counts
        for step, (index, caption, is_over) in enumerate(zip(environments, captions, ended, strict=True)):
            counts = all_counts[index]
            found[step] = counts[caption] = counts.get(caption, 0) + 1
            if is_over:
                counts.clear()
        return found

    def _look(self, observation: Observation) -> Array:
        """Returns (1, ...)."""
        return self._captioner.look({name: np.asarray(value)[None] for name, value in observation.items()})

    def _with(self, index: int, look: Array) -> Array:
        """Returns a copy of the newest looks in which that of one environment is another, (1, ...)."""
        newest = np.zeros((len(self._counts), *look.shape[1:]), look.dtype) if self._newest is None else self._newest.copy()
        newest[index] = look[0]
        return newest

    def state_dict(self) -> StateDict:
        """Returns what waits and what is known of the episodes under way."""
        return {
            "newest": self._newest,
            "instructions": list(self._instructions),
            "counts": [dict(counts) for counts in self._counts],
            "waiting": [steps._asdict() for steps in self._waiting],
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned, of as many environments."""
        self._newest = None if state["newest"] is None else np.array(state["newest"])
        self._instructions = list(state["instructions"])
        self._counts = [dict(counts) for counts in state["counts"]]
        self._waiting = [_restored(saved) for saved in state["waiting"]]
        self._length = sum(len(steps.ended) for steps in self._waiting)


def _joined(parts: Sequence[_Steps]) -> _Steps:
    """Returns all steps as one, in their order."""
    arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _ARRAYS}
    return _Steps(**arrays, instructions=[instruction for part in parts for instruction in part.instructions])


def _restored(saved: StateDict) -> _Steps:
    return _Steps(**{name: np.array(saved[name]) for name in _ARRAYS}, instructions=list(saved["instructions"]))


_ARRAYS = ("environments", "before", "actions", "after", "rewards", "ended")
