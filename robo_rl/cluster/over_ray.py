"""Workers on a Ray cluster, one actor each; requests and replies are bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from typing_extensions import override

from robo_rl.cluster.connection import Cluster
from robo_rl.cluster.host import Host, made_of
from robo_rl.cluster.workers import Engine, Worker
from robo_rl.errors import InvalidSetting
from robo_rl.system.supervised_process import SHOWN


class RayEngine(Engine):
    """Engine that starts a Ray actor, which runs a `robo_rl.cluster.host.Host`, for each worker.

    The first worker connects to the cluster.
    """

    def __init__(self, connected: Callable[[], AbstractContextManager[Cluster]], kind: str, *, cores: float = 1.0) -> None:
        """Store how to start workers.

        Args:
            connected: Returns a context manager that connects to a cluster; used at the first start.
            kind: Class of the workers' objects, "module:Class".
            cores: Cores of each worker.
        """
        self._connected, self._kind, self._cores = connected, kind, cores
        self._connection = ExitStack()
        self._cluster: Cluster | None = None
        self._workers: list[RayWorker] = []
        self._shared: tuple[bytes, Any] = (b"", None)

    @override
    def start(self, setup: bytes) -> RayWorker:
        """Start an actor; raises InvalidSetting if no node has enough cores, and the errors of `connected`."""
        cluster = self._cluster = self._cluster or self._connection.enter_context(self._connected())
        if self._cores > cluster.largest:
            got, allowed = f"{self._cores:g}", f"{cluster.largest:g} or fewer"
            raise InvalidSetting("No node has that many cores.", got=got, allowed=allowed)
        # a lost one is not restarted by Ray, which does not know its requests
        host = cluster.ray.remote(Host).options(num_cpus=self._cores, max_restarts=0)
        worker = RayWorker(cluster, host.remote(*made_of(self._kind, setup)), self._share)
        self._workers = [*(worker for worker in self._workers if not worker.has_ended), worker]
        return worker

    @override
    def next(self, timeout: float) -> tuple[RayWorker, bytes | None] | None:
        """Return the next reply; raises ClusterUnavailable if the node of this machine or the head is lost."""
        waiting = {worker.pending[0]: worker for worker in self._workers if worker.pending and not worker.has_ended}
        if self._cluster is None or not waiting:
            return None
        self._cluster.require()
        ray = self._cluster.ray
        ready, _ = ray.wait([*waiting], num_returns=1, timeout=timeout)
        if not ready:
            return None
        worker = waiting[ready[0]]
        worker.pending.popleft()
        try:
            return worker, ray.get(ready[0])
        except ray.exceptions.RayError as error:
            worker.words = str(error)[-SHOWN:]
            return worker, None

    @override
    def close(self) -> None:
        """Leave the cluster; a cluster that was started for this engine ends."""
        self._cluster, self._shared = None, (b"", None)
        self._connection.close()

    def _share(self, content: bytes) -> Any:
        """Put bytes for many actors into the cluster's store, once for all machines."""
        assert self._cluster is not None
        if content is not self._shared[0]:
            self._shared = content, self._cluster.ray.put(content)
        return self._shared[1]


class RayWorker(Worker):
    """Worker of `RayEngine`: a Ray actor on some node of the cluster."""

    def __init__(self, cluster: Cluster, actor: Any, share: Callable[[bytes], Any]) -> None:
        self._cluster, self._actor, self._share = cluster, actor, share
        self.pending: deque[Any] = deque()
        """References to the replies that are to come, in the order of the requests."""
        self.words, self.has_ended = "", False

    @override
    def ask(self, method: str, *contents: bytes) -> None:
        """Send a request; its arguments except for the first are shared between actors."""
        self.pending.append(self._actor.call.remote(method, *contents[:1], *map(self._share, contents[1:])))

    @override
    def stop(self) -> None:
        if not self.has_ended and not self._cluster.is_lost:
            self._cluster.ray.kill(self._actor)
        self.has_ended = True

    @override
    def output(self) -> str:
        return self.words
