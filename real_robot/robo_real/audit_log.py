"""Append-only log of commands and of a guard's decisions: one JSON object per line.

Lines go through a pipe to a separate process (audit_writer.py), so that to add a line takes microseconds even if the disk is
slow. Lines in the pipe are written even if this process is killed.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

from robo_real.audit_writer import FAILED, FREED, HELD, READY, WRITTEN
from robo_rl.errors import InvalidSetting
from robo_rl.system.supervised_process import SupervisedProcess

LARGEST, FILES = 64 << 20, 16
"""Bytes per file, and number of files: a gigabyte holds two days of commands at 20 Hz."""
ATOMIC = 4096
"""[byte] largest atomic write to a pipe; longer lines are cut"""
PIPE = 1 << 20
"""[byte] requested capacity of the pipe"""
MOST_WAITING = 100_000
"""Lines buffered while the pipe is full; after that the oldest are lost, which leaves a gap in their numbers."""
RETRY, REPLACE = 0.2, 5.0
"""[s] between two attempts to write to a full pipe, and to start another writer"""
STOP = 2 * FREED
"""[s] longest wait for the writer to finish"""
ROOT = Path(__file__).parents[1]
PROGRAM = (
    f"import sys; sys.path.insert(0, {str(ROOT)!r}); from robo_real.audit_writer import main; sys.exit(main(sys.argv[1:]))"
)


class AuditLog:
    """Log of numbered events. It is written to files if a path is given; the newest events, except commands, stay in memory."""

    def __init__(self, path: Path | None = None, remembered: int = 200, *, largest: int = LARGEST, files: int = FILES) -> None:
        """Open a log and start its writer.

        Args:
            path: File of the log; None for a log in memory alone.
            remembered: Number of events that stay in memory, in `recent`.
            largest: [byte] Largest size of one file.
            files: Number of files that are kept, 2 or more.

        Raises:
            InvalidSetting: The files are too small or too few, the log cannot be written, or another process writes it.
        """
        if largest < ATOMIC or files < 2:
            got = f"{files} files of {largest} bytes"
            raise InvalidSetting("The audit log is too small.", got=got, allowed=f"2 files or more of {ATOMIC} bytes or more")
        self.path = path
        self.recent: deque[dict[str, Any]] = deque(maxlen=remembered)
        self._lock = threading.Lock()
        self._number = 0
        self._waiting: deque[bytes] = deque(maxlen=MOST_WAITING)
        self._is_late = self._is_closed = False
        self._settings = (str(largest), str(files))
        self._writer = None if path is None else Writer(path, *self._settings)

    @property
    def writer_pid(self) -> int | None:
        """Process id of the writer, None without a file."""
        return None if self._writer is None else self._writer.pid

    def add(self, event: str, **facts: Any) -> None:
        """Append an event with its number, monotonic time and wall time. Never blocks, since a full disk must not delay a stop.

        Args:
            event: Kind of the event, such as "mode".
            **facts: Further entries of the line.
        """
        with self._lock:
            line = self._numbered(event, facts)
            self.recent.append(line)
            self._put(line)

    def add_command(self, path: str, by: str, wanted: Any, answer: Any) -> None:
        """Append an executed request to the file, and not to `recent`.

        Args:
            path: Path of the request.
            by: Client that sent the request.
            wanted: Content of the request.
            answer: Answer to the request.
        """
        with self._lock:
            self._put(self._numbered("command", {"path": path, "by": by, "asked": wanted, "answer": answer}))

    def close(self) -> None:
        """Write the lines that wait, and close the log. Lines that cannot be written within a few seconds are lost."""
        until = time.monotonic() + FREED
        while self._is_late and time.monotonic() < until:
            time.sleep(RETRY / 10)
        with self._lock:
            self._is_closed = True
            if self._writer is not None:
                self._writer.stop(STOP)
                self._writer = None

    def _numbered(self, event: str, facts: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        return {"number": self._number, "event": event, "monotonic": time.monotonic(), "wall": time.time(), **facts}

    def _put(self, line: dict[str, Any]) -> None:
        if self._writer is None:
            return
        if (event := self._writer.poll_event()) is not None:
            self.recent.append({**line, "event": event})
        self._waiting.append(_encoded(line))
        if not self._is_late and not self._is_sent(self._writer):
            self._is_late = True
            threading.Thread(target=self._catch_up, name="audit log", daemon=True).start()

    def _is_sent(self, writer: Writer) -> bool:
        """Send the buffered lines; return False if the pipe is full or the writer has ended."""
        try:
            while self._waiting:
                os.write(writer.pipe, self._waiting[0])
                self._waiting.popleft()
        except (BlockingIOError, BrokenPipeError):
            return False
        return True

    def _catch_up(self) -> None:
        """Send the buffered lines as soon as possible; restart a writer that was killed."""
        while not self._is_closed:
            with self._lock:
                if self._writer is None or self._is_sent(self._writer):
                    self._is_late = False
                    return
                has_ended = self._writer.status is not None
            time.sleep(RETRY)
            if has_ended:
                self._replace_writer()

    def _replace_writer(self) -> None:
        assert self.path is not None
        try:
            fresh = Writer(self.path, *self._settings)
        except InvalidSetting:
            time.sleep(REPLACE)
            return
        with self._lock:
            ended, self._writer = self._writer, None if self._is_closed else fresh
        if ended is not None:
            status = ended.stop(STOP)
            self.add("log_writer", why=f"the one before ended with status {status}: its numbers may be missing")
        else:
            fresh.stop(STOP)


class Writer(SupervisedProcess):
    """Handle of the process that writes the log (audit_writer.py)."""

    def __init__(self, path: Path, largest: str, files: str) -> None:
        command = [sys.executable, "-I", "-S", "-c", PROGRAM, str(path), largest, files]
        super().__init__(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.pipe, self._replies = self.stdin.fileno(), self.stdout.fileno()
        reply = os.read(self._replies, 1000)
        if reply != READY:
            self.stop(STOP)
            raise InvalidSetting(
                f"The audit log {path} cannot be written.",
                got="another process writes it" if reply == HELD else reply.decode(errors="replace") or "no answer",
                allowed="a file of a robot's own, in a folder that can be written",
                fix="--log another.jsonl",
            )
        os.set_blocking(self.pipe, False)
        os.set_blocking(self._replies, False)
        with suppress(OSError, AttributeError):
            fcntl.fcntl(self.pipe, fcntl.F_SETPIPE_SZ, PIPE)

    def poll_event(self) -> str | None:
        """Return "log_failed" or "log_goes_on" if the disk's state has changed, else None."""
        try:
            reply = os.read(self._replies, 1000)
        except BlockingIOError:
            return None
        return {FAILED: "log_failed", WRITTEN: "log_goes_on"}.get(reply[-1:])


def _encoded(line: dict[str, Any]) -> bytes:
    content = json.dumps(line, default=str).encode() + b"\n"
    if len(content) <= ATOMIC:
        return content
    kept = {name: line[name] for name in ("number", "event", "monotonic", "wall")}
    return json.dumps({**kept, "cut": content[: ATOMIC // 3].decode()}).encode() + b"\n"
