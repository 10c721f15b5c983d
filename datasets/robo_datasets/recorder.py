"""Record episodes into a dataset, step by step, so that a crash loses at most one step."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import gymnasium

from robo_datasets.catalogue import Entry
from robo_datasets.dataset import DatasetWriter
from robo_rl.protocols.components import Policy, Supervisor
from robo_rl.rollout.episode import Rollout
from robo_rl.rollout.journal import Journal
from robo_rl.types import Transition


class EpisodeRecorder:
    """Recorder that adds episodes to a dataset. Every step is written to a journal at once, until the episode is stored."""

    def __init__(self, writer: DatasetWriter, source: str) -> None:
        """Create a recorder.

        Args:
            writer: Writer of the dataset, inside its `with` block.
            source: Name of the actor, which is stored with each episode.
        """
        self._writer, self._source = writer, source
        self._journal: Journal | None = None

    def begin(self, rollout: Rollout) -> None:
        """Open the journal of a new episode, before its first step."""
        self.close()
        self._journal = self._writer.journal(rollout.spec)
        self._journal.begin(rollout.observation, seed=rollout.seed, instruction=rollout.instruction, source=self._source)

    def step(self, transition: Transition) -> None:
        """Write a step of the present episode to the journal."""
        assert self._journal is not None, "no episode was started"
        self._journal.step(transition)

    def end(self, rollout: Rollout | None) -> Entry | None:
        """Store the present episode and return its entry; with None drop the episode, and return None."""
        journal, self._journal = self._journal, None
        assert journal is not None, "no episode was started"
        entry = None
        with journal:
            if rollout is not None:
                episode = rollout.episode()
                marked = replace(episode, metadata={**episode.metadata, "source": self._source})
                entry = self._writer.add(marked, identity=journal.path.stem)
        journal.remove()
        return entry

    def close(self) -> None:
        """Close the journal. If the episode was not stored, the next repair of the dataset stores its steps."""
        if self._journal is not None:
            self._journal.close()


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
    """Play one episode and store it. Every step is written to a journal at once.

    Args:
        environment: Environment of the dataset.
        policy: Policy that acts.
        writer: Writer of the dataset, inside its `with` block.
        seed: Seed of the episode.
        source: Name of the actor, which is stored with the episode.
        supervisor: Supervisor that may override the policy; None for none.
        deterministic: True for the policy's deterministic actions.

    Returns:
        The entry of the episode.

    Raises:
        SpecMismatch: The environment is not that of the dataset.
    """
    rollout = Rollout(environment, policy, seed=seed, supervisor=supervisor, deterministic=deterministic)
    writer.dataset.spec.require(rollout.spec.single, what="The dataset was recorded in another environment")
    with closing(EpisodeRecorder(writer, source)) as recorder:
        recorder.begin(rollout)
        while not rollout.done:
            recorder.step(rollout.step())
        entry = recorder.end(rollout)
    assert entry is not None
    return entry
