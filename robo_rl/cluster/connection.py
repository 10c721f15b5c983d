"""Begin a Ray cluster on this machine, or join one: on loopback, with a token, and never for longer than is said here.

`auto` begins one that ends with the process. An address joins one that `ray start` began: this machine must be a node of it.
Environment: the token in RAY_AUTH_TOKEN, or in the file that RAY_AUTH_TOKEN_PATH names, or in ~/.ray/auth_token; RAY_AUTH_MODE,
which is "token" unless it is set.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from robo_rl.errors import ClusterUnavailable, InvalidSetting, MissingExtra

AUTO = "auto"
LOOPBACK = ("127.0.0.1", "localhost")
TOKENS = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
NOBODY = 5.0
"""[s] until a port counts as one where nobody listens."""
PATIENCE = 60.0
"""[s] for a cluster to let a driver in; Ray itself would wait for minutes."""

ENDS = "Ray ends this command in a minute unless it is back. What was stored is kept; the same command goes on."


@dataclass(frozen=True)
class Cluster:
    """A connection; to be had from `connected`."""

    ray: Any
    """The library, connected."""
    address: str
    """HOST:PORT of the head."""

    @property
    def cores(self) -> float:
        """Of all nodes that are alive now."""
        return sum(self._cores_of_nodes)

    @property
    def largest(self) -> float:
        """Cores of the largest node that is alive now."""
        return max(self._cores_of_nodes, default=0.0)

    @property
    def _cores_of_nodes(self) -> list[float]:
        return [node["Resources"].get("CPU", 0.0) for node in self.ray.nodes() if node["Alive"]]


@contextmanager
def connected(where: str, *, cores: int = 0) -> Iterator[Cluster]:
    """Yields a cluster: a new one on this machine for "auto", else the one at HOST:PORT; leaves it at the end.

    cores: of a new one, 0 for those of this process. Inside such a block another one yields the same cluster.
    Raises MissingExtra, InvalidSetting, ClusterUnavailable.
    """
    if is_connected():
        yield _joined()
        return
    require_library()
    usual = signal.getsignal(signal.SIGTERM)
    with _environment(where):
        if where != AUTO:
            require_open(where)
        ray = ray_library()
        _read_environment_again(where)
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp")) if where == AUTO else None
        try:
            if folder is not None:
                count = cores or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None)
                here = {"include_dashboard": False, "num_cpus": count, "_temp_dir": str(folder)}
                ray.init(address="local", **here, **quiet)
            else:
                ray.init(address=where, **quiet)
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, usual)  # Ray's own would end this process before anything is saved
            cluster = _joined()
            with _head_watched(cluster.address):
                yield cluster
        finally:
            ray.shutdown(wait_for_processes=folder is not None)
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _head_watched(address: str) -> Iterator[None]:
    """Says when the head is gone: Ray ends the process a minute later, from within, so that nothing can be said then."""
    over = threading.Event()

    def watch() -> None:
        host, _, port = address.rpartition(":")
        while not over.wait(NOBODY):
            try:
                socket.create_connection((host, int(port)), NOBODY).close()
            except OSError as error:
                os.write(2, f"error: the head of the cluster at {address} is gone ({error}). {ENDS}\n".encode())
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def is_connected() -> bool:
    """Returns whether this process is part of a cluster."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def _joined() -> Cluster:
    ray = ray_library()
    return Cluster(ray, ray.get_runtime_context().gcs_address)


def require_library() -> None:
    """Raises MissingExtra where there is no Ray; does not load it."""
    if importlib.util.find_spec("ray") is None:
        raise MissingExtra("--ray", "ray", "ray")


def ray_library() -> Any:
    """Returns Ray; raises MissingExtra."""
    require_library()
    import ray

    return ray


def require_open(address: str) -> None:
    """Raises InvalidSetting for what is no address, ClusterUnavailable where no cluster lets us in.

    Ray retries for minutes, and some of its failures end the process: a process of its own tries first.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise InvalidSetting("--ray names no cluster.", got=address, allowed=f"{AUTO}, or HOST:PORT of a head: 10.0.0.1:6379")
    try:
        socket.create_connection((host, int(port)), NOBODY).close()
    except OSError as error:
        raise ClusterUnavailable(
            f"Nobody listens at {address}.", got=error, fix="on that machine: RAY_AUTH_MODE=token ray start --head"
        ) from None
    words = [sys.executable, "-m", "robo_rl.cluster.entrance", address]
    with tempfile.TemporaryFile("w+") as told, subprocess.Popen(words, stdout=told, stderr=told, text=True) as entering:
        try:
            status = _status(entering, told)
        finally:
            entering.kill()
        told.seek(0)
        said = told.read()
    if status != 0:
        raise _refusal(address, said)


def _status(entering: subprocess.Popen[str], told: Any) -> int:
    """Returns how an attempt ended, as soon as its end is clear; a wrong token is tried again by Ray for a while."""
    for _ in range(int(PATIENCE / 0.1)):
        try:
            return entering.wait(0.1)
        except subprocess.TimeoutExpired:
            if "InvalidAuthToken" in os.pread(told.fileno(), 1 << 20, 0).decode(errors="replace"):
                break
    return 1


def _refusal(address: str, said: str) -> ClusterUnavailable:
    if "InvalidAuthToken" in said or "no authentication token was found" in said:
        return ClusterUnavailable(
            f"The cluster at {address} does not take this token.",
            got=next((f"the one of {name}" for name in TOKENS if os.environ.get(name)), "none in the environment"),
            fix="the head's own in RAY_AUTH_TOKEN, or in a file that RAY_AUTH_TOKEN_PATH names",
        )
    lines = [line for line in said.splitlines() if line.strip()]
    return ClusterUnavailable(
        f"The cluster at {address} lets nobody in.",
        got="\n           ".join(lines[-6:]) or f"silence for {PATIENCE:g} s",
        allowed="the same Ray and the same Python there and here, and this machine as a node",
        fix=f"here: RAY_AUTH_MODE=token ray start --address {address}",
    )


def _read_environment_again(where: str) -> None:
    """Has Ray read what it reads when it is loaded: somebody else may have loaded it before."""
    from ray._private import ray_constants
    from ray._raylet import AuthenticationTokenLoader, Config

    ray_constants.ENABLE_RAY_CLUSTER = not _is_on_loopback(where)
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


def _is_on_loopback(where: str) -> bool:
    return where == AUTO or where.rpartition(":")[0] in LOOPBACK


@cache
def _fresh_token() -> str:
    return secrets.token_hex(32)  # once in a process: Ray keeps the first that it reads


@contextmanager
def _environment(where: str) -> Iterator[None]:
    """Sets what Ray and its processes read from the environment, and takes it back at the end."""
    wanted = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": os.environ.get("RAY_AUTH_MODE", "token")}
    wanted["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"  # accelerators are not hidden from workers
    if _is_on_loopback(where):
        # the switch that has Ray use 127.0.0.1: it replaces that address by the machine's own wherever it is told it
        wanted["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    if where == AUTO:
        wanted["RAY_worker_niceness"] = "0"  # 15 by Ray's default: slower beside others than the same command without Ray
        if not any(os.environ.get(name) for name in TOKENS):
            wanted["RAY_AUTH_TOKEN"] = _fresh_token()
    usual = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in usual.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
