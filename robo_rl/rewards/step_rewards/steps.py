"""Steps of running environments, which wait until a reward scores many of them in one call."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from robo_rl.spec.environment import Observation
from robo_rl.types import Array, Episode, Labels, StateDict


@dataclass(frozen=True)
class Steps:
    """K steps of one or more environments; the steps of each environment are in order."""

    index: npt.NDArray[np.int64]
    """(K,) number of the environment of each step"""
    number: npt.NDArray[np.int64]
    """(K,) number of the step in its episode, from 1"""
    terminated: npt.NDArray[np.bool_]
    """(K,) True if the task ended with the step"""
    truncated: npt.NDArray[np.bool_]
    """(K,) True if the episode was cut after the step"""
    rewards: npt.NDArray[np.float64]
    """(K,) the environment's own rewards"""
    before: Mapping[str, Array]
    """name -> (K, ...) observations before the steps"""
    actions: Array
    """(K, A) executed actions in [-1, 1], or (K,) choices"""
    after: Mapping[str, Array]
    """name -> (K, ...) observations after the steps; at the end of an episode its last observation"""
    instructions: Sequence[str | None]
    """(K,) task of the episode in words, or None"""

    def __len__(self) -> int:
        return len(self.index)

    @property
    def begins(self) -> npt.NDArray[np.bool_]:
        """(K,) True for the first step of an episode."""
        found: npt.NDArray[np.bool_] = self.number == 1
        return found

    @property
    def ended(self) -> npt.NDArray[np.bool_]:
        """(K,) True for the last step of an episode."""
        return self.terminated | self.truncated

    @classmethod
    def of(cls, episode: Episode) -> Steps:
        """Return all steps of a recorded episode."""
        count = len(episode)
        last = np.arange(count) == count - 1
        return cls(
            np.zeros(count, np.int64),
            np.arange(1, count + 1),
            last & episode.terminated,
            last & (not episode.terminated),
            episode.rewards.astype(np.float64),
            {name: values[:-1] for name, values in episode.observations.items()},
            episode.actions,
            {name: values[1:] for name, values in episode.observations.items()},
            [episode.instruction] * count,
        )

    @classmethod
    def joined(cls, parts: Sequence[Steps]) -> Steps:
        """Return the steps of all parts, in order; `parts` must not be empty."""
        if len(parts) == 1:
            return parts[0]
        arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _ARRAYS}
        before, after = (
            {name: np.concatenate([getattr(part, side)[name] for part in parts]) for name in parts[0].before}
            for side in ("before", "after")
        )
        instructions = [instruction for part in parts for instruction in part.instructions]
        return cls(**arrays, before=before, after=after, instructions=instructions)


_ARRAYS = ("index", "number", "terminated", "truncated", "rewards", "actions")


@dataclass(frozen=True)
class StepScores:
    """Rewards that a StepScorer gave to K steps, with intermediate values and ends."""

    labels: Labels
    """Rewards before they are multiplied by the weight; float64 if they are summed up later."""
    terms: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict)
    """name -> (K,) intermediate values for the log; NaN if missing"""
    ends: npt.NDArray[np.bool_] | None = None
    """(K,) True if the reward considers the task completed with the step; None for none"""

    @property
    def total(self) -> npt.NDArray[np.float64]:
        """(K,) rewards, NaN if missing."""
        return self.labels.or_nan

    @property
    def valid(self) -> npt.NDArray[np.bool_]:
        """(K,) False if a reward is missing."""
        return self.labels.valid


def copies(observations: Mapping[str, Array]) -> dict[str, Array]:
    """Return copies of the arrays, because environments may write the next observation into the same memory."""
    return {name: np.array(values) for name, values in observations.items()}


