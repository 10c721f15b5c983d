"""Synthetic specs, episodes, and datasets of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from robo_datasets.dataset import Dataset
from robo_rl.spec.environment import ActionSpec, ArraySpec, EnvironmentSpec, ObservationSpec
from robo_rl.types import ActionSource, Array, Episode


def camera(size: int) -> ArraySpec:
    """Return the spec of pictures (size, size, 3)."""
    return ArraySpec("camera_front", (size, size, 3), "uint8", 0, 255, role="image")


def spec_of(name: str, observed: ArraySpec, actions: int = 1, **settings: Any) -> EnvironmentSpec:
    """Return the spec of a benchmark's environment with one observation and with actions in [-1, 1].

    Args:
        name: Name of the environment.
        observed: Spec of the observation.
        actions: Number of action elements, at most 6.
        settings: Further fields of the ActionSpec.
    """
    bounds = (-1.0,) * actions, (1.0,) * actions
    action = ActionSpec(tuple("abcdef")[:actions], *bounds, ("1",) * actions, **settings)
    return EnvironmentSpec(name, ObservationSpec((observed,)), action)


def episode_of(
    spec: EnvironmentSpec, observations: Array, actions: Array, rewards: Array, seed: int, *, period: float = 1.0
) -> Episode:
    """Return an episode that its time limit ended.

    observations: (T + 1, ...) of the one name in the spec; actions: (T, A); rewards: (T,); period: [s] between two steps.
    """
    (name,) = spec.observation
    return Episode(
        observations={name: observations},
        actions=actions,
        policy_actions=actions,
        rewards=rewards,
        sources=np.full(len(actions), ActionSource.SCRIPT, np.int8),
        timestamps=np.arange(len(actions) + 1, dtype=np.float64) * period,
        terminated=False,
        truncated=True,
        stop_reason="time_limit",
        success=None,
        seed=seed,
        spec_fingerprint=spec.fingerprint,
    )


def dataset_of(path: Path, spec: EnvironmentSpec, episodes: Iterable[Episode]) -> Dataset:
    """Write episodes to a new dataset at `path`, and return the dataset."""
    dataset = Dataset.create(path, spec)
    with dataset.writer() as writer:
        for episode in episodes:
            writer.add(episode)
    return dataset
