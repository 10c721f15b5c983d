"""Supervisor of the HTTP process: starts it, answers its messages, and restarts it if it dies or hangs."""

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
from robo_real.server.messages import Answer, Request, receive_request, send_answer
from robo_rl.system.supervised_process import SupervisedProcess

CHANNELS = 9
"""number of concurrent requests; one channel is reserved for stops"""
PING_PERIOD = 0.5
"""[s] between two pings"""
STUCK = 5.0
"""[s] without a reply to a ping after which the process is restarted"""
EXIT_TIMEOUT = 2.0
"""Longest wait [s] for the process to exit; then it is killed."""
MOST_RESTARTS, WITHIN = 5, 60.0
"""number of restarts that are allowed within WITHIN [s]; at one more the supervisor gives up"""
ROOTS = [str(Path(__file__).parents[2]), *(str(Path(place).parent) for place in robo_rl.__path__)]
PROGRAM = f"import sys; sys.path[:0] = {ROOTS!r}; from robo_real.server.http_process import main; main(sys.argv[1:])"
"""Program of the process. With its own import path, neither the present folder nor the environment chooses what is imported"""


class HttpSupervisor:
    """Supervisor of the HTTP process; all processes that it starts, one after the other, share one listening socket."""

    def __init__(
        self, listener: socket.socket, address: str, answer: Callable[[Request], Answer], on_lost: Callable[[str], None]
    ) -> None:
        """Create the supervisor; `start` starts the process.

        Args:
            listener: Listening socket.
            address: Address of the server, which requests must name.
            answer: Returns the answer to a request; called from several threads.
            on_lost: Called with the reason before each restart.
        """
        self._listener, self._address, self._answer, self._on_lost = listener, address, answer, on_lost
        self._ends = threading.Event()
        self._began: deque[float] = deque(maxlen=MOST_RESTARTS + 1)
        self._thread: threading.Thread | None = None
        self._process: SupervisedProcess | None = None
        self._replies: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.is_lost = threading.Event()
        """Set once the supervisor has given up."""

    @property
    def pid(self) -> int | None:
        """Process id of the present HTTP process; None before `start`."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process and its supervision."""
        process = self._begin()
        self._thread = threading.Thread(target=self._supervise, args=(process,), name="supervisor", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the process."""
        self._ends.set()
        if self._thread is not None:
            self._replies.put(None)  # wakes the supervisor
            self._thread.join()

    def _begin(self) -> SupervisedProcess:
        """Start a process and the threads that answer its requests."""
        self._began.append(time.monotonic())
        pairs = [socket.socketpair() for _ in range(CHANNELS)]
        theirs = [self._listener, *(pair[1] for pair in pairs)]
        descriptors = [each.fileno() for each in theirs]
        command = [sys.executable, "-I", "-c", PROGRAM, self._address, *map(str, descriptors)]
        self._replies = queue.SimpleQueue()
        self._process = SupervisedProcess(
            command, on_message=self._replies.put, stdout=subprocess.DEVNULL, descriptors=descriptors
        )
        for number, (channel, other) in enumerate(pairs):
            other.close()
            threading.Thread(target=self._serve, args=(channel,), name=f"request-{number}", daemon=True).start()
        return self._process

    def _serve(self, channel: socket.socket) -> None:
        """Answer requests of one channel until the process ends."""
        with channel, suppress(OSError):
            while (request := receive_request(channel)) is not None:
                send_answer(channel, self._answer(request))

    def _supervise(self, process: SupervisedProcess) -> None:
        while True:
            why = self._watch(process)
            if self._ends.is_set():
                process.stop(EXIT_TIMEOUT)
                return
            status = process.stop()
            self._on_lost(why or f"ended with status {status}")
            first = self._began[0] if len(self._began) == self._began.maxlen else float("-inf")
            if time.monotonic() - first < WITHIN:
                self.is_lost.set()
                return
            process = self._begin()

    def _watch(self, process: SupervisedProcess) -> str:
        """Block until the process must be restarted; return the reason, "" if it has ended."""
        replies, last_reply = self._replies, time.monotonic()
        while not self._ends.is_set():
            process.send(b"?")
            try:
                while replies.get(timeout=PING_PERIOD) is not None:
                    last_reply = time.monotonic()
                return ""
            except queue.Empty:
                if time.monotonic() - last_reply > STUCK:
                    return f"gave no sign of life for {STUCK:g} s"
        return ""
