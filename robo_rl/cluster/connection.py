"""Start a Ray cluster on this machine or join one, on loopback, with a token and bounded waiting times.

`auto` starts a cluster that ends with the process. An address joins a cluster started by `ray start`, of which this machine
must be a node. The token is in the environment variable RAY_AUTH_TOKEN, in the file that RAY_AUTH_TOKEN_PATH names, or in
~/.ray/auth_token; RAY_AUTH_MODE is "token" unless it is set.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robo_rl.cluster import exit_reporter
from robo_rl.cluster.environment import AUTO, ray_environment, ray_library, reload_settings, require_library
from robo_rl.cluster.head_monitor import HeadMonitor
from robo_rl.cluster.preflight import require_open
from robo_rl.cluster.temp_folders import locked_folder
from robo_rl.errors import ClusterUnavailable
from robo_rl.system.supervised_process import SupervisedProcess

AGAIN = "give the same command again, once its cluster runs again: it continues"


@dataclass(frozen=True)
class Cluster:
    """Connection of this process to a Ray cluster; `connected` makes it."""

    ray: Any
    """The connected library Ray (its Python module)."""
    address: str
    """HOST:PORT of the cluster's head."""
    node: socket.socket
    """Idle connection to Ray's node on this machine, which closes when the node ends."""
    head: HeadMonitor
    """Monitor of the head, which polls it in a thread."""
    again: str
    """Remedy, in words for an error message, if the node or the head is lost."""

    @property
    def cores(self) -> float:
        """Number of processor cores of all nodes that are alive."""
        return sum(self._cores_of_nodes)

    @property
    def largest(self) -> float:
        """Number of processor cores of the largest node that is alive."""
        return max(self._cores_of_nodes, default=0.0)

    def require(self) -> None:
        """Raise ClusterUnavailable if Ray's node on this machine, or the head, is lost.

        Ray itself would wait forever, or end this process after a minute.
        """
        if self._is_without_node:
            raise lost_node(self.again)
        if (why := self.head.gone) is not None:
            raise lost_head(self.address, why, self.again)

    @property
    def is_lost(self) -> bool:
        """True if `require` raises: Ray then answers no request."""
        return self._is_without_node or self.head.gone is not None

    @property
    def _is_without_node(self) -> bool:
        try:
            return not self.node.recv(1, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:  # as its end
            return True

    @property
    def addresses(self) -> set[str]:
        """Addresses of the machines of all nodes that are alive."""
        return {node["NodeManagerAddress"] for node in self._nodes}

    @property
    def _cores_of_nodes(self) -> list[float]:
        return [node["Resources"].get("CPU", 0.0) for node in self._nodes]

    @property
    def _nodes(self) -> list[dict[str, Any]]:
        return [node for node in self.ray.nodes() if node["Alive"]]


def lost_node(again: str) -> ClusterUnavailable:
    """Make the error for a lost node of this machine.

    again: remedy in words, such as the command to repeat.
    """
    return ClusterUnavailable(
        "Ray's node on this machine has ended.",
        got="its process (raylet) was killed, perhaps for want of memory, or crashed",
        allowed="a node for as long as the command runs",
        fix=again,
    )


def lost_head(address: str, why: object, again: str) -> ClusterUnavailable:
    """Make the error for a lost head of a cluster.

    Args:
        address: HOST:PORT of the head.
        why: Reason in words.
        again: Remedy in words, such as the command to repeat.
    """
    return ClusterUnavailable(
        f"The head of the cluster, {address}, is gone.", got=why, allowed="a head for as long as the command runs", fix=again
    )


@contextmanager
def connected(where: str, *, cores: int = 0, again: str = AGAIN) -> Iterator[Cluster]:
    """Connect to a cluster within this context; a nested context yields the same cluster.

    Args:
        where: "auto" for a new cluster on this machine, or HOST:PORT of a head.
        cores: Cores of a new cluster; 0 for those of this process.
        again: Remedy if the cluster is lost before the end.

    Raises:
        MissingExtra: Ray is not installed.
        InvalidSetting: `where` is no address.
        ClusterUnavailable: The cluster does not answer, or rejects this machine.
    """
    if is_connected():
        with _connection(again) as cluster:
            yield cluster
        return
    require_library()
    with ray_environment(where), _signals_kept(), ExitStack() as last:
        if where != AUTO:
            require_open(where)
        ray = ray_library()
        reload_settings(where)
        with _own_cluster(ray, cores) if where == AUTO else _joined_cluster(ray, where), _connection(again) as cluster:
            messages = str(lost_node(again)), str(lost_head(cluster.address, "no answer from that address", again))
            node = cluster.node.fileno()
            words = [sys.executable, "-I", "-S", exit_reporter.__file__, str(node), cluster.address, *messages]
            last.enter_context(SupervisedProcess(words, stdin=subprocess.PIPE, descriptors=[node]))
            yield cluster


@contextmanager
def _own_cluster(ray: Any, cores: int) -> Iterator[None]:
    """Start a cluster on this machine; at the end stop it and delete its files."""
    count = cores or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None)
    folder, lock = locked_folder("ray-", Path("/tmp"))  # a short path: sockets
    with lock:
        try:
            # one level below, because Ray makes its folder writable for all users: sockets and logs
            _init(ray, "local", include_dashboard=False, num_cpus=count, _temp_dir=str(folder / "r"))
            yield
        finally:
            ray.shutdown(wait_for_processes=True)
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _joined_cluster(ray: Any, address: str) -> Iterator[None]:
    """Join a cluster, and leave it at the end."""
    try:
        _init(ray, address)
        yield
    finally:
        ray.shutdown()


def _init(ray: Any, address: str, **options: Any) -> None:
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", **options)
    except Exception as error:  # of which Ray has many kinds
        raise ClusterUnavailable("Ray does not start here.", got=error, fix="look at memory and space in /tmp") from error


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Restore the handler of SIGTERM at the end: Ray installs its own and leaves it installed."""
    usual = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, usual)


def is_connected() -> bool:
    """Return True if this process is connected to a cluster."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


@contextmanager
def _connection(again: str) -> Iterator[Cluster]:
    ray = ray_library()
    here = ray.get_runtime_context()
    path = next(node["RayletSocketName"] for node in ray.nodes() if node["NodeID"] == here.get_node_id())
    with socket.socket(socket.AF_UNIX) as node, HeadMonitor(here.gcs_address) as head:
        node.connect(path)
        yield Cluster(ray, here.gcs_address, node, head, again)
