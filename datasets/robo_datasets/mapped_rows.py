"""Rows of a replay memory (robo_rl.replay.rows) in .npy files, one per array: written once, then mapped read-only."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from robo_rl.system.plain_files import require_plain
from robo_rl.types import Array, Layout


def write_rows(folder: Path, layout: Layout, count: int, parts: Iterable[Mapping[str, Array]]) -> dict[str, str]:
    """Write rows durably into one .npy file per array, part by part.

    The files are not mapped for writing, because a write to a mapped file on a full disk kills the process.

    Args:
        folder: Folder for the files.
        layout: Name of an array -> shape of a row and type.
        count: Number of rows in all parts together.
        parts: Name -> (n, ...) rows of each part, in order.

    Returns:
        Name -> SHA-256 of the file.

    Raises:
        OSError: The disk is full.
    """
    with ExitStack() as stack:
        files = {
            name: stack.enter_context(_ArrayFile(_file(folder, name), (count, *shape), np.dtype(dtype)))
            for name, (shape, dtype) in layout.items()
        }
        for part in parts:
            for name, rows in part.items():
                files[name].write(np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data)
        return {name: file.finish() for name, file in files.items()}


def map_rows(folder: Path, layout: Layout, count: int, digests: Mapping[str, str]) -> dict[str, Array]:
    """Map the files that `write_rows` has written.

    Args:
        folder: Folder of the files.
        layout: As for `write_rows`.
        count: As for `write_rows`.
        digests: Result of `write_rows`, with which every byte is compared.

    Returns:
        Name -> array (count, ...), read-only.

    Raises:
        OSError: A file cannot be read.
        KeyError: A digest is missing.
        ValueError: A file was changed after it was written, or has another shape or type.
    """
    for name in layout:
        require_plain(_file(folder, name))
        with _file(folder, name).open("rb") as file:  # also brings the file into the system's memory, if it fits
            if hashlib.file_digest(file, "sha256").hexdigest() != digests[name]:
                raise ValueError(f"{name} was changed after it was written.")
    return {name: _mapped(_file(folder, name), (count, *shape), dtype) for name, (shape, dtype) in layout.items()}


def _mapped(path: Path, shape: tuple[int, ...], dtype: Any) -> Array:
    if not math.prod(shape):  # nothing to map
        array: Array = np.zeros(shape, dtype)
        array.flags.writeable = False
        return array
    array = np.load(path, mmap_mode="r", allow_pickle=False).view(np.ndarray)  # np.memmap itself is slow to index
    if array.shape != shape or array.dtype != np.dtype(dtype):
        raise ValueError(f"{path.name} holds {array.dtype} {array.shape}, not {np.dtype(dtype)} {shape}.")
    return array


def _file(folder: Path, name: str) -> Path:
    return folder / f"{name}.npy"


class _ArrayFile:
    """Writer of a .npy file of known shape."""

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._digest = hashlib.sha256()
        self._file = path.open("wb")
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self, header)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()

    def write(self, content: bytes | memoryview) -> None:
        self._digest.update(content)
        self._file.write(content)

    def finish(self) -> str:
        """Make the file durable and return its SHA-256."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._digest.hexdigest()
