"""Record episodes into a dataset so that a crash loses at most one step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium

from robo_datasets.catalogue import Entry
from robo_datasets.dataset import DatasetWriter
from robo_rl.protocols import Policy, Supervisor
from robo_rl.rollout import Rollout


def record_episode(
    environment: gymnasium.Env[Any, Any],
    policy: Policy,
    writer: DatasetWriter,
    *,
    seed: int,
    source: str,
    supervisor: Supervisor | None = None,
    deterministic: bool = False,
) -> Entry:
    """Plays one episode and stores it; `source` says who acted. Until it is stored, a journal has every step.

    Raises SpecMismatch unless the environment is the dataset's.
    """
    rollout = Rollout(environment, policy, seed=seed, supervisor=supervisor, deterministic=deterministic)
    writer.dataset.spec.require(rollout.spec, what="The dataset was recorded in another environment")
    with writer.journal() as journal:
        journal.begin(rollout.observation, seed=seed, instruction=rollout.instruction, source=source)
        while not rollout.done:
            journal.step(rollout.step())
    episode = rollout.episode()
    entry = writer.add(replace(episode, metadata={**episode.metadata, "source": source}), identity=journal.path.stem)
    journal.remove()
    return entry
