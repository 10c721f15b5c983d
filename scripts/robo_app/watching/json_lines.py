"""Read a file of JSON lines while another process appends to it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import IO, Any

from robo_rl.system.plain_files import require_plain

Line = dict[str, Any]
LARGEST = 2**53
"""Larger steps and seconds count as damaged; up to it a float represents whole numbers exactly."""


class GrowingLines:
    """Reader of a growing file whose lines are JSON objects with a whole number `step` and possibly a number `time`.

    Each line is parsed once. An incomplete last line is read later, a damaged line is left out and counted. A file that was
    replaced or rewritten, such as by a resumed run or by rsync, is read again from its beginning.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: list[Line] = []
        self.damaged = 0
        """Number of damaged lines that were left out."""
        self._inode, self._offset, self._last = -1, 0, b""

    def read(self) -> list[Line]:
        """Return all complete lines of the file so far; [] if there is no file."""
        try:
            require_plain(self._path)
            with self._path.open("rb") as file:
                self._read_on(file)
        except FileNotFoundError:
            self._start_again(-1)
        return self._lines

    def _read_on(self, file: IO[bytes]) -> None:
        inode = os.fstat(file.fileno()).st_ino
        file.seek(max(0, self._offset - len(self._last)))
        if inode != self._inode or file.read(len(self._last)) != self._last:
            self._start_again(inode)
            file.seek(0)
        content = file.read()
        whole, _, _ = content.rpartition(b"\n")
        if not whole and not content.startswith(b"\n"):
            return
        self._offset += len(whole) + 1
        lines = whole.split(b"\n")
        self._last = lines[-1] + b"\n"
        for line in filter(bytes.strip, lines):
            self._add(line)

    def _add(self, line: bytes) -> None:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict) and _is_number(found.get("step"), int) and _is_number(found.get("time", 0.0), int | float):
            self._lines.append(found)
        else:
            self.damaged += 1

    def _start_again(self, inode: int) -> None:
        self._lines, self.damaged = [], 0  # a new list: the old one may still be read
        self._inode, self._offset, self._last = inode, 0, b""


def _is_number(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) and -LARGEST < value < LARGEST
