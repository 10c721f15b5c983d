"""Atomic and durable writing of files, and locks of the process that writes them."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from robo_rl.errors import RoboRLError
from robo_rl.system.plain_files import require_plain

BRIEF = 0.05
"""[s] Longest time for which `exclusive_lock` tries again if a lock is held, because `is_locked` may only be testing it."""


def exclusive_lock(path: Path, busy: RoboRLError | None = None) -> IO[bytes]:
    """Return an open file that this process holds locked until the file is closed or the process ends.

    Args:
        path: File of the lock.
        busy: Error to raise if another process holds the lock; None to wait for the lock.

    Raises:
        OSError: The file cannot be made.
    """
    require_plain(path)
    file = path.open("ab")
    until = time.monotonic() + BRIEF
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if busy is None else fcntl.LOCK_NB))
        except BlockingIOError:
            if time.monotonic() < until:
                time.sleep(BRIEF / 10)
                continue
            file.close()
            assert busy is not None
            raise busy from None
        return file


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder within this context, waiting for it; the folder is made if it does not exist."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def is_locked(path: Path) -> bool:
    """Return True if a process holds the exclusive lock of a file; False also if that cannot be known."""
    try:
        require_plain(path)
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def write_durably(path: Path, content: bytes | memoryview, *, draft: Path | None = None) -> None:
    """Replace the content of a file atomically; raises OSError.

    draft: path for the content until it is on disk; None for one beside the file.
    """
    draft = draft or path.with_name(f"{path.name}.tmp-{os.getpid()}")
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


@contextmanager
def drafted(path: Path) -> Iterator[Path]:
    """Yield the path of a draft that is renamed to `path` at the end of the context; after an error the draft is deleted."""
    draft = path.with_name(f".{path.stem}.draft-{os.getpid()}{path.suffix}")
    try:
        yield draft
        if draft.exists():
            draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Wait until renames in a folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
