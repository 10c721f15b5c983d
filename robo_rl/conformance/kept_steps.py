"""Read the steps that a training has stored in its replay memories, ours or those of Stable-Baselines3, to check them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from robo_rl.conformance.swerving import LENGTH
from robo_rl.protocols.components import Training
from robo_rl.replay.buffer import ReplayBuffer
from robo_rl.replay.imagined import ImaginedBuffer
from robo_rl.replay.recorded import RecordedReplay
from robo_rl.spec.environment import ActionSpec, EnvironmentSpec

_ROWS = 512  # that are drawn from a memory


@dataclass(frozen=True)
class Rows:
    """B transitions read from a replay memory, with the truth about them that their observations hold."""

    actions: npt.NDArray[np.floating]
    """(B, A) stored actions; discrete ones as one-hot vectors."""
    executed: npt.NDArray[np.floating]
    """(B, A) executed actions, from the observations"""
    terminated: npt.NDArray[np.bool_]
    """(B,) True if the step is stored as the end of the task"""
    should_terminate: npt.NDArray[np.bool_]
    """(B,) True if the task terminated, from the observations"""
    diverged: npt.NDArray[np.bool_]
    """(B,) True if the simulation diverged, from the observations"""
    numbers: npt.NDArray[np.int64]
    """(B,) number of the step in its episode, from 1"""
    sources: npt.NDArray[np.int8] | None
    """(B,) values of ActionSource, as stored; None if the memory does not store them."""


def rows_of(memory: Any, spec: EnvironmentSpec) -> Rows:
    """Return random rows of a replay memory, ours or one of Stable-Baselines3's kind, with what their observations tell."""
    batch = memory.sample(_ROWS)
    seen = batch.next_observations
    if not isinstance(seen, Mapping):
        sizes = np.cumsum([0, *(entry.size for entry in spec.observation.arrays)])
        flat = np.asarray(seen)
        seen = {entry.name: flat[:, sizes[i] : sizes[i + 1]] for i, entry in enumerate(spec.observation.arrays)}
    actions = np.asarray(batch.actions)
    if spec.action.is_discrete:
        actions = np.eye(spec.action.size)[actions.reshape(-1)]
    ended = batch.masks == 0 if hasattr(batch, "masks") else np.asarray(batch.dones).reshape(-1) > 0
    step, kind = seen["step"], seen["kind"][:, 0]
    numbers = np.rint(step[:, 0] * LENGTH).astype(np.int64)
    return Rows(
        actions,
        seen["executed"],
        ended,
        (step[:, 0] > 0.99) & (kind > 0.5),
        step[:, 1] > 0.5,
        numbers,
        getattr(batch, "sources", None),
    )


def memories(training: Training, action: ActionSpec) -> Iterator[Any]:
    """Search a training for replay memories of executed steps that are not empty, and yield each.

    action: Spec of the actions of the project's own memories; those of Stable-Baselines3 have none and are always yielded.
    """
    seen, waiting = set[int](), list[tuple[Any, int]]([(training, 0)])
    while waiting:
        thing, depth = waiting.pop()
        if id(thing) in seen or depth > 6:
            continue
        seen.add(id(thing))
        if isinstance(thing, ReplayBuffer | RecordedReplay) or _is_foreign_memory(thing):
            is_of_others = isinstance(thing, ImaginedBuffer) or (
                isinstance(thing, ReplayBuffer) and thing.spec.action != action
            )
            if _size(thing) and not is_of_others:
                yield thing
            continue
        waiting += [(part, depth + 1) for part in _parts(thing)]


def _is_foreign_memory(thing: Any) -> bool:
    return hasattr(thing, "next_observations") and hasattr(thing, "sample") and hasattr(thing, "size")


def _size(memory: Any) -> int:
    return len(memory) if isinstance(memory, ReplayBuffer | RecordedReplay) else int(memory.size())


def _parts(thing: Any) -> Iterable[Any]:
    if isinstance(thing, Mapping):
        return list(thing.values())
    if isinstance(thing, list | tuple):
        return list(thing)[:16]
    module = type(thing).__module__.split(".")[0]
    is_data = module in ("builtins", "numpy", "torch", "gymnasium")
    return [] if is_data or isinstance(thing, type) else list(getattr(thing, "__dict__", {}).values())
