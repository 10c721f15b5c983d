"""The last steps of N environments, in arrays allocated once, and the same steps as rows to learn from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from robo_policies.tanh_towers import Floats
from robo_rl.spec import ActionSpec
from robo_rl.types import Array, StateDict


class Trajectories:
    """T steps of N environments; `inputs` carries a last column of ones, which meets the biases of the networks."""

    def __init__(self, steps: int, environments: int, observation_size: int, action: ActionSpec) -> None:
        self.inputs = np.ones((steps + 1, environments, observation_size + 1), np.float32)
        """(T+1, N, D+1) scaled observations; the last row is what the newest step led to"""
        self.actions: Array = np.zeros((steps, environments, *action.shape), action.dtype)
        """(T, N, ...) as drawn, before any clipping"""
        self.rewards = np.zeros((steps, environments), np.float32)
        """(T, N) scaled"""
        self.ended = np.zeros((steps, environments), np.bool_)
        """(T, N) whether an episode ended with this step, for whatever reason"""
        self.final_values = np.zeros((steps, environments), np.float32)
        """(T, N) value of the last observation of an episode that was cut, 0 elsewhere"""
        self.known = np.ones((steps, environments), np.bool_)
        """(T, N) whether the reward is known; a model may have given none"""
        self.length = 0

    @property
    def is_full(self) -> bool:
        """True once T steps are stored."""
        return self.length == len(self.rewards)

    @property
    def newest(self) -> Floats:
        """The newest scaled observations (N, D+1)."""
        newest: Floats = self.inputs[self.length]
        return newest

    @property
    def learnt(self) -> npt.NDArray[np.int64] | slice:
        """Returns the rows to learn from: all, or with others in the place of those whose reward is not known."""
        known = np.flatnonzero(flat(self.known))
        return slice(None) if len(known) == self.known.size else np.resize(known, self.known.size)

    def begin(self, observations: Floats) -> None:
        """Forgets what is stored and begins with scaled observations (N, D)."""
        self.length = 0
        self.inputs[0, :, :-1] = observations

    def add(self, observations: Floats, rewards: Floats, ended: Array, final_values: Floats) -> None:
        """Stores the outcome of the actions at `length`, (N,) each, and the observations (N, D) that they led to."""
        step = self.length
        self.rewards[step], self.ended[step], self.final_values[step] = rewards, ended, final_values
        self.known[step] = True
        self.inputs[step + 1, :, :-1] = observations
        self.length = step + 1

    def restart(self) -> None:
        """Goes on with the newest observations and an empty store."""
        self.inputs[0] = self.inputs[self.length]
        self.length = 0

    def state_dict(self) -> StateDict:
        """Returns copies of what is stored."""
        return {name: np.array(value) for name, value in vars(self).items()}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned."""
        for name, value in vars(self).items():
            if name != "length" and name in state:  # a run of before models gave rewards knows all of them
                value[...] = state[name]
        self.length = int(state["length"])


@dataclass(frozen=True)
class Rows:
    """Steps of a rollout, in any order; B of them make a minibatch."""

    inputs: Floats
    """(B, D+1) scaled observations and a one"""
    actions: Array
    log_densities: Floats
    """(B,) of the policy that acted"""
    advantages: Floats
    """(B,)"""
    returns: Floats
    """(B,) what the values should be"""

    def __getitem__(self, index: Any) -> Rows:
        return Rows(**{name: value[index] for name, value in vars(self).items()})

    def minibatches(self, size: int, generator: np.random.Generator) -> Iterator[Rows]:
        """Yields minibatches that hold every row once, copied once for all, with advantages of mean 0 and deviation 1.

        Differs from algorithm 1 of PPO: advantages are normalised within a minibatch, as in Stable-Baselines3.
        """
        order = generator.permutation(len(self.returns))
        shuffled = self[order]
        by_batch = shuffled.advantages.reshape(-1, size)
        by_batch -= by_batch.mean(1, keepdims=True)
        by_batch /= by_batch.std(1, ddof=1, keepdims=True) + np.float32(1e-8)
        return (shuffled[start : start + size] for start in range(0, len(order), size))


def flat(values: Array) -> Array:
    """Returns (T, N, ...) as (N T, ...), environment after environment."""
    return values.swapaxes(0, 1).reshape(-1, *values.shape[2:])
