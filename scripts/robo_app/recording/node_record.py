"""Worker that records on a node of a cluster: it plays an episode for a seed, and returns the content of its file."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from robo_app.recording.actors import actor
from robo_datasets.catalogue import Entry
from robo_datasets.dataset import new_identity
from robo_datasets.episode_file import encoded_episode
from robo_datasets.packed_pictures import packing
from robo_rl.cluster.connection import is_connected
from robo_rl.cluster.environment import ray_library
from robo_rl.cluster.head_monitor import exit_without_head
from robo_rl.environments.make import make_environment
from robo_rl.errors import ServerUnavailable
from robo_rl.rollout.episode import rollout
from robo_rl.runs.checkpoints import packed, unpacked
from robo_rl.spec.environment import EnvironmentSpec, specification
from robo_rl.system.threads import use_threads
from robo_rl.types import Episode

LINK_LOST = "link_lost"
"""Stop reason of an episode whose simulator or robot was lost."""
WAIT, PAUSE = 120.0, 1.0
"""Time to wait for a lost simulator's server, and time between two tries [s]."""


@dataclass(frozen=True)
class ActorOptions:
    """Options of `robo-rl record` on which actors depend (ActorSettings)."""

    noise: float
    stochastic: bool
    runs: Path


class NodeRecorder:
    """Environment and actor on a node; raises SpecMismatch if the environment differs from that of the command's machine."""

    def __init__(self, setup: bytes) -> None:
        message = unpacked(setup)
        use_threads(message["threads"])
        is_named = "host" in message["arguments"]  # a server, which the replacement of this worker uses
        if is_named and is_connected():
            exit_without_head(ray_library().get_runtime_context().gcs_address)
        self._environment = make_environment(message["environment"], **message["arguments"])
        self._spec, self._packing = specification(self._environment).single, packing(message["pictures"])
        EnvironmentSpec.from_json(message["spec"]).single.require(self._spec, what="A node has another environment")
        options = ActorOptions(message["noise"], message["stochastic"], Path(message["runs"]))
        self._choose = actor(message["policy"], self._environment, options)

    def work(self, task: bytes) -> bytes:
        """Play the episode of a seed (digits in `task`); returns its catalogue entry and the content of its file."""
        episode = self._played(int(task))
        file, content = encoded_episode(new_identity(), episode, self._spec, self._packing)
        entry = Entry.of(episode, file, len(content))
        return packed({"entry": asdict(entry), "content": np.frombuffer(content, np.uint8)})

    def _played(self, seed: int) -> Episode:
        """Play the episode of a seed; if the simulator's server is lost, it is played again, for up to WAIT seconds.

        After that the truncated episode is returned; raises ServerUnavailable if no episode could begin.
        """
        deadline = time.monotonic() + WAIT
        while True:
            try:
                name, policy, deterministic = self._choose(seed)
                episode = rollout(self._environment, policy, seed=seed, deterministic=deterministic)
                if episode.stop_reason != LINK_LOST or time.monotonic() > deadline:
                    return replace(episode, metadata={**episode.metadata, "source": name})
            except ServerUnavailable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(PAUSE)
