"""Steps of environments under way, kept until a reward is computed for many of them in one call."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from robo_rl.spec import Observation
from robo_rl.types import Array, Episode, StateDict


@dataclass(frozen=True)
class Steps:
    """K steps of some environments, those of each in their order."""

    index: npt.NDArray[np.int64]
    """(K,) number of the environment"""
    begins: npt.NDArray[np.bool_]
    """(K,) whether it is the first step of its episode"""
    terminated: npt.NDArray[np.bool_]
    """(K,)"""
    truncated: npt.NDArray[np.bool_]
    """(K,)"""
    rewards: npt.NDArray[np.float64]
    """(K,) the environment's own"""
    before: Mapping[str, Array]
    """name -> (K, ...)"""
    actions: Array
    """(K, A) in [-1, 1], or (K,) choices"""
    after: Mapping[str, Array]
    """name -> (K, ...): where an episode ended its last observation, never the first one of the next"""

    def __len__(self) -> int:
        return len(self.index)

    @property
    def ended(self) -> npt.NDArray[np.bool_]:
        """(K,) whether it is the last step of its episode."""
        return self.terminated | self.truncated

    @classmethod
    def of(cls, episode: Episode) -> Steps:
        """Returns all steps of a recorded episode."""
        count = len(episode)
        last = np.arange(count) == count - 1
        return cls(
            np.zeros(count, np.int64),
            np.arange(count) == 0,
            last & episode.terminated,
            last & (not episode.terminated),
            episode.rewards.astype(np.float64),
            {name: values[:-1] for name, values in episode.observations.items()},
            episode.actions,
            {name: values[1:] for name, values in episode.observations.items()},
        )


@dataclass(frozen=True)
class _Step:
    index: int
    begins: bool
    terminated: bool
    truncated: bool
    reward: float
    before: Mapping[str, Array]
    action: Array
    after: Mapping[str, Array]


class StepQueue:
    """Steps that wait; takes what `robo_rl.reward_protocols.DelayedRewards` is told."""

    def __init__(self, entries: Collection[str]) -> None:
        """entries: names of what is kept of each observation; pictures that nobody looks at need not be hoarded."""
        self._entries = tuple(entries)
        self._last: dict[int, Mapping[str, Array]] = {}
        self._fresh: set[int] = set()
        self._waiting: list[_Step] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def clear(self) -> None:
        """Forgets what waits."""
        self._waiting.clear()

    def begin(self, index: int, observation: Observation) -> None:
        """Environment `index` begins an episode."""
        self._last[index] = self._kept(observation)
        self._fresh.add(index)

    def add(
        self, index: int, observation: Observation, *, action: Array, reward: float, terminated: bool, truncated: bool
    ) -> None:
        """Environment `index` took a step that led to `observation`."""
        before, after = self._last[index], self._kept(observation)
        begins = index in self._fresh
        self._waiting.append(_Step(index, begins, terminated, truncated, reward, before, np.array(action), after))
        self._last[index] = after
        self._fresh.discard(index)

    def take(self) -> Steps:
        """Returns the steps that wait, in their order, and forgets them; K may be 0."""
        steps = self._stacked()
        self._waiting = []
        return steps

    def _stacked(self) -> Steps:
        waiting = self._waiting
        return Steps(
            np.array([step.index for step in waiting], np.int64),
            np.array([step.begins for step in waiting], np.bool_),
            np.array([step.terminated for step in waiting], np.bool_),
            np.array([step.truncated for step in waiting], np.bool_),
            np.array([step.reward for step in waiting], np.float64),
            {name: np.array([step.before[name] for step in waiting]) for name in self._entries},
            np.array([step.action for step in waiting]),
            {name: np.array([step.after[name] for step in waiting]) for name in self._entries},
        )

    def _kept(self, observation: Observation) -> dict[str, Array]:
        """Returns copies, because environments may write the next observation into the same memory."""
        return {name: np.array(observation[name]) for name in self._entries}

    def state_dict(self) -> StateDict:
        """Returns what waits and the last observations."""
        return {
            "waiting": vars(self._stacked()),
            "last": {str(index): dict(observation) for index, observation in self._last.items()},
            "fresh": sorted(self._fresh),
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned."""
        steps = Steps(**state["waiting"])
        self._waiting = [
            _Step(
                int(steps.index[row]),
                bool(steps.begins[row]),
                bool(steps.terminated[row]),
                bool(steps.truncated[row]),
                float(steps.rewards[row]),
                {name: np.array(steps.before[name][row]) for name in self._entries},
                np.array(steps.actions[row]),
                {name: np.array(steps.after[name][row]) for name in self._entries},
            )
            for row in range(len(steps))
        ]
        self._last = {int(index): dict(observation) for index, observation in state["last"].items()}
        self._fresh = set(state["fresh"])
