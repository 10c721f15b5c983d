"""Append-only file of checksummed records, which loses nothing when its writer is killed.

A record is its length and CRC-32, two little-endian unsigned integers of four bytes each, then its content. Reading ends at the
first torn record. A written record has been passed to the operating system: it survives the process, and a power failure loses
at most those of the last seconds.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from robo_rl.system.plain_files import require_plain

_FRAME = struct.Struct("<II")
_LARGEST = 1 << 30  # bytes of a record: beyond it the length itself is damaged


class FramedLog:
    """Writer of a file of checksummed records; removes an incomplete record at the end when the file is opened."""

    def __init__(self, path: Path) -> None:
        """Open or create a file; raises OSError."""
        require_plain(path)
        self._file = path.open("a+b", buffering=0)  # unbuffered: written records survive a SIGKILL
        self._file.seek(0)
        while read_record(self._file) is not None:
            pass
        self._file.truncate()

    def append(self, content: bytes) -> None:
        """Write a record, which survives a kill once this has returned; raises OSError if the disk rejects it."""
        view = memoryview(_FRAME.pack(len(content), zlib.crc32(content)) + content)
        while view:
            view = view[self._file.write(view) :]

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_record(file: BinaryIO) -> bytes | None:
    """Read the record at the position of a file, and move past it; return None, without moving, if it is not complete yet."""
    start = file.tell()
    head = _read(file, _FRAME.size)
    if len(head) == _FRAME.size:
        length, checksum = _FRAME.unpack(head)
        content = _read(file, length) if length <= _LARGEST else b""
        if len(content) == length and zlib.crc32(content) == checksum:
            return content
    file.seek(start)
    return None


def _read(file: BinaryIO, size: int) -> bytes:
    """Return `size` bytes, fewer only at the end of the file; a single call of `read` may return fewer."""
    found = file.read(size)
    while len(found) < size and (more := file.read(size - len(found))):
        found += more
    return found


def read_records(path: Path) -> Iterator[bytes]:
    """Yield the complete records of a file, up to the first torn one."""
    require_plain(path)
    with path.open("rb") as file:
        while (content := read_record(file)) is not None:
            yield content
