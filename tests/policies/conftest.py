"""What the tests of learners share: a small spec, random batches and a comparison of states bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from robo_rl.spec.environment import ActionSpec, ArraySpec, EnvironmentSpec, ObservationSpec
from robo_rl.types import Batch

OBSERVATION = ObservationSpec(
    (
        ArraySpec("joint_position", (2,)),
        ArraySpec("camera_front", (2, 2, 3), "uint8", 0, 255, role="image"),
        ArraySpec("object_mass", (1,), role="privileged"),
        ArraySpec("goal", (1,), role="goal"),
    )
)


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """One thread of a tensor operation, so that sums are equal bit for bit."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def spec() -> EnvironmentSpec:
    """Two joints and a goal that a policy sees, a picture and a mass that it does not."""
    return EnvironmentSpec("policy-test", OBSERVATION, ActionSpec(("a", "b"), (-1.0, -1.0), (1.0, 1.0), ("1", "1")))


@pytest.fixture
def discrete_spec() -> EnvironmentSpec:
    return EnvironmentSpec("choice-test", OBSERVATION, ActionSpec(("left", "right", "stay"), mode="discrete"))


@pytest.fixture
def make_batch():
    """Returns random batches for a spec; keyword arguments replace arrays."""

    def make(spec: EnvironmentSpec, size: int, seed: int = 0, **replaced: Any) -> Batch:
        random = np.random.default_rng(seed)
        actions = (
            random.integers(spec.action.size, size=size)
            if spec.action.is_discrete
            else random.uniform(-1, 1, (size, spec.action.size)).astype(np.float32)
        )
        arrays = {
            "observations": observations(random, size),
            "actions": actions,
            "rewards": random.normal(size=size).astype(np.float32),
            "masks": (random.random(size) < 0.7).astype(np.float32),
            "discounts": np.full(size, 0.9, np.float32),
            "next_observations": observations(random, size),
            "weights": np.ones(size, np.float32),
            "sources": np.zeros(size, np.int8),
        }
        return Batch(**(arrays | replaced))

    return make


@pytest.fixture
def leaves():
    """Returns the leaves of a nested state as bytes or values, for comparison bit for bit."""

    def flatten(state: Any, path: str = "") -> dict[str, Any]:
        if isinstance(state, dict):
            return {key: value for name, part in state.items() for key, value in flatten(part, f"{path}/{name}").items()}
        return {path: np.asarray(state).tobytes() if hasattr(state, "__array__") else state}

    return flatten


def observations(random: np.random.Generator, size: int) -> dict[str, np.ndarray]:
    return {
        "joint_position": random.normal(size=(size, 2)).astype(np.float32),
        "camera_front": random.integers(0, 256, (size, 2, 2, 3)).astype(np.uint8),
        "object_mass": random.normal(size=(size, 1)).astype(np.float32),
        "goal": random.normal(size=(size, 1)).astype(np.float32),
    }
