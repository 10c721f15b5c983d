"""Rollout of PPO: T steps of N environments, its minibatches, and running normalisation (VecNormalize's)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from robo_policies.networks.policy_value import Floats
from robo_rl.spec import ActionSpec, ArraySpec
from robo_rl.types import Array, StateDict

LARGEST = 10.0  # standard deviations; VecNormalize's limit for observations and rewards
SMALLEST_VARIANCE = 1e-8  # added under the root, as there
FIRST_COUNT = 1e-4  # weight of the first guess, mean 0 and variance 1, as there


class RolloutBuffer:
    """Arrays (T, N, ...) allocated once; observations have one more step, what the newest step led to."""

    def __init__(
        self, steps: int, environments: int, size: int, action: ActionSpec, pictures: Sequence[ArraySpec] = ()
    ) -> None:
        self.vectors = np.zeros((steps + 1, environments, size), np.float32)
        """(T+1, N, D+P) scaled."""
        self.pictures = {each.name: np.zeros((steps + 1, environments, *each.shape), each.dtype) for each in pictures}
        self.actions: Array = np.zeros((steps, environments, *action.shape), action.dtype)
        """(T, N, ...) as drawn, before any clipping."""
        self.rewards = np.zeros((steps, environments), np.float32)
        """(T, N) scaled."""
        self.ended = np.zeros((steps, environments), np.bool_)
        """(T, N) True if an episode ended with the step, for whatever reason."""
        self.final_values = np.zeros((steps, environments), np.float32)
        """(T, N) value of the last observation of an episode that was cut, 0 elsewhere."""
        self.valid = np.ones((steps, environments), np.bool_)
        """(T, N) False if a model gave no reward."""
        self.returns = np.zeros(environments)
        """(N,) discounted return of each running episode, by which rewards are scaled."""
        self.length = 0

    def begin(self, vectors: Floats, raw: Mapping[str, Array]) -> None:
        """Begin with scaled vectors (N, D+P), and pictures among the raw observations."""
        self.length = 0
        self._place(0, vectors, raw)

    def add(self, vectors: Floats, rewards: Floats, ended: Array, final_values: Floats, raw: Mapping[str, Array]) -> None:
        """Store the outcome of the actions at `length`, (N,) each, and the observations that they led to."""
        step = self.length
        self.rewards[step], self.ended[step], self.final_values[step], self.valid[step] = rewards, ended, final_values, True
        self._place(step + 1, vectors, raw)
        self.length = step + 1

    def _place(self, step: int, vectors: Floats, raw: Mapping[str, Array]) -> None:
        self.vectors[step] = vectors
        for name, frames in self.pictures.items():
            frames[step] = raw[name]

    def restart(self) -> None:
        """Go on with the newest observations and an empty store."""
        for stored in (self.vectors, *self.pictures.values()):
            stored[0] = stored[self.length]
        self.length = 0

    def newest(self) -> tuple[Floats, dict[str, Array]]:
        """Return vectors (N, D+P) and pictures (N, ...) of the newest observations."""
        return self.vectors[self.length], {name: frames[self.length] for name, frames in self.pictures.items()}

    def state_dict(self) -> StateDict:
        """Return copies of what is stored."""
        return {name: np.array(value) for name, value in self._arrays().items()} | {"length": np.array(self.length)}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore what `state_dict` returned."""
        for name, value in self._arrays().items():
            value[...] = state[name]
        self.length = int(state["length"])

    def _arrays(self) -> dict[str, Array]:
        arrays = {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return arrays | {f"pictures_{name}": frames for name, frames in self.pictures.items()}


def minibatches(rows: Sequence[Tensor], order: npt.NDArray[np.int64], size: int) -> list[tuple[Tensor, ...]]:
    """Return minibatches of rows in an order; of the rows only the last of each, advantages, changes: mean 0, deviation 1.

    Differs from algorithm 1 of PPO: advantages are normalised within a minibatch, as in Stable-Baselines3. If `size` does not
    divide the rows, there are as many minibatches as have that size, each a little larger; fewer rows than those are left out.
    """
    size = len(order) // (count := max(1, len(order) // size))
    index = torch.from_numpy(order[: size * count]).to(rows[0].device)
    *others, advantages = (each.index_select(0, index) for each in rows)
    table = advantages.view(count, size)
    scaled = (table - table.mean(1, keepdim=True)) / (table.std(1, keepdim=True) + 1e-8)
    return list(zip(*(each.chunk(count) for each in others), scaled.unbind(), strict=True))


class Normalizer:
    """Scales by mean and variance of all values so far, which are merged batch by batch (Chan et al. 1979)."""

    def __init__(self, size: int, *, is_on: bool = True, is_centred: bool = True) -> None:
        """Without `is_on` values stay as they are; without `is_centred` they keep their signs."""
        self.mean: npt.NDArray[np.float64] = np.zeros(size)
        self.variance: npt.NDArray[np.float64] = np.ones(size)
        self.count = FIRST_COUNT
        self._is_on, self._is_centred = is_on, is_centred

    def merge(self, values: Array) -> None:
        """Merge values (B, size)."""
        if not self._is_on:
            return
        rows = len(values)
        total = self.count + rows
        mean = np.add.reduce(values, 0, dtype=np.float64) / rows
        centred = values - mean
        squares = np.einsum("bn,bn->n", centred, centred)
        difference = mean - self.mean
        self.mean = self.mean + difference * (rows / total)
        squares += self.variance * self.count + difference * difference * (self.count * rows / total)
        self.variance, self.count = squares / total, total

    def scaled(self, values: Array) -> Floats:
        """Return values (B, size), or the first of their columns, in standard deviations, clipped to +-LARGEST."""
        if not self._is_on:
            return np.asarray(values, np.float32)
        size = values.shape[1]
        centred = values - self.mean[:size] if self._is_centred else values
        scaled = centred / np.sqrt(self.variance[:size] + SMALLEST_VARIANCE)
        return np.minimum(np.maximum(scaled, -LARGEST), LARGEST).astype(np.float32)

    def state_dict(self) -> StateDict:
        """Return the moments, copied."""
        return {"mean": np.array(self.mean), "variance": np.array(self.variance), "count": float(self.count)}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore what `state_dict` returned."""
        self.mean, self.variance, self.count = np.array(state["mean"]), np.array(state["variance"]), float(state["count"])