class StepQueue:
    """Steps that wait to be scored; they are added singly, or for all environments at once."""

    def __init__(self, entries: Collection[str], keep: Callable[[Mapping[str, Array]], Mapping[str, Array]] = copies) -> None:
        """Make an empty queue.

        Args:
            entries: Names of the observation entries that the reward reads.
            keep: Returns the part of N observations to store (`StepScorer.keep`); by default copies.
        """
        self._entries, self._keep = tuple(entries), keep
        self._newest: Mapping[str, Array] = {}
        """name -> (N, ...) observations after the last step of all environments at once; never written to"""
        self._last: dict[int, Mapping[str, Array]] = {}
        """Environment -> its observation (name -> (1, ...)) after a later single step or reset; never written to"""
        self._instructions: dict[int, str | None] = {}
        self._numbers: dict[int, int] = {}
        """Environment -> number of steps in its running episode"""
        self._waiting: list[Steps] = []
        self._length = 0
        self.started = 0
        """Episodes that started since the last `take`."""

    def __len__(self) -> int:
        return self._length

    def clear(self) -> None:
        """Remove all steps from the queue."""
        self._waiting, self._length, self.started = [], 0, 0

    def begin(self, index: int, observation: Observation, instruction: str | None = None) -> None:
        """Begin an episode of environment `index` with its first observation."""
        self._last[index] = self._kept(observation)
        self._instructions[index] = instruction
        self._numbers[index] = 0
        self.started += 1

    def add(
        self, index: int, observation: Observation, *, action: Array, reward: float, terminated: bool, truncated: bool
    ) -> None:
        """Add a step of environment `index`; `observation` is the one after the step."""
        after = self._kept(observation)
        self._put(np.array([index]), self._of(index), after, np.array(action)[None], [reward], [terminated], [truncated])
        self._last[index] = after

    def add_all(
        self, observations: Mapping[str, Array], *, actions: Array, rewards: Array, terminated: Array, truncated: Array
    ) -> None:
        """Add a step of every environment; the arguments are those of `add` as arrays (N, ...)."""
        after = self._keep({name: observations[name] for name in self._entries})
        self._put(np.arange(len(rewards)), self._before(len(rewards)), after, np.array(actions), rewards, terminated, truncated)
        self._newest, self._last = after, {}

    def take(self) -> Steps:
        """Return the K steps of the queue in the order in which they were added, and empty the queue; K may be 0."""
        steps = self._joined()
        self.clear()
        return steps

    def count(self, counts: Callable[[Steps], npt.NDArray[np.bool_]]) -> int:
        """Return the number of steps in the queue for which `counts` returns True."""
        return sum(int(counts(steps).sum()) for steps in self._waiting)

    def _put(
        self,
        index: npt.NDArray[np.int64],
        before: Mapping[str, Array],
        after: Mapping[str, Array],
        actions: Array,
        rewards: npt.ArrayLike,
        terminated: npt.ArrayLike,
        truncated: npt.ArrayLike,
    ) -> None:
        rows = index.tolist()
        numbers, instructions = [self._numbers[row] + 1 for row in rows], [self._instructions[row] for row in rows]
        self._numbers.update(zip(rows, numbers, strict=True))
        ends, own = (np.array(terminated), np.array(truncated)), np.array(rewards, np.float64)
        self._waiting.append(Steps(index, np.array(numbers), *ends, own, before, actions, after, instructions))
        self._length += len(numbers)

    def _joined(self) -> Steps:
        none, whole, flag = np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.bool_)
        nothing = dict.fromkeys(next(iter(self._last.values()), self._newest), none)
        return Steps.joined(self._waiting or [Steps(whole, whole, flag, flag, none, nothing, none, nothing, [])])

    def _of(self, index: int) -> Mapping[str, Array]:
        """Return the newest observation of an environment, (1, ...)."""
        if index in self._last:
            return self._last[index]
        return {name: values[index : index + 1] for name, values in self._newest.items()}

    def _before(self, count: int) -> Mapping[str, Array]:
        """Return the newest observations of all environments, (N, ...)."""
        if len(self._last) == count:
            return {name: np.concatenate([self._last[index][name] for index in range(count)]) for name in self._last[0]}
        if not self._last:
            return self._newest
        before = {name: values.copy() for name, values in self._newest.items()}
        for index, observation in self._last.items():
            for name, value in observation.items():
                before[name][index] = value[0]
        return before

    def _kept(self, observation: Observation) -> Mapping[str, Array]:
        return self._keep({name: np.asarray(observation[name])[None] for name in self._entries})

    def state_dict(self) -> StateDict:
        """Return the steps in the queue and the newest observations, to save them."""
        return {
            "waiting": vars(self._joined()),
            "last": {str(index): dict(self._of(index)) for index in sorted(self._instructions)},
            "instructions": {str(index): words for index, words in self._instructions.items()},
            "numbers": {str(index): number for index, number in self._numbers.items()},
            "begun": self.started,
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restore what `state_dict` returned."""
        waiting = Steps(**state["waiting"])
        self._waiting, self._length = [waiting] if len(waiting) else [], len(waiting)
        self._newest, self._last = {}, {int(index): dict(observation) for index, observation in state["last"].items()}
        self._instructions = {int(index): words for index, words in state["instructions"].items()}
        self._numbers = {int(index): number for index, number in state["numbers"].items()}
        self.started = state["begun"]
