"""Make a file or folder under another name, so that under its own it is whole or is not there."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from robo_rl.errors import DatasetBusy, DatasetError
from robo_rl.system.durable_files import exclusive_lock, sync_folder

LOCK = ".robo_rl.lock"


def require_free(*paths: Path) -> None:
    """Raises DatasetError if something has one of these names already."""
    for path in paths:
        if path.is_symlink() or path.exists():
            raise DatasetError(f"{path} is there already.", fix="name another with --out")


@contextmanager
def drafted(out: Path, *beside: Path) -> Iterator[Path]:
    """Gives a path to write to, which gets its name, as does whatever was written beside it, when the block ends well.

    A process that is killed leaves `.NAME.partial`, which the next one removes. beside: names that are taken too. Raises
    DatasetError where there is something already, DatasetBusy where another process is making it.
    """
    out = out.absolute()
    require_free(out, *beside)
    folder = out.with_name(f".{out.name}.partial")
    folder.mkdir(parents=True, exist_ok=True)
    busy = DatasetBusy(f"Another process is making {out}.", fix="wait for it, or name another with --out")
    with exclusive_lock(folder / LOCK, busy):
        try:
            _empty(folder)
            yield folder / out.name
            require_free(out, *beside)
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
    """Gives everything its name, the main thing last."""
    made = sorted(path for path in folder.iterdir() if path.name not in (LOCK, out.name))
    for path in [*made, folder / out.name]:
        path.rename(out.parent / path.name)
    sync_folder(out.parent)
