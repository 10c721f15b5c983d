"""Storage of the rows of a replay memory: RAM, or memory-mapped files.

Both reserve the whole capacity at once but occupy only written pages: the system allocates a page at the first write. Nothing
is moved to a larger array later, so that the peak is the stated size.
"""

from __future__ import annotations

import math
import mmap
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from robo_rl.errors import InvalidSetting
from robo_rl.types import Array, Layout

GIGABYTE = 1e9  # bytes


class Storage(Protocol):
    """Interface of what allocates the arrays of a replay memory."""

    def allocate(self, layout: Layout, capacity: int) -> dict[str, Array]:
        """Return name -> array of zeros (capacity, ...); raises InvalidSetting, before any allocation, if they do not fit."""


@dataclass(frozen=True)
class InMemory:
    """Storage of a replay memory in RAM."""

    def __str__(self) -> str:
        return "RAM"

    def allocate(self, layout: Layout, capacity: int) -> dict[str, Array]:
        """Return name -> array of zeros (capacity, ...); raises InvalidSetting if they exceed the free RAM."""
        _require_room(layout, capacity, available_memory(), "memory of this machine")
        # The pages of large arrays of zeros are handed out by the system one by one, when they are first written.
        return {name: np.zeros((capacity, *shape), dtype) for name, (shape, dtype) in layout.items()}


@dataclass(frozen=True)
class Mapped:
    """Storage of a replay memory in unnamed mapped files on a disk.

    A killed process leaves no file behind, and no other process can open them. The disk blocks are reserved at once, so that a
    disk that fills up later cannot break a mapping.
    """

    folder: Path
    """Folder on a disk. A folder that itself lies in RAM, such as /dev/shm, has no advantage."""

    def __str__(self) -> str:
        return f"files mapped from {self.folder}"

    def allocate(self, layout: Layout, capacity: int) -> dict[str, Array]:
        """Return name -> array of zeros (capacity, ...).

        Raises InvalidSetting if the folder is not writable or its disk too full.
        """
        if not self.folder.is_dir() or not os.access(self.folder, os.W_OK):
            raise InvalidSetting(
                "The replay memory cannot be mapped there.",
                got=self.folder,
                allowed="a folder that exists and can be written",
                fix="make the folder, or choose another with learner.replay.folder",
            )
        _require_room(layout, capacity, shutil.disk_usage(self.folder).free, f"space on the disk of {self.folder}")
        return {name: self._map((capacity, *shape), np.dtype(dtype)) for name, (shape, dtype) in layout.items()}

    def _map(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        size = math.prod(shape) * dtype.itemsize
        if not size:
            return np.zeros(shape, dtype)
        with tempfile.TemporaryFile(dir=self.folder) as file:  # the mapping outlives the descriptor
            os.posix_fallocate(file.fileno(), 0, size)
            return np.frombuffer(mmap.mmap(file.fileno(), size), dtype).reshape(shape)


def storage_in(folder: str | None) -> Storage:
    """Return storage in RAM if `folder` is None, else in mapped files in that folder."""
    return InMemory() if folder is None else Mapped(Path(folder).expanduser().absolute())


def size_of(layout: Layout, rows: int) -> int:
    """Return the bytes that `rows` rows with this layout take."""
    return rows * sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in layout.values())


def available_memory() -> int:
    """Return the bytes of RAM that this process may still allocate: free and reclaimable, within a container's limit."""
    return min(_free_ram(), _free_of_container())


def _require_room(layout: Layout, capacity: int, free: int, what: str) -> None:
    size = size_of(layout, capacity)
    if size > free:
        fitting = free // size_of(layout, 1)
        raise InvalidSetting(
            "The replay memory does not fit.",
            got=f"{size / GIGABYTE:.1f} GB for {capacity} rows of {size_of(layout, 1)} bytes",
            allowed=f"{free / GIGABYTE:.1f} GB, the free {what}: {fitting} rows",
            fix="lower learner.replay.capacity, or set learner.replay.folder to a folder on a disk with room",
        )


def _free_ram() -> int:
    listing = Path("/proc/meminfo")
    if listing.exists():
        lines = dict(line.split(":") for line in listing.read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _free_of_container(group: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the bytes left below a container's memory limit (cgroup 2); its file cache is reclaimable and counts as free."""
    limit = group / "memory.max"
    if not limit.exists() or limit.read_text().strip() == "max":
        return 2**63 - 1
    lines = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    used = int((group / "memory.current").read_text()) - int(lines["inactive_file"])
    return max(int(limit.read_text()) - used, 0)
