"""A rollout that other processes collected: T steps of N environments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from robo_rl.training.on_policy import VectorStep
from robo_rl.types import Array, StateDict

COLUMNS = ("actions", "rewards", "terminated", "truncated")


@dataclass(frozen=True)
class CollectedRollout:
    """T steps of N environments, collected in other processes."""

    observations: Mapping[str, Array]
    """name -> (T+1, N, ...); after the end of an episode, the first observation of the next episode"""
    actions: Array
    """(T, N, ...) actions as the policy sampled them"""
    rewards: npt.NDArray[Any]
    """(T, N) rewards"""
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    final_observations: Mapping[str, Array]
    """name -> (K, ...): the last observations of the K episodes that were cut, ordered by step, then by environment; empty if K
    is 0"""
    begins: bool
    """True if every environment begins an episode with this rollout"""

    def steps(self) -> Iterator[VectorStep]:
        """Yield the T steps of the N environments in the form in which a training in one process gets them."""
        done = 0
        for step in range(len(self.rewards)):
            cut = int(np.count_nonzero(self.truncated[step] & ~self.terminated[step]))
            finals = {name: values[done : done + cut] for name, values in self.final_observations.items()} if cut else {}
            done += cut
            observations = {name: values[step + 1] for name, values in self.observations.items()}
            yield VectorStep(observations, self.rewards[step], self.terminated[step], self.truncated[step], finals)

    @classmethod
    def of(cls, parts: Sequence[StateDict]) -> CollectedRollout:
        """Return the rollout of all environments from the parts of several collectors, in the order of their environments."""
        joined = {name: np.concatenate([part[name] for part in parts], axis=1) for name in COLUMNS}
        names = parts[0]["observations"]
        observations = {name: np.concatenate([part["observations"][name] for part in parts], axis=1) for name in names}
        return cls(observations, **joined, final_observations=_finals(parts), begins=all(part["begins"] for part in parts))


def _finals(parts: Sequence[StateDict]) -> dict[str, Array]:
    cuts = [part["truncated"] & ~part["terminated"] for part in parts]
    numbers = np.cumsum(np.concatenate(cuts, axis=1)).reshape(len(cuts[0]), -1) - 1
    ends = np.cumsum([cut.shape[1] for cut in cuts])
    owned = [numbers[:, end - cut.shape[1] : end][cut] for cut, end in zip(cuts, ends, strict=True)]
    order = np.argsort(np.concatenate(owned))
    if not len(order):
        return {}
    return {name: np.concatenate([part["finals"][name] for part in parts])[order] for name in parts[0]["finals"]}
