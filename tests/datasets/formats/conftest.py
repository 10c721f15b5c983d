"""Datasets with everything that an episode can hold, and what of an episode another has not."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from factories import choices, make_spec, picture_spec, rich_episode
from robo_datasets.dataset import Dataset
from robo_datasets.labels import LabelSet
from robo_rl.spec.environment import ActionSpec, ArraySpec, EnvironmentSpec
from robo_rl.types import Episode, RewardLabels

VECTORS = (
    ArraySpec("joint_position", (3,), unit="rad"),
    ArraySpec("cube", (2, 2), role="object", unit="m"),
    ArraySpec("height", (), role="goal", unit="m"),
    ArraySpec("count", (), "int64", 0, 99),
    ArraySpec("friction", (1,), role="privileged"),
)
CAMERAS = tuple(picture_spec(f"camera_{name}", (8, 6, 3)) for name in ("wrist", "top"))
FLAT = (ArraySpec("motion", (4,), unit="mixed"),)
REACH = ActionSpec(("x", "y"), (-0.1, -0.2), (0.1, 0.2), ("m", "m"), mode="end_effector_delta", control_period=0.05)
CHOICE = choices("left", "right", "stay")


def spec_of(arrays=(*VECTORS, *CAMERAS), action=REACH) -> EnvironmentSpec:
    return make_spec("test/Cell-v0", *arrays, action=action, instruction="reach", max_steps=50)


def episode_of(spec: EnvironmentSpec, draw: int = 0, steps: int = 4, **changes: object) -> Episode:
    costs = np.random.default_rng(draw).random(steps).astype(np.float32)
    return replace(rich_episode(spec, steps, draw, costs=costs, stop_reason="operator"), **changes)


def dataset_of(path, spec: EnvironmentSpec, episodes) -> Dataset:
    dataset = Dataset.create(path, spec, {"how": "by hand"})
    with dataset.writer() as writer:
        entries = [writer.add(episode) for episode in episodes]
    dataset.catalogue.note(entries[0].identity, "gripper slipped — zweimal")
    for name in ("progress", "vlm"):
        values = np.linspace(0, 1, entries[-1].steps, dtype=np.float32)
        labels = RewardLabels(values, values < 0.5, f"model {name}", "w", "p", values if name == "vlm" else None)
        LabelSet(dataset, name).add(entries[-1].identity, labels)
    return dataset


def differing(first: Episode, second: Episode) -> set[str]:
    """Returns the names of what is not the same to the bit; "observations.x" and "reward_terms.x" apart."""
    names = set()
    for field in fields(Episode):
        one, other = getattr(first, field.name), getattr(second, field.name)
        if field.name == "costs":
            names |= {"costs" for key in {*one, *other} if not alike(one.get(key), other.get(key))}
        elif field.name in ("observations", "reward_terms"):
            names |= {f"{field.name}.{key}" for key in {*one, *other} if not alike(one.get(key), other.get(key))}
        elif not alike(one, other):
            names.add(field.name)
    return names


def alike(one: object, other: object) -> bool:
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    return type(one) is type(other) and one == other


@pytest.fixture
def make(tmp_path):
    """Returns a function that makes a dataset of a spec and episodes."""
    return lambda name="data", spec=None, steps=(4, 1, 6), **changes: dataset_of(
        tmp_path / name,
        spec or spec_of(),
        [episode_of(spec or spec_of(), index, count, **changes) for index, count in enumerate(steps)],
    )


@pytest.fixture
def cells():
    """Returns what builds specs and episodes, for tests that need their own."""
    return {"spec": spec_of, "episode": episode_of, "dataset": dataset_of, "differing": differing, "replace": replace} | {
        name: value for name, value in globals().items() if name.isupper()
    }
