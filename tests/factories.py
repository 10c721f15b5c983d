"""Small specs, episodes and datasets for tests: everything has a default, and every default can be replaced."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from robo_datasets.dataset import Dataset
from robo_rl.spec.environment import ActionMode, ActionSpec, ArraySpec, EnvironmentSpec, ObservationSpec
from robo_rl.types import Episode


def picture_spec(name: str = "camera_front", shape: tuple[int, int, int] = (4, 4, 3)) -> ArraySpec:
    """Return the spec of a camera's picture: uint8 (H, W, C)."""
    return ArraySpec(name, shape, "uint8", 0, 255, role="image")


def axes(
    *names: str, limit: float = 1.0, unit: str = "1", mode: ActionMode = "joint_position", control_period: float | None = None
) -> ActionSpec:
    """Return a continuous action of named axes, all from -limit to limit in one unit."""
    count = len(names)
    return ActionSpec(names, (-limit,) * count, (limit,) * count, (unit,) * count, mode, control_period)


def choices(*names: str) -> ActionSpec:
    """Return a discrete action."""
    return ActionSpec(names, mode="discrete")


def make_spec(name: str, *arrays: ArraySpec, action: ActionSpec | None = None, **settings: Any) -> EnvironmentSpec:
    """Return the spec of an environment that observes some arrays; the action is one axis by default."""
    return EnvironmentSpec(name, ObservationSpec(arrays), action or axes("a"), **settings)


def make_episode(spec: EnvironmentSpec, steps: int = 5, seed: int | None = 0, **changes: Any) -> Episode:
    """Return an episode of random numbers that ends at a time limit; `changes` replace fields.

    Observations given in `changes` by name replace those arrays alone if `observations` is a partial mapping.
    """
    random = np.random.default_rng(seed)
    given = changes.pop("observations", {})
    actions = _actions(spec.action, steps, random)
    facts: dict[str, Any] = {
        "observations": {
            name: _values(array, steps + 1, random) for name, array in spec.observation.items() if name not in given
        }
        | given,
        "actions": actions,
        "policy_actions": changes.get("actions", actions),
        "rewards": random.normal(size=steps).astype(np.float32),
        "sources": np.zeros(steps, np.int8),
        "timestamps": np.arange(steps + 1.0),
        "terminated": False,
        "truncated": True,
        "stop_reason": "time_limit",
        "success": None,
        "seed": seed,
        "spec_fingerprint": spec.fingerprint,
    }
    return Episode(**(facts | changes))


def fill(dataset: Dataset, episodes: Iterable[Episode]) -> Dataset:
    """Write episodes into a dataset and return it."""
    with dataset.writer() as writer:
        for episode in episodes:
            writer.add(episode)
    return dataset


def make_dataset(path: Path, spec: EnvironmentSpec, episodes: Iterable[Episode]) -> Dataset:
    """Return a new dataset of some episodes."""
    return fill(Dataset.create(path, spec), episodes)


def _values(array: ArraySpec, rows: int, random: np.random.Generator) -> npt.NDArray[Any]:
    shape = (rows, *array.shape)
    if np.dtype(array.dtype).kind in "iu":
        values: npt.NDArray[Any] = random.integers(0, 100, shape)
    else:
        values = random.normal(size=shape)
    return values.astype(array.dtype)


def _actions(action: ActionSpec, steps: int, random: np.random.Generator) -> npt.NDArray[Any]:
    if action.is_discrete:
        return random.integers(action.size, size=steps)
    return random.uniform(-1, 1, (steps, action.size)).astype(np.float32)
