"""Small specs, episodes and datasets for tests: everything has a default, and every default can be replaced.

And the environment of a process that a stranger starts.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from robo_datasets.dataset import Dataset
from robo_rl.spec.environment import ActionMode, ActionSpec, ArraySpec, EnvironmentSpec, ObservationSpec
from robo_rl.types import Episode

TESTS_OWN = ("MUJOCO_GL", "OMP_NUM_THREADS", "SDL_VIDEODRIVER", "DISPLAY", "WAYLAND_DISPLAY", "PYTHONPATH")
"""Variables of the environment that conftest.py sets or that a stranger's machine without a display does not have."""


def bare_environment(**more: str) -> dict[str, str]:
    """Return the variables of the environment as a stranger without a display has them, and some more."""
    return {name: value for name, value in os.environ.items() if name not in TESTS_OWN} | more


def rest_slow(values: Iterable[Any], *, fast: int = 1) -> list[Any]:
    """Return values of a test's parameters, of which those after the first few are for `scripts/test slow`: they are alike."""
    rows = [value if isinstance(value, tuple) else (value,) for value in values]
    return [pytest.param(*row, marks=[pytest.mark.slow] if number >= fast else []) for number, row in enumerate(rows)]


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


def make_episode(observations: Mapping[str, npt.NDArray[Any]], **changes: Any) -> Episode:
    """Return an episode with these observations, (T+1, ...) each; the rest is zero unless `changes` names it.

    It ends at a time limit, or with the task if `terminated` is true.
    """
    steps = len(next(iter(observations.values()))) - 1
    is_terminated = changes.get("terminated", False)
    actions = changes.get("actions", np.zeros((steps, 1), np.float32))
    facts: dict[str, Any] = {
        "actions": actions,
        "policy_actions": actions,
        "rewards": np.zeros(steps, np.float32),
        "sources": np.zeros(steps, np.int8),
        "timestamps": np.arange(steps + 1.0),
        "terminated": is_terminated,
        "truncated": not is_terminated,
        "stop_reason": "goal" if is_terminated else "time_limit",
        "success": None,
        "seed": None,
        "spec_fingerprint": "",
    }
    return Episode(observations, **(facts | changes))


def random_episode(spec: EnvironmentSpec, steps: int = 5, seed: int = 0, **changes: Any) -> Episode:
    """Return an episode of random observations, actions and rewards that fits the spec."""
    random = np.random.default_rng(seed)
    facts: dict[str, Any] = {
        "observations": {name: _values(array, steps + 1, random) for name, array in spec.observation.items()},
        "actions": _actions(spec.action, steps, random),
        "policy_actions": _actions(spec.action, steps, random),
        "rewards": random.normal(size=steps).astype(np.float32),
        "seed": seed,
        "spec_fingerprint": spec.fingerprint,
    }
    return make_episode(**(facts | changes))


def rich_episode(spec: EnvironmentSpec, steps: int = 5, seed: int = 0, **changes: Any) -> Episode:
    """Return a random episode that has sources, uneven times, reward terms with gaps, an instruction and metadata, too."""
    random = np.random.default_rng(seed + 1000)
    facts: dict[str, Any] = {
        "sources": random.integers(0, 5, steps).astype(np.int8),
        "timestamps": np.cumsum(random.uniform(0.04, 0.06, steps + 1)),
        "reward_terms": {"reach": np.where(random.random(steps) < 0.3, np.nan, 1.0).astype(np.float32)},
        "instruction": "pick up the cube — ein Würfel 🧊",
        "metadata": {"source": "test", "operator": {"shift": 2}},
    }
    return random_episode(spec, steps, seed, **(facts | changes))


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
    if np.issubdtype(array.dtype, np.integer):
        return random.integers(0, 100, shape).astype(array.dtype)
    return random.normal(size=shape).astype(array.dtype)


def _actions(action: ActionSpec, steps: int, random: np.random.Generator) -> npt.NDArray[Any]:
    if action.is_discrete:
        return random.integers(action.size, size=steps)
    return random.uniform(-1, 1, (steps, action.size)).astype(np.float32)
