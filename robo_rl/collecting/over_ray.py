"""Collectors on a Ray cluster: one actor each. Requests, parameters and answers are bytes in Ray's own envelopes."""

from __future__ import annotations

import json
import os
from collections import deque
from contextlib import ExitStack
from typing import Any

from robo_rl.checkpoints import packed
from robo_rl.cluster.connection import Cluster, connected
from robo_rl.cluster.worker import Host, made_of
from robo_rl.errors import InvalidSetting

SHOWN = 2000  # characters of an error
AGAIN_THERE = "start the cluster again, then robo-rl resume: it goes on from its newest checkpoint"
AGAIN = ("", "ServerUnavailable")
"""Errors that another attempt may not meet: those without a name here, and of simulators' servers."""


class RayEngine:
    """Starts actors of one core each (robo_rl.cluster.worker.Host), from the first on connected to a cluster."""

    def __init__(self, where: str, kind: str, count: int) -> None:
        """where: "auto" or HOST:PORT. kind: "module:Class", made there by Class(job), whose `load` and `answer` take bytes."""
        self._where, self._kind, self._count = where, kind, count
        self._connection = ExitStack()
        self._ray: Any = None
        self._host: Any = None
        self._cluster: Cluster | None = None
        self.links: list[RayLink] = []
        """Those that run."""
        self._shared: tuple[bytes, Any] = (b"", None)

    def start(self, job: bytes) -> RayLink:
        """Starts an actor; the cluster chooses where.

        Raises MissingExtra, ClusterUnavailable, InvalidSetting where the cluster has fewer cores than there are collectors.
        """
        if self._ray is None:
            self._connect()
        self.links.append(RayLink(self, self._host.remote(*made_of(self._kind, job))))
        return self.links[-1]

    def _connect(self) -> None:
        cores = max(self._count, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)
        cluster = self._connection.enter_context(connected(self._where, cores=cores, again=AGAIN_THERE))
        if cluster.cores < self._count:
            raise InvalidSetting(
                "The cluster has fewer cores than there are to be collectors.",
                got=f"{cluster.cores:g} cores, {self._count} collectors",
                fix="add machines to the cluster, or lower --collectors; then robo-rl resume",
            )
        self._ray, self._cluster = cluster.ray, cluster
        # one that is lost is begun anew by the crew, which knows what it was asked
        self._host = cluster.ray.remote(Host).options(num_cpus=1, max_restarts=0)

    def next(self, timeout: float) -> tuple[RayLink, bytes | None] | None:
        """Returns the next answer of any, with None in its place for one that is gone; None where none comes in time [s].

        Raises ClusterUnavailable where the node of this machine or the head is gone.
        """
        ray, waiting = self._ray, {link.open[0][-1]: link for link in self.links if link.open}
        if not waiting or self._cluster is None:
            return None
        self._cluster.require()
        ready, _ = ray.wait([*waiting], num_returns=1, timeout=timeout)
        if not ready:
            return None
        link = waiting[ready[0]]
        try:
            replies = ray.get(link.open.popleft())
        except ray.exceptions.RayError as error:
            link.words = str(error)[-SHOWN:]
            return link, None
        refused = next((reply for reply in replies if reply[:1] == b"-"), None)
        if refused is None:
            return link, replies[-1][1:]
        kind, words = json.loads(refused[1:])
        link.words = words[-SHOWN:]
        return link, None if kind in AGAIN else packed({"error": words, "kind": kind})

    def shared(self, parameters: bytes) -> Any:
        """Returns parameters as every actor gets them: put into the cluster's store once, from where machines share them."""
        if parameters is not self._shared[0]:
            self._shared = parameters, self._ray.put(parameters)
        return self._shared[1]

    def forget(self, link: RayLink) -> None:
        """Ends an actor at once."""
        self.links.remove(link)
        assert self._cluster is not None
        if not self._cluster.is_lost:
            self._ray.kill(link.actor)

    def close(self) -> None:
        """Leaves the cluster; one that was begun for this ends."""
        self._ray, self._shared = None, (b"", None)
        self._connection.close()


class RayLink:
    """One actor."""

    def __init__(self, engine: RayEngine, actor: Any) -> None:
        self._engine, self.actor = engine, actor
        self.open: deque[list[Any]] = deque()
        """References of what is to come for each request, in the order of the requests; the last one is of its answer."""
        self.words = ""

    def ask(self, request: bytes, parameters: bytes) -> None:
        """Sends a request, and parameters unless these are empty."""
        load = [self.actor.call.remote("load", self._engine.shared(parameters))] if parameters else []
        self.open.append([*load, self.actor.call.remote("answer", request)])

    def end(self) -> None:
        """Ends it."""
        self._engine.forget(self)

    def last_words(self) -> str:
        """Returns what Ray told of its end."""
        return self.words
