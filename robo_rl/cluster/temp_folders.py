"""Temporary folders; those left behind by killed processes are deleted when the next one of the same kind is made."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TextIO

LOCK = "robo-rl.lock"


def locked_folder(prefix: str, parent: Path) -> tuple[Path, TextIO]:
    """Return a new private folder and its lock file, which is held until it is closed or this process ends.

    Folders of the same kind and user that no process holds are deleted.
    """
    for path in parent.glob(f"{prefix}*/{LOCK}"):
        with suppress(OSError):
            _remove_unheld(path.parent)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    lock = (folder / f"{LOCK}.new").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    (folder / f"{LOCK}.new").rename(folder / LOCK)  # it is held before it is seen
    return folder, lock


def _remove_unheld(folder: Path) -> None:
    """Delete a folder unless a process holds its lock; raises OSError if one does, or the folder belongs to another user.

    The parent folder is shared: folders and links of other users are left alone, and a FIFO in place of the lock does not
    block.
    """
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise PermissionError(f"{folder} is of another user")
    lock = os.open(folder / LOCK, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)
