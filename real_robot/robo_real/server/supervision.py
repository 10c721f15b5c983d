"""Runs the HTTP process beside the arm's process: starts it, answers its messages, and replaces it if it dies or is stuck."""

from __future__ import annotations

import queue
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import robo_rl
from robo_real.server.messages import Request, receive_request, send_answer
from robo_rl.system.supervised_process import SupervisedProcess

CHANNELS = 9
"""Requests that are answered at once; one of them is kept for stops."""
LOOK = 0.5
"""[s] between two signs of life"""
STUCK = 5.0
"""[s] without one after which the process is replaced"""
ENDS = 2.0
"""[s] for it to end by itself"""
MOST_RESTARTS, WITHIN = 5, 60.0
"""Restarts within that many seconds, after which no more is tried."""
ROOTS = [str(Path(__file__).parents[2]), *(str(Path(place).parent) for place in robo_rl.__path__)]
PROGRAM = f"import sys; sys.path[:0] = {ROOTS!r}; from robo_real.server.front import main; main(sys.argv[1:])"
"""Runs without site-packages: foreign bytes meet the standard library and our own few modules alone."""


class HttpProcess:
    """One HTTP process after the other over one listening socket."""

    def __init__(
        self, listener: socket.socket, address: str, answer: Callable[[Request], bytes], on_lost: Callable[[str], None]
    ) -> None:
        """answer: called from several threads. on_lost: called with what happened, before another process is started."""
        self._listener, self._address, self._answer, self._on_lost = listener, address, answer, on_lost
        self._ends = threading.Event()
        self._began: deque[float] = deque(maxlen=MOST_RESTARTS + 1)
        self._thread: threading.Thread | None = None
        self._process: SupervisedProcess | None = None
        self._signs: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.is_lost = threading.Event()
        """Set once no more restart is tried."""

    @property
    def pid(self) -> int | None:
        """Of the process that serves now."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Serve from now on."""
        process = self._begin()
        self._thread = threading.Thread(target=self._supervise, args=(process,), name="supervisor", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the process."""
        self._ends.set()
        if self._thread is not None:
            self._signs.put(None)  # which wakes the supervisor
            self._thread.join()

    def _begin(self) -> SupervisedProcess:
        """Start a process and the threads that answer it."""
        self._began.append(time.monotonic())
        pairs = [socket.socketpair() for _ in range(CHANNELS)]
        theirs = [self._listener, *(pair[1] for pair in pairs)]
        descriptors = [each.fileno() for each in theirs]
        command = [sys.executable, "-I", "-S", "-c", PROGRAM, self._address, *map(str, descriptors)]
        self._signs = queue.SimpleQueue()
        self._process = SupervisedProcess(
            command, on_message=self._signs.put, stdout=subprocess.DEVNULL, descriptors=descriptors
        )
        for number, (channel, other) in enumerate(pairs):
            other.close()
            threading.Thread(target=self._serve, args=(channel,), name=f"request-{number}", daemon=True).start()
        return self._process

    def _serve(self, channel: socket.socket) -> None:
        """Answer one request after the other until the process ends."""
        with channel, suppress(OSError):
            while (request := receive_request(channel)) is not None:
                send_answer(channel, self._answer(request))

    def _supervise(self, process: SupervisedProcess) -> None:
        while True:
            why = self._watch(process)
            if self._ends.is_set():
                process.stop(ENDS)
                return
            status = process.stop()
            self._on_lost(why or f"ended with status {status}")
            first = self._began[0] if len(self._began) == self._began.maxlen else float("-inf")
            if time.monotonic() - first < WITHIN:
                self.is_lost.set()
                return
            process = self._begin()

    def _watch(self, process: SupervisedProcess) -> str:
        """Return when the process is to be replaced: why, "" if it has ended."""
        signs, heard = self._signs, time.monotonic()
        while not self._ends.is_set():
            process.send(b"?")
            try:
                while signs.get(timeout=LOOK) is not None:
                    heard = time.monotonic()
                return ""
            except queue.Empty:
                if time.monotonic() - heard > STUCK:
                    return f"gave no sign of life for {STUCK:g} s"
        return ""
