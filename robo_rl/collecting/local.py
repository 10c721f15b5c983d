"""Collectors on this machine: processes at the other ends of sockets, without any cluster."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Sequence
from pathlib import Path

from typing_extensions import override

from robo_rl.collecting.crew import Engine, Link
from robo_rl.supervised_process import SupervisedProcess


class LocalEngine(Engine):
    """Starts a command for each collector; the command gets the number of an inherited socket as its last word."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        """log: takes what collectors print."""
        self._command, self._log = list(command), log
        self.links: list[LocalLink] = []
        """Those that run."""
        self._heard: queue.SimpleQueue[tuple[LocalLink, bytes | None]] = queue.SimpleQueue()

    @override
    def start(self, job: bytes) -> LocalLink:
        self.links = [link for link in self.links if not link.has_ended]
        self.links.append(LocalLink(self._command, self._log, job, self._heard))
        return self.links[-1]

    @override
    def next(self, timeout: float) -> tuple[LocalLink, bytes | None] | None:
        with contextlib.suppress(queue.Empty):
            return self._heard.get(timeout > 0, timeout or None)
        return None

    @override
    def close(self) -> None:
        """Nothing is left once the collectors have ended."""


class LocalLink(Link):
    """A collector's process."""

    def __init__(
        self, command: Sequence[str], log: Path, job: bytes, heard: queue.SimpleQueue[tuple[LocalLink, bytes | None]]
    ) -> None:
        self.has_ended = False
        self._process = SupervisedProcess(command, on_message=lambda message: heard.put((self, message)), log=log)
        self._process.send(job)

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    @override
    def ask(self, request: bytes, parameters: bytes) -> None:
        self._process.send(request)
        self._process.send(parameters)

    @override
    def end(self) -> None:
        self.has_ended = True
        self._process.stop()

    @override
    def last_words(self) -> str:
        return self._process.output()
