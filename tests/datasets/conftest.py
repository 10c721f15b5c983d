"""A small spec, episodes of random numbers, and whether two are the same."""

from dataclasses import fields

import numpy as np
import pytest

from factories import axes, make_spec, picture_spec
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
    random = np.random.default_rng(seed)
    facts = {
        "observations": {
            "joint_position": random.normal(size=(steps + 1, 3)).astype(np.float32),
            "camera_wrist": random.integers(0, 256, (steps + 1, 8, 6, 3), np.uint8),
        },
        "actions": random.uniform(-1, 1, (steps, 2)).astype(np.float32),
        "policy_actions": random.uniform(-1, 1, (steps, 2)).astype(np.float32),
        "rewards": random.normal(size=steps).astype(np.float32),
        "sources": random.integers(0, 5, steps).astype(np.int8),
        "timestamps": np.cumsum(random.uniform(0.04, 0.06, steps + 1)),
        "reward_terms": {"reach": np.where(random.random(steps) < 0.3, np.nan, 1.0).astype(np.float32)},
        "terminated": False,
        "truncated": True,
        "stop_reason": "time_limit",
        "success": None,
        "seed": seed,
        "spec_fingerprint": SPEC.fingerprint,
        "instruction": "pick up the cube — ein Würfel 🧊",
        "metadata": {"source": "test", "operator": {"shift": 2}},
    }
    return Episode(**(facts | changes))


def are_same(first: Episode, second: Episode) -> bool:
    return all(_same(getattr(first, field.name), getattr(second, field.name)) for field in fields(Episode))


def _same(first: object, second: object) -> bool:
    if isinstance(first, np.ndarray):
        is_alike = isinstance(second, np.ndarray) and (first.dtype, first.shape) == (second.dtype, second.shape)
        return is_alike and first.tobytes() == second.tobytes()
    if isinstance(first, dict):
        return isinstance(second, dict) and first.keys() == second.keys() and all(_same(first[k], second[k]) for k in first)
    return first == second


@pytest.fixture
def make_episode():
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
        return Episode(
            {"x": x[:, None]}, actions, actions, x[:-1], np.zeros(steps, np.int8), np.arange(steps + 1.0),
            False, True, "time_limit", None, None, NUMBERS.fingerprint,
        )  # fmt: skip

    return make
