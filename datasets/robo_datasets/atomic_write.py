"""Atomic writes: a file or folder appears under its name only when it is complete."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from robo_rl.errors import DatasetBusy, DatasetError
from robo_rl.system.durable_files import exclusive_lock, sync_folder

LOCK = ".robo_rl.lock"


def require_free(*paths: Path) -> None:
    """Raise DatasetError if one of these names is taken."""
    for path in paths:
        if path.is_symlink() or path.exists():
            raise DatasetError(f"{path} is there already.", fix="name another with --out")


@contextmanager
def atomic_write(out: Path, *siblings: Path) -> Iterator[Path]:
    """Yield a temporary path; it and its siblings are renamed into place if the block succeeds.

    A killed process leaves `.NAME.partial`, which the next one removes. siblings: further names that the block writes. Raises
    DatasetError if a name is taken, DatasetBusy if another process is writing it.
    """
    out = out.absolute()
    require_free(out, *siblings)
    folder = out.with_name(f".{out.name}.partial")
    folder.mkdir(parents=True, exist_ok=True)
    busy = DatasetBusy(f"Another process is making {out}.", fix="wait for it, or name another with --out")
    with exclusive_lock(folder / LOCK, busy):
        try:
            _empty(folder)
            yield folder / out.name
            require_free(out, *siblings)
            _place(folder, out)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != LOCK:
            path.unlink()


def _place(folder: Path, out: Path) -> None:
    """Rename all files into place, the main one last."""
    made = sorted(path for path in folder.iterdir() if path.name not in (LOCK, out.name))
    for path in [*made, folder / out.name]:
        path.rename(out.parent / path.name)
    sync_folder(out.parent)
