"""Copy a folder while it is in use: its changes are sent repeatedly, and written so that a kill leaves a consistent copy."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import numpy as np
import numpy.typing as npt

from robo_rl.errors import WorkerFailed
from robo_rl.runs.checkpoints import MANIFEST
from robo_rl.system.durable_files import sync_folder, write_durably

Files = Mapping[str, npt.NDArray[np.uint8]]
"""Path in the folder -> content (bytes,) uint8."""
LAST = "evaluation.json"
"""File that marks a run as finished; it is copied last."""


class ChangingFolder:
    """Folder whose changes since the last look can be asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read: dict[str, tuple[int, int]] = {}

    def changes(self, *, is_over: bool = True) -> tuple[Files, list[str]]:
        """Return the files that were written and the paths that were removed since the last call.

        is_over: True if nobody writes to the folder any more. If False, databases are left out, because they cannot be copied
        while they are written, and only removed checkpoints are reported as removed.
        """
        there, changed = set(), {}
        for path in self._paths():
            name = path.relative_to(self.path).as_posix()
            if not path.is_file() or path.is_symlink() or name == "lock" or ".tmp" in name:
                continue
            if not is_over and ".sqlite" in name:
                continue
            try:
                state = path.stat()
                found = state.st_size, state.st_mtime_ns
                if self._read.get(name) != found:
                    changed[name] = np.frombuffer(path.read_bytes(), np.uint8)
            except FileNotFoundError:  # an old checkpoint, removed while we were reading
                continue
            self._read[name] = found
            there.add(name)
        gone = sorted(name for name in self._read.keys() - there if is_over or name.startswith("checkpoints/"))
        for name in gone:
            del self._read[name]
        return changed, gone

    def _paths(self) -> list[Path]:
        """Return all files; folders that are removed or renamed at the same time, such as checkpoints, are skipped."""
        return sorted(Path(folder, name) for folder, _, names in os.walk(self.path) for name in names)


def place(folder: Path, files: Files, gone: list[str]) -> None:
    """Apply the changes that `ChangingFolder.changes` returned to a copy of the folder.

    A checkpoint gets its name only when all of its files are written, and the final evaluation is written last, so that a kill
    leaves no broken checkpoint and no unfinished run that looks finished.

    Args:
        folder: The copy.
        files: Written files.
        gone: Paths of removed files.

    Raises:
        WorkerFailed: A path leads out of the folder.
    """
    for name in sorted(files, key=lambda name: (name == LAST, PurePosixPath(name).name == MANIFEST, name)):
        path = _inside(folder, name)
        is_fresh = name.startswith("checkpoints/") and not path.parent.exists()
        draft = path.parent.with_name(f"{path.parent.name}.tmp-{os.getpid()}") if is_fresh else path.parent
        draft.mkdir(parents=True, exist_ok=True)
        write_durably(draft / path.name, files[name].tobytes())
        if is_fresh and path.name == MANIFEST:
            draft.rename(path.parent)
            sync_folder(path.parent.parent)
    for name in gone:
        path = _inside(folder, name)
        path.unlink(missing_ok=True)
        if path.parent != folder and path.parent.is_dir() and not any(path.parent.iterdir()):
            path.parent.rmdir()


def _inside(folder: Path, name: str) -> Path:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise WorkerFailed("A worker sent a file that leads out of its folder.", got=name)
    return folder / path
