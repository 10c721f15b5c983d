"""Child processes: started apart from the terminal, they receive whole messages, are stopped in order and then killed.

No child outlives this process, however it ends: a child exits when its standard input or its message socket closes, or by a
signal that the kernel sends.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import IO, Self

SHOWN = 2000
"""Largest number of characters of a child's output that an error message shows."""


class SupervisedProcess:
    """Child process, in its own session: Ctrl-C on the terminal reaches this process, which then stops the child."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        on_message: Callable[[bytes | None], None] | None = None,
        log: Path | IO[bytes] | None = None,
        descriptors: Sequence[int] = (),
        stdin: int = subprocess.DEVNULL,
        stdout: int | None = None,
        environment: Mapping[str, str] | None = None,
        folder: str | None = None,
    ) -> None:
        """Start a command.

        Args:
            command: Command line. With `on_message` the number of the child's end of a socket is appended (see `inherited`).
            on_message: Called in a thread with each message of the child, and with None at the end.
            log: File for the child's output; a Path is appended to.
            descriptors: File descriptors that the child inherits.
            stdin: As for subprocess.Popen.
            stdout: As for subprocess.Popen; None for the log.
            environment: Environment variables; None for those of this process.
            folder: Working folder of the child; None for that of this process.
        """
        self._owner = os.getpid()
        self._log = log.open("a+b") if isinstance(log, Path) else log
        self._output = ""
        ours, theirs = socket.socketpair() if on_message else (None, None)
        try:
            self._popen = subprocess.Popen(
                [*command, *([] if theirs is None else [str(theirs.fileno())])],
                bufsize=0,
                pass_fds=[*descriptors, *([] if theirs is None else [theirs.fileno()])],
                stdin=stdin,
                stdout=self._log if stdout is None else stdout,
                stderr=self._log,
                env=environment,
                cwd=folder,
                start_new_session=True,
            )
        except BaseException:
            if ours is not None:
                ours.close()
            raise
        finally:
            if theirs is not None:
                theirs.close()
        self._messages = _Messages(ours, on_message) if ours and on_message else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._popen.pid

    @property
    def status(self) -> int | None:
        """Exit status, negative for a signal; None while the child runs."""
        return self._popen.poll()

    @property
    def stdin(self) -> IO[bytes]:
        """Standard input of the child, unbuffered, if it is a pipe."""
        assert self._popen.stdin is not None
        return self._popen.stdin

    @property
    def stdout(self) -> IO[bytes]:
        """Standard output of the child, unbuffered, if it is a pipe."""
        assert self._popen.stdout is not None
        return self._popen.stdout

    def wait(self, timeout: float | None = None) -> int | None:
        """Return the exit status; None if the child still runs after `timeout` [s]."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._popen.wait(timeout)
        return None

    def ready_line(self, timeout: float | None = None) -> bytes:
        """Return the first line of output, which reports that the child is ready.

        B"" if it ended or was silent for `timeout` [s].
        """
        return self.stdout.readline() if select.select([self.stdout], [], [], timeout)[0] else b""

    def write(self, content: bytes) -> None:
        """Write `content` to the standard input of the child, and close it."""
        with contextlib.suppress(BrokenPipeError), self.stdin as pipe:
            view = memoryview(content)
            while view:
                view = view[pipe.write(view) :]

    def send(self, message: bytes) -> None:
        """Send a message without waiting for the child; a message to a child that has ended is lost."""
        assert self._messages is not None
        self._messages.outgoing.put(message)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._popen.terminate()

    def stop(self, timeout: float = 0.0, *, terminate: bool = False) -> int:
        """Stop the child and return its exit status; may be called twice.

        Closes its input and socket, sends SIGTERM if `terminate`, and kills it after `timeout` [s], at once if 0. In a forked
        copy of this process the child is only released.
        """
        is_own = os.getpid() == self._owner
        if is_own and not timeout:
            self._popen.kill()
        if self._popen.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._popen.stdin.close()
        if not is_own:
            return -1
        if self._messages is not None:
            self._messages.end()
        if terminate:
            self._popen.terminate()
        if (status := self.wait(timeout or None)) is None:
            self._popen.kill()
            status = self._popen.wait()
        if self._popen.stdout is not None:
            self._popen.stdout.close()
        if self._messages is not None:
            self._messages.close()
        if self._log is not None:
            self._output = self.output()
            self._log.close()
        return status

    def output(self, most: int = SHOWN) -> str:
        """Return the last `most` characters of the child's output; after `stop`, those at the time of the stop."""
        if self._log is None or self._log.closed:
            return self._output
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), most, max(0, size - most)).decode(errors="replace").strip()


class _Messages:
    """Whole messages over a socket, moved by two threads, so that neither side blocks within a message."""

    def __init__(self, ours: socket.socket, on_message: Callable[[bytes | None], None]) -> None:
        self._socket, self._connection, self._on_message = ours, Connection(os.dup(ours.fileno())), on_message
        self.outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.receiver = threading.Thread(target=self._receive, daemon=True)
        self._sender = threading.Thread(target=self._send, daemon=True)
        self.receiver.start()
        self._sender.start()

    def end(self) -> None:
        """Let the other end see the end of the messages."""
        with contextlib.suppress(OSError):  # it is closed there, or here
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the threads."""
        self.outgoing.put(None)
        self._sender.join()
        self.receiver.join()
        self._connection.close()
        self._socket.close()

    def _receive(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                self._on_message(self._connection.recv_bytes())
        self._on_message(None)

    def _send(self) -> None:
        with contextlib.suppress(OSError):  # the child has ended: `_receive` says so
            while (message := self.outgoing.get()) is not None:
                self._connection.send_bytes(message)


def ending(status: int | None) -> str:
    """Return in words how a process ended, from its exit status; None for a process that does not answer."""
    if status is None:
        return "it does not answer"
    return f"exit status {status}" if status >= 0 else f"signal {-status}, {signal.strsignal(-status)}"


def inherited(descriptor: int) -> Connection:
    """Return the connection to the parent process, in the child, from the number of the inherited socket."""
    os.set_inheritable(descriptor, False)
    return Connection(descriptor)
