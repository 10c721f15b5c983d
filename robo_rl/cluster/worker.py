"""An object of ours in a process on some node of a cluster: asked in bytes, and replaced where it dies or is silent.

The object is made there by `Class(setup)`, and its methods take bytes and return bytes. Nothing of ours is pickled.
"""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pkgutil import resolve_name
from typing import Any, NoReturn

from robo_rl import errors
from robo_rl.cluster.connection import Cluster
from robo_rl.errors import ClusterUnavailable, InvalidSetting, RoboRLError, WorkerFailed

MADE = b"made"
LOGS = "look whether it runs here, without --ray; the logs of a node are in its /tmp/ray/session_latest/logs"


@dataclass(frozen=True)
class Patience:
    """How long a worker may be silent."""

    start: float = 300.0
    """[s] until it is made, waiting for room on a node included; then it is asked for again, as often as it takes."""
    answer: float = 600.0
    """[s] for one answer; then it counts as hung and is replaced."""
    losses: int = 3
    """Workers in a row that one task may cost, or that may die before they are made, until it is an error."""


USUAL = Patience()


class WorkerLost(Exception):
    """The worker died or was silent for too long; another one is on its way, and knows of nothing."""


class Host:
    """What runs on the node: makes the object at the first call, and turns its errors into words."""

    def __init__(self, kind: str, setup: bytes, here: str, robo_rl: str) -> None:
        """kind: "module:Class". here: the driver's folder, in which relative paths are meant. robo_rl: its version."""
        self._kind, self._setup, self._here, self._version = kind, setup, here, robo_rl
        self._object: Any = None

    def call(self, method: str, content: bytes) -> bytes:
        """Returns b"+" and what the method returned, or b"-" and the error; without a method the object is only made."""
        try:
            if self._object is None:
                self._object = self._made()
            return b"+" + (getattr(self._object, method)(content) if method else MADE)
        except RoboRLError as error:
            return b"-" + json.dumps([type(error).__name__, str(error)]).encode()
        except Exception:
            return b"-" + json.dumps(["", traceback.format_exc()]).encode()

    def _made(self) -> Any:
        with suppress(OSError):  # another machine need not have the folder
            os.chdir(self._here)
        if (there := version("robo-rl")) != self._version:
            raise ClusterUnavailable(
                "A node has another robo-rl.", got=there, allowed=self._version, fix="install the same on every node"
            )
        return resolve_name(self._kind)(self._setup)


def made_of(kind: str, setup: bytes) -> tuple[str, bytes, str, str]:
    """Returns what a Host of this process is made of."""
    return kind, setup, os.getcwd(), version("robo-rl")


def content_of(name: str, reply: bytes) -> bytes:
    """Returns what a Host's object returned; raises what it raised, `name` being that of the worker."""
    if reply[:1] == b"+":
        return reply[1:]
    kind, words = json.loads(reply[1:])
    found = getattr(errors, kind, None) if kind else None
    if found is None:
        raise WorkerFailed(f"{name} failed.", got=words)
    error: RoboRLError = found.__new__(found)
    error.args = (words,)
    raise error


class Worker:
    """One such object as the driver sees it; has one question under way at most."""

    def __init__(
        self,
        cluster: Cluster,
        kind: str,
        setup: bytes = b"",
        *,
        name: str = "worker",
        cores: float = 1.0,
        patience: Patience = USUAL,
        say: Callable[[str], None] = print,
    ) -> None:
        """kind: "module:Class", made there by Class(setup). say: is told where it is replaced.

        Raises InvalidSetting where no node has so many cores.
        """
        if cores > cluster.largest:
            raise InvalidSetting("No node has that many cores.", got=f"{cores:g}", allowed=f"{cluster.largest:g} or fewer")
        self._cluster, self._ray, self._patience, self._say, self.name = cluster, cluster.ray, patience, say, name
        self._host = self._ray.remote(Host).options(num_cpus=cores, max_restarts=0)
        self._made_of = made_of(kind, setup)
        self.reference: Any = None
        """Ray's, of the answer under way, to wait for; None where there is none."""
        self._is_made, self._deaths = False, 0
        self._asked: tuple[str, bytes] | None = None
        self._begin()

    @property
    def is_ready(self) -> bool:
        """Whether it is made, and no answer is under way."""
        return self._is_made and self.reference is None

    def ask(self, method: str, content: bytes = b"") -> None:
        """Asks the object; it is asked once it is made."""
        self._asked = method, content
        if self._is_made:
            self._send(method, content, self._patience.answer)

    def answer(self) -> bytes | None:
        """Returns the answer to what was asked, None while it is under way; to be called again and again.

        Raises WorkerLost, what the object raised if it is one of robo_rl.errors, WorkerFailed for any other, and where it dies
        again and again before it is made; ClusterUnavailable where the node of this machine or the head is gone.
        """
        self._cluster.require()
        if self.reference is None:
            return None
        found, _ = self._ray.wait([self.reference], timeout=0)
        if not found:
            if time.monotonic() > self._until:
                what = "was silent" if self._is_made else "found no room, or was silent,"
                self._replace(f"{what} for {self._allowed:g} s")
            return None
        try:
            reply: bytes = self._ray.get(found[0])
        except self._ray.exceptions.RayError as error:
            self._deaths += not self._is_made
            self._replace(f"died ({type(error).__name__})")
        self.reference = None
        content = content_of(self.name, reply)
        if self._is_made:
            self._asked = None
            return content
        self._is_made, self._deaths = True, 0
        if self._asked is not None:
            self._send(*self._asked, self._patience.answer)
        return None

    def end(self) -> None:
        """Ends the process; where the cluster is gone that is its nodes' affair."""
        if not self._cluster.is_lost:
            self._ray.kill(self._actor)
        self.reference = None

    def _begin(self) -> None:
        self._is_made, self._asked = False, None
        self._actor = self._host.remote(*self._made_of)
        self._send("", b"", self._patience.start)

    def _send(self, method: str, content: bytes, allowed: float) -> None:
        self.reference = self._actor.call.remote(method, content)
        self._allowed, self._until = allowed, time.monotonic() + allowed

    def _replace(self, why: str) -> NoReturn:
        with suppress(self._ray.exceptions.RayError):
            self.end()
        if self._deaths >= self._patience.losses:
            raise WorkerFailed(f"{self.name} died {self._deaths} times in a row before it was ready.", got=why, fix=LOGS)
        self._say(f"{self.name} {why} and is replaced")
        self._begin()
        raise WorkerLost(f"{self.name} {why}")
