"""Workers on this machine, without a cluster: child processes, or objects in this process."""

from __future__ import annotations

import contextlib
import queue
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from typing_extensions import override

from robo_rl.cluster.host import Host, Make
from robo_rl.cluster.workers import Engine, Worker
from robo_rl.system.supervised_process import SupervisedProcess


class LocalEngine(Engine):
    """Engine that starts a child process on this machine for each worker.

    The command of the process gets the number of an inherited socket as last argument (host.serve).
    """

    def __init__(self, command: Sequence[str], log: Path) -> None:
        """Store the command; log: file for the output of the workers."""
        self._command, self._log = list(command), log
        self._replies: queue.SimpleQueue[tuple[LocalWorker, bytes | None]] = queue.SimpleQueue()

    @override
    def start(self, setup: bytes) -> LocalWorker:
        worker = LocalWorker(self._command, self._log, self._replies)
        worker.send(setup)
        return worker

    @override
    def next(self, timeout: float) -> tuple[LocalWorker, bytes | None] | None:
        with contextlib.suppress(queue.Empty):
            return self._replies.get(timeout > 0, timeout or None)
        return None

    @override
    def close(self) -> None: ...


class LocalWorker(SupervisedProcess):
    """Child process of one worker, with the connection to it."""

    def __init__(self, command: Sequence[str], log: Path, replies: queue.SimpleQueue[tuple[LocalWorker, bytes | None]]) -> None:
        super().__init__(command, on_message=lambda message: replies.put((self, message)), log=log)

    def ask(self, method: str, *contents: bytes) -> None:
        """Send a call of a method to the process, without waiting for the reply."""
        for message in (f"{method} {len(contents)}".encode(), *contents):
            self.send(message)


class InProcessEngine(Engine):
    """Engine without processes: workers are objects in this process, called in order. Tests compare other engines with it."""

    def __init__(self, make: Make) -> None:
        self._make = make
        self.open: deque[tuple[InProcessWorker, str, tuple[bytes, ...]]] = deque()
        """Requests that are not answered yet."""

    @override
    def start(self, setup: bytes) -> InProcessWorker:
        return InProcessWorker(self, Host(self._make, setup))

    @override
    def next(self, timeout: float) -> tuple[InProcessWorker, bytes | None] | None:
        if not self.open:
            return None
        worker, method, contents = self.open.popleft()
        return worker, worker.host.call(method, *contents)

    @override
    def close(self) -> None: ...


class InProcessWorker(Worker):
    """Worker of `InProcessEngine`, an object in this process."""

    def __init__(self, engine: InProcessEngine, host: Host) -> None:
        self._engine, self.host = engine, host

    @override
    def ask(self, method: str, *contents: bytes) -> None:
        self._engine.open.append((self, method, contents))

    @override
    def stop(self) -> None:
        self._engine.open = deque(each for each in self._engine.open if each[0] is not self)

    @override
    def output(self) -> str:
        return ""
