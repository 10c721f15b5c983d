"""A small spec, episodes of random numbers, and whether two are the same."""

from dataclasses import fields

import numpy as np
import pytest

from factories import axes, make_episode, make_spec, picture_spec, rich_episode
from robo_datasets.dataset import Dataset
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec
from robo_rl.types import Episode

SPEC = make_spec(
    "test/Cell-v0",
    ArraySpec("joint_position", (3,), unit="rad"),
    picture_spec("camera_wrist", (8, 6, 3)),
    action=axes("x", "y", limit=0.1, unit="m", mode="end_effector_delta", control_period=0.05),
)


def episode_of(seed: int = 0, steps: int = 5, **changes: object) -> Episode:
    return rich_episode(SPEC, steps, seed, **changes)


def are_same(first: Episode, second: Episode) -> bool:
    return all(_same(getattr(first, field.name), getattr(second, field.name)) for field in fields(Episode))


def _same(first: object, second: object) -> bool:
    if isinstance(first, np.ndarray):
        is_alike = isinstance(second, np.ndarray) and (first.dtype, first.shape) == (second.dtype, second.shape)
        return is_alike and first.tobytes() == second.tobytes()
    if isinstance(first, dict):
        return isinstance(second, dict) and first.keys() == second.keys() and all(_same(first[k], second[k]) for k in first)
    return first == second


@pytest.fixture(name="make_episode")
def episode_factory():
    return episode_of


@pytest.fixture
def same():
    return are_same


@pytest.fixture
def spec() -> EnvironmentSpec:
    return SPEC


@pytest.fixture
def dataset(tmp_path) -> Dataset:
    return Dataset.create(tmp_path / "data", SPEC, {"how": "by hand"})


NUMBERS = make_spec("test/Numbers-v0", ArraySpec("x", (1,)))


@pytest.fixture(scope="session")
def spec_of_numbers() -> EnvironmentSpec:
    return NUMBERS


@pytest.fixture(scope="session")
def numbered():
    """Makes episode `number`, whose step k observes and is rewarded 100 * number + k, and acts a thousandth of it."""

    def make(number: int, steps: int) -> Episode:
        x = 100 * number + np.arange(steps + 1, dtype=np.float32)
        actions = (x[:-1, None] / 1000).astype(np.float32)
        return make_episode({"x": x[:, None]}, actions=actions, rewards=x[:-1], spec_fingerprint=NUMBERS.fingerprint)

    return make
