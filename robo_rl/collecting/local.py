"""Collectors on this machine: processes at the other ends of sockets, without any cluster.

Messages are frames of `multiprocessing.connection`; nothing is pickled.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import subprocess
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

SHOWN = 2000  # characters of a collector's own output in an error


class LocalEngine:
    """Starts a command for each collector; the command gets the number of an inherited socket as its last word."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        """log: takes what collectors print."""
        self._command, self._log = list(command), log
        self.links: list[LocalLink] = []
        """Those that run."""
        self._heard: queue.SimpleQueue[tuple[LocalLink, bytes | None]] = queue.SimpleQueue()

    def start(self, job: bytes) -> LocalLink:
        """Starts a process, and tells it its job."""
        self.links = [link for link in self.links if not link.has_ended]
        self.links.append(LocalLink(self._command, self._log, job, self._heard))
        return self.links[-1]

    def next(self, timeout: float) -> tuple[LocalLink, bytes | None] | None:
        """Returns the next answer of any, with None in its place for one that is gone; None where none comes in time [s]."""
        with contextlib.suppress(queue.Empty):
            return self._heard.get(timeout > 0, timeout or None)
        return None

    def close(self) -> None:
        """Nothing is left once the collectors have ended."""


class LocalLink:
    """A collector's process. Two threads move whole frames, so that neither side ever waits within one for the other."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        job: bytes,
        heard: queue.SimpleQueue[tuple[LocalLink, bytes | None]],
    ) -> None:
        self._log = log
        self.has_ended = False
        ours, theirs = socket.socketpair()
        with log.open("ab") as output, theirs:
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for the learner, which then ends this one
            )
        self._connection = Connection(ours.detach())
        self._frames: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._frames.put(job)
        speaker = threading.Thread(target=_speak, args=(self._connection, self._frames), daemon=True)
        listener = threading.Thread(target=self._listen, args=(heard,), daemon=True)
        self._threads = (speaker, listener)
        for thread in self._threads:
            thread.start()

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def ask(self, request: bytes, parameters: bytes) -> None:
        """Sends a request, and parameters unless these are empty."""
        self._frames.put(request)
        self._frames.put(parameters)

    def end(self) -> None:
        """Kills the process; it is gone then."""
        self.has_ended = True
        self._process.kill()
        self._process.wait()
        self._frames.put(None)
        for thread in self._threads:
            thread.join()
        self._connection.close()

    def last_words(self) -> str:
        """Returns the end of what collectors printed."""
        return self._log.read_text(errors="replace")[-SHOWN:].strip()

    def _listen(self, heard: queue.SimpleQueue[tuple[LocalLink, bytes | None]]) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                heard.put((self, self._connection.recv_bytes()))
        heard.put((self, None))


def _speak(connection: Connection, frames: queue.SimpleQueue[bytes | None]) -> None:
    with contextlib.suppress(OSError):  # one that is gone, of which the listener tells
        while (frame := frames.get()) is not None:
            connection.send_bytes(frame)
