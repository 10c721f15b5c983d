"""Steps from which a world model is learned. N steps, S elements of a state, A elements of an action.

A state is the observation as one vector, in the order of the spec. A discrete action is one-hot.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidSetting
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Array, Batch, Episode

SUCCESS = "success"
"""Name of the reward term that tells success step by step, as the environments here report it."""


@dataclass(frozen=True)
class Steps:
    """N independent steps with states of S numbers, from which a world model learns; their order has no meaning."""

    states: npt.NDArray[np.float32]
    """(N, S) states before the step"""
    actions: npt.NDArray[np.float32]
    """(N, A) actions, coded as vectors"""
    following: npt.NDArray[np.float32]
    """(N, S) states after the step"""
    rewards: npt.NDArray[np.float32]
    """(N,) rewards of the steps"""
    ends: npt.NDArray[np.bool_]
    """(N,) True if the task ended with the step; False at a time limit"""
    successes: npt.NDArray[np.bool_]
    """(N,) True if the step was a success; all False if success is not known"""

    def __len__(self) -> int:
        return len(self.rewards)

    @classmethod
    def of_episode(cls, spec: EnvironmentSpec, episode: Episode) -> Self:
        """Return the steps of an episode; raises InvalidSetting if it holds numbers that are not finite."""
        states = spec.observation.stack(episode.observations)
        ends = np.zeros(len(episode), np.bool_)
        ends[-1:] = episode.terminated
        told = episode.reward_terms.get(SUCCESS)
        successes = ends & bool(episode.success) if told is None else told > 0
        actions = coded(spec, episode.actions)
        for name, values in (("observations", states), ("actions", actions), ("rewards", episode.rewards)):
            if not np.isfinite(values).all():
                raise InvalidSetting(
                    f"The {name} of an episode are not finite.",
                    got=f"NaN or infinity in the episode with seed {episode.seed}",
                    fix="leave the episode out: robo-rl data filter",
                )
        return cls(states[:-1], actions, states[1:], episode.rewards.astype(np.float32), ends, successes)

    @classmethod
    def of_batch(cls, spec: EnvironmentSpec, batch: Batch) -> Self:
        """Return the steps of a batch of a replay memory; success is unknown there."""
        states, following = spec.observation.stack(batch.observations), spec.observation.stack(batch.next_observations)
        ends = batch.masks == 0
        return cls(states, coded(spec, batch.actions), following, batch.rewards, ends, np.zeros_like(ends))

    @classmethod
    def joined(cls, parts: Iterable[Self]) -> Self:
        """Join the steps of one part or more into one object."""
        found = [*parts]
        return cls(*(np.concatenate([getattr(part, item.name) for part in found]) for item in fields(cls)))

    def rows(self, chosen: Array) -> Self:
        """Return the steps of the rows `chosen`: row numbers (M,), or a mask (N,)."""
        return type(self)(*(getattr(self, item.name)[chosen] for item in fields(self)))

    def with_shuffled_actions(self, random: np.random.Generator) -> Self:
        """Return the steps with actions taken from other steps at random.

        This is a control: a model of these steps can learn nothing about the effect of actions.
        """
        return replace(self, actions=random.permutation(self.actions))


def coded(spec: EnvironmentSpec, actions: Array) -> npt.NDArray[np.float32]:
    """Return actions (N, ...) of a spec as vectors (N, A)."""
    if spec.action.is_discrete:
        return np.eye(spec.action.size, dtype=np.float32)[np.asarray(actions, np.int64)]
    return np.asarray(actions, np.float32)


def require_predictable(spec: EnvironmentSpec) -> None:
    """Raise InvalidSetting for a spec whose observations a world model of vectors cannot predict, such as pictures."""
    others = [array.name for array in spec.observation.arrays if np.dtype(array.dtype).kind != "f" or array.history > 1]
    if others or not spec.observation.size:
        raise InvalidSetting(
            "A world predicts vectors of numbers.",
            got=f"{', '.join(others) or 'no entry'} of {spec.name}",
            allowed="observations of floating-point numbers, without pictures and stacks",
            fix="record without cameras and frame_stack, or encode pictures first (wrapper encoded)",
        )


def arrays_of(spec: EnvironmentSpec, states: npt.NDArray[np.float32]) -> dict[str, Array]:
    """Split states (N, S) into the entries of the observation: name -> (N, *shape), copies."""
    found, begin = {}, 0
    for name, array in spec.observation.items():
        part = states[:, begin : begin + array.size]
        found[name] = np.array(part.reshape(len(states), *array.shape), array.dtype)
        begin += array.size
    return found


def limits_of(spec: EnvironmentSpec) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return the least and the largest value of each element of a state, (S,) each."""
    spaces = [array.space for array in spec.observation.arrays]
    low, high = (np.concatenate([getattr(space, side).ravel() for space in spaces]) for side in ("low", "high"))
    return low.astype(np.float32), high.astype(np.float32)
