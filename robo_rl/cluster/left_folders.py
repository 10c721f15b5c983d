"""Temporary folders that a kill leaves behind are removed by whoever makes the next one of their kind."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TextIO

LOCK = "robo-rl.lock"


def held_folder(prefix: str, parent: Path) -> tuple[Path, TextIO]:
    """Returns a new folder, and its lock, which is held as long as that is open: at most until this process ends.

    Removes the folders of this kind that nobody holds.
    """
    for path in parent.glob(f"{prefix}*/{LOCK}"):
        with suppress(OSError), path.open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path.parent, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    lock = (folder / f"{LOCK}.new").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    (folder / f"{LOCK}.new").rename(folder / LOCK)  # nobody sees it before it is held
    return folder, lock
