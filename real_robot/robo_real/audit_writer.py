"""Process that writes an audit log: lines from a pipe into files of bounded size.

If the arm's process is killed, this process writes the rest of the pipe and then exits. A full or slow disk delays only this
process. This module imports only the standard library.
"""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import sys
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

READY, HELD, FAILED, WRITTEN = b"r", b"h", b"!", b"."
"""Replies: ready to write; another process writes the same log; the disk refuses a line; the disk accepts lines again."""
PART = 1 << 16
"""[byte] largest number of bytes in one read of the pipe"""
POLL = 0.05
"""[s] period of reading the pipe"""
SYNC = 1.0
"""[s] longest time until a written line is safe from a power failure"""
FREED = 2.0
"""[s] longest wait for the lock of a process that exits, and for a failing disk at the end"""
MOST_WAITING = 10_000
"""Lines buffered for the disk here; further ones stay in the pipe, then in the arm's process."""


class Log:
    """Files of a log: the newest at `path`, older ones at `path`.1, `path`.2, ..., each of at most `largest` bytes.

    A full file is moved to the next number; of more than `files` files the oldest is deleted.
    """

    def __init__(self, path: Path, largest: int, files: int) -> None:
        self._path, self._largest, self._files = path, largest, files
        self._rest: deque[bytes] = deque()
        self._is_within = False
        self._file = self._opened()

    @property
    def waiting(self) -> int:
        """Number of lines not written yet."""
        return len(self._rest)

    def append(self, lines: list[bytes]) -> None:
        """Append lines to the buffer; every line ends with a newline."""
        self._rest += lines

    def write(self) -> None:
        """Write the buffered lines; raises OSError if the disk refuses one, which stays buffered."""
        while self._rest:
            line = self._rest[0]
            if not self._is_within and self._size and self._size + len(line) > self._largest:
                self._rotate()
            written = os.write(self._file, line)
            self._size += written
            self._is_within = written < len(line)
            if self._is_within:
                self._rest[0] = line[written:]
            else:
                self._rest.popleft()

    def sync(self) -> None:
        """Flush written lines to the disk."""
        with suppress(OSError):  # a device or pipe has none
            os.fdatasync(self._file)

    def _rotate(self) -> None:
        self.sync()
        for number in range(self._files - 1, 0, -1):
            newer = self._part(number - 1)
            if newer.exists():
                newer.replace(self._part(number))
        fresh = self._opened()
        os.close(self._file)
        self._file = fresh

    def _part(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}") if number else self._path

    def _opened(self) -> int:
        file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._size = os.fstat(file).st_size
        if stat.S_ISREG(os.fstat(file).st_mode) and self._size and os.pread(file, 1, self._size - 1) != b"\n":
            self._size += os.write(file, b"\n")  # ends a line that a power failure has cut
        return file


def hold(path: Path) -> bool:
    """Lock the log until this process ends; return False if another one still holds it after FREED seconds."""
    if path.exists() and not path.is_file():
        return True
    file = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    until = time.monotonic() + FREED
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(0.02)
        else:
            return True


def serve(log: Log) -> None:
    """Write lines from standard input until the other end of the pipe is closed.

    The pipe is polled, because to wake a blocked reader would interrupt the arm's process at each line, by milliseconds on a
    loaded machine.
    """
    os.set_blocking(0, False)
    parent = os.getppid()
    tail, until, has_failed, synced = b"", float("inf"), False, time.monotonic()
    while until == float("inf") or (log.waiting and time.monotonic() < until):
        time.sleep(POLL)
        if until == float("inf") and log.waiting < MOST_WAITING:
            lines, tail, is_open = _received(tail)
            log.append(lines)
            until = until if is_open else time.monotonic() + FREED
        elif until == float("inf") and os.getppid() != parent:  # ended, and the disk still refuses
            until = time.monotonic() + FREED
        try:
            log.write()
        except OSError:
            has_failed = _reply(FAILED, unless=has_failed)
            continue
        if has_failed:
            has_failed = not _reply(WRITTEN)
        if time.monotonic() - synced > SYNC:
            log.sync()
            synced = time.monotonic()
    log.sync()


def _received(tail: bytes) -> tuple[list[bytes], bytes, bool]:
    """Return complete lines, the incomplete rest, and whether the pipe is still open."""
    found: list[bytes] = []
    part = b"?"
    while part and len(found) < MOST_WAITING:
        try:
            part = os.read(0, PART)
        except BlockingIOError:
            return found, tail, True
        *lines, tail = (tail + part).split(b"\n")
        found += [line + b"\n" for line in lines]
    return found, tail, bool(part)


def _reply(word: bytes, *, unless: bool = False) -> bool:
    if not unless:
        with suppress(OSError):  # the reader has ended
            os.write(1, word)
    return True


def main(arguments: list[str]) -> int:
    """Write a log until the arm's process ends.

    Args:
        arguments: Path of the log, largest number of bytes per file, number of files.

    Returns:
        The exit status: 1 if the log cannot be written, or lines are left that the disk refuses; else 0.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends when the arm's process has
    if hasattr(os, "sched_setscheduler"):
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    path, largest, files = Path(arguments[0]), int(arguments[1]), int(arguments[2])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        is_free = hold(path)
        log = Log(path, largest, files)
    except OSError as error:
        os.write(1, str(error).encode())
        return 1
    if not is_free:
        os.write(1, HELD)
        return 1
    os.write(1, READY)
    serve(log)
    return int(bool(log.waiting))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
