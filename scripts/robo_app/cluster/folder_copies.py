"""Copy of a folder during its use: changes since the last time, written so that a kill leaves it consistent."""

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
"""Path in the folder -> content."""
LAST = "evaluation.json"
"""Marks a run as finished, so it is copied last."""


class ChangingFolder:
    """Remembers which files of a folder were read, and gives those that are new or were written since."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read: dict[str, tuple[int, int]] = {}

    def changes(self, *, is_over: bool = True) -> tuple[Files, list[str]]:
        """Return files written, and names removed, since the last call.

        is_over: the folder is complete; otherwise databases, which cannot be read half-way, and unnamed files are left
        for another time.
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
        """Return the present files, without folders removed or renamed meanwhile, such as checkpoints."""
        return sorted(Path(folder, name) for folder, _, names in os.walk(self.path) for name in names)


def place(folder: Path, files: Files, gone: list[str]) -> None:
    """Write changes of a folder durably: the manifest of a checkpoint behind its arrays, the final evaluation last of all.

    A checkpoint has its name once it is whole, so that a kill leaves none that cannot be loaded.
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
