"""The last steps of N environments, in arrays allocated once, and the same steps as rows to learn from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from robo_policies.networks.sight import Seen, Views
from robo_policies.networks.tanh_towers import Floats
from robo_rl.spec import ActionSpec, ArraySpec
from robo_rl.types import Array, StateDict


class Trajectories:
    """T steps of N environments; `inputs` carries a last column of ones, which meets the biases of the networks.

    Where there are pictures, what is seen comes as Views of them, else as rows of `inputs`.
    """

    def __init__(
        self,
        steps: int,
        environments: int,
        observation_size: int,
        action: ActionSpec,
        pictures: Sequence[ArraySpec] = (),
    ) -> None:
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
        self.valid = np.ones((steps, environments), np.bool_)
        """(T, N) False if a model has given no reward"""
        self.pictures = {each.name: np.zeros((steps + 1, environments, *each.shape), np.uint8) for each in pictures}
        """name -> (T+1, N, height, width, channels)"""
        self.length = 0

    @property
    def is_full(self) -> bool:
        """True once T steps are stored."""
        return self.length == len(self.rewards)

    @property
    def newest(self) -> Seen:
        """The newest scaled observations, N rows."""
        environments = self.inputs.shape[1]
        return self._seen(self.inputs[self.length], slice(self.length * environments, (self.length + 1) * environments))

    @property
    def everything(self) -> Seen:
        """All observations of the stored steps, (length + 1) N rows, step after step."""
        rows = (self.length + 1) * self.inputs.shape[1]
        return self._seen(self.inputs.reshape(-1, self.inputs.shape[-1])[:rows], slice(rows))

    @property
    def acted_on(self) -> Seen:
        """The observations of all stored actions, N length rows, environment after environment."""
        steps, environments = self.length, self.rewards.shape[1]
        return self._seen(flat(self.inputs[:steps]), flat(np.arange(steps * environments).reshape(steps, environments)))

    def _seen(self, vectors: Floats, rows: slice | npt.NDArray[np.int64]) -> Seen:
        if not self.pictures:
            return vectors
        stored = {name: frames.reshape(-1, *frames.shape[2:]) for name, frames in self.pictures.items()}
        return Views(vectors, stored, np.arange(self.inputs.shape[0] * self.inputs.shape[1])[rows])

    @property
    def learnt(self) -> npt.NDArray[np.int64] | slice:
        """Returns the rows to learn from: all, or with others in place of those without a reward."""
        stored = self.valid[: self.length]
        valid = np.flatnonzero(flat(stored))
        return slice(None) if len(valid) == stored.size else np.resize(valid, stored.size)

    def begin(self, observations: Floats, raw: Mapping[str, Array]) -> None:
        """Forgets what is stored and begins with scaled observations (N, D) and the pictures among the raw ones."""
        self.length = 0
        self._place(0, observations, raw)

    def add(self, observations: Floats, rewards: Floats, ended: Array, final_values: Floats, raw: Mapping[str, Array]) -> None:
        """Stores the outcome of the actions at `length`, (N,) each, and the observations that they led to, as `begin` does."""
        step = self.length
        self.rewards[step], self.ended[step], self.final_values[step] = rewards, ended, final_values
        self.valid[step] = True
        self._place(step + 1, observations, raw)
        self.length = step + 1

    def _place(self, step: int, observations: Floats, raw: Mapping[str, Array]) -> None:
        self.inputs[step, :, :-1] = observations
        for name, frames in self.pictures.items():
            frames[step] = raw[name]

    def restart(self) -> None:
        """Goes on with the newest observations and an empty store."""
        for stored in (self.inputs, *self.pictures.values()):
            stored[0] = stored[self.length]
        self.length = 0

    def state_dict(self) -> StateDict:
        """Returns copies of what is stored."""
        return {name: np.array(value) for name, value in self._arrays().items()} | {"length": np.array(self.length)}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned."""
        for name, value in self._arrays().items():
            if name in state:  # a run of before models gave rewards knows all of them
                value[...] = state[name]
        self.length = int(state["length"])

    def _arrays(self) -> dict[str, Array]:
        arrays = {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return arrays | {f"pictures_{name}": frames for name, frames in self.pictures.items()}


@dataclass(frozen=True)
class Rows:
    """Steps of a rollout, in any order; B of them make a minibatch."""

    inputs: Seen
    """(B, D+1) scaled observations and a one, and pictures where there are some"""
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

        Differs from algorithm 1 of PPO: advantages are normalised within a minibatch, as in Stable-Baselines3. Rows that `size`
        does not divide, those of a rollout that the end of the training shortens, make as many minibatches as have that size;
        each is a little larger, and at most as many rows as there are minibatches are left out of a pass.
        """
        order = generator.permutation(len(self.returns))
        size = len(order) // (count := max(1, len(order) // size))
        shuffled = self[order[: size * count]]
        by_batch = shuffled.advantages.reshape(-1, size)
        by_batch -= by_batch.mean(1, keepdims=True)
        by_batch /= by_batch.std(1, ddof=1, keepdims=True) + np.float32(1e-8)
        return shuffled.parts(size)

    def parts(self, size: float) -> Iterator[Rows]:
        """Yields parts of so many rows, the last perhaps of fewer."""
        if len(self.returns) <= size:
            return iter((self,))
        return (self[start : start + int(size)] for start in range(0, len(self.returns), int(size)))


def flat(values: Array) -> Array:
    """Returns (T, N, ...) as (N T, ...), environment after environment."""
    return values.swapaxes(0, 1).reshape(-1, *values.shape[2:])
