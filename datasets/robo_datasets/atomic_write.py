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
    """Raise DatasetError if a file, folder or link exists at one of these paths."""
    for path in paths:
        if path.is_symlink() or path.exists():
            raise DatasetError(f"{path} is there already.", fix="name another with --out")


@contextmanager
def atomic_write(out: Path, *siblings: Path) -> Iterator[Path]:
    """Yield a temporary path for a file or folder, which is renamed to `out` if the block succeeds.

    If the block fails, nothing is left. A killed process leaves a folder `.NAME.partial`, which the next call removes.

    Args:
        out: Final path.
        *siblings: Final paths of further files, which the block writes beside the temporary path, under their final names.

    Raises:
        DatasetError: Something exists at one of the final paths.
        DatasetBusy: Another process is writing the same path.
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
    """Move all finished files from the draft's folder to their final places, `out` itself last."""
    made = sorted(path for path in folder.iterdir() if path.name not in (LOCK, out.name))
    for path in [*made, folder / out.name]:
        path.rename(out.parent / path.name)
    sync_folder(out.parent)
