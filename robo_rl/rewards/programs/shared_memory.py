"""Shared memory of two processes: one block for inputs, one for outputs, with a layout known to both.

Inputs: the number of rows, then each column with room for `rows` rows. Outputs: total and terms, (K + 1, N) float64 without
gaps, then a message of limited length.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
"""Same as robo_rl.types.Array; that module is not loaded in the process that runs programs."""
Buffer = mmap.mmap
MOST_MESSAGE = 4_096
"""[bytes] largest size of a message from the worker."""
ALIGNMENT = 64
"""[bytes] alignment of the columns: a cache line of the processor."""


@dataclass(frozen=True)
class ColumnLayout:
    """Type and shape of one row of a column, as it lies in shared memory."""

    dtype: str
    """Type in NumPy's notation, such as "<f4"."""
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """[bytes] size of a row."""
        return int(np.dtype(self.dtype).itemsize * np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True)
class Layout:
    """Layout of the two blocks of memory that parent and worker share: one for inputs, one for outputs."""

    columns: Mapping[str, ColumnLayout]
    """Name -> layout of each column."""
    terms: int
    """K, number of terms that the program returns."""
    rows: int
    """Largest number of rows in a batch."""

    @cached_property
    def offsets(self) -> dict[str, int]:
        """Name -> offset of each column in the block for inputs [bytes]."""
        offsets, offset = {}, ALIGNMENT
        for name, column in self.columns.items():
            offsets[name] = offset
            offset += -(-column.size * self.rows // ALIGNMENT) * ALIGNMENT
        return offsets

    @property
    def bytes_in(self) -> int:
        """[bytes] size of the block for inputs."""
        return ALIGNMENT + sum(-(-column.size * self.rows // ALIGNMENT) * ALIGNMENT for column in self.columns.values())

    @property
    def message(self) -> int:
        """[bytes] offset of the message in the block for outputs."""
        return 8 * (self.terms + 1) * self.rows

    @property
    def bytes_out(self) -> int:
        """[bytes] size of the block for outputs."""
        return self.message + 8 + MOST_MESSAGE

    def inputs(self, memory: Buffer, rows: int) -> dict[str, Array]:
        """Return for each column a view (rows, ...) into the block for inputs, by name."""
        return {
            name: np.frombuffer(memory, column.dtype, rows * column.size // np.dtype(column.dtype).itemsize, offset).reshape(
                rows, *column.shape
            )
            for (name, column), offset in zip(self.columns.items(), self.offsets.values(), strict=True)
        }

    def outputs(self, memory: Buffer, rows: int) -> npt.NDArray[np.float64]:
        """Return a view (terms + 1, rows) of the results, total and terms, in the block for outputs."""
        return np.frombuffer(memory, np.float64, (self.terms + 1) * rows).reshape(self.terms + 1, rows)

    def write_message(self, memory: Buffer, text: str) -> None:
        """Write a message, shortened to MOST_MESSAGE bytes."""
        words = text.encode("utf-8", "replace")[:MOST_MESSAGE]
        memory[self.message : self.message + 8] = len(words).to_bytes(8, "little")
        memory[self.message + 8 : self.message + 8 + len(words)] = words

    def read_message(self, memory: Buffer) -> str:
        """Return the message as one printable line, whatever its bytes are."""
        size = min(int.from_bytes(memory[self.message : self.message + 8], "little"), MOST_MESSAGE)
        words = memory[self.message + 8 : self.message + 8 + size].decode("utf-8", "replace")
        return "".join(letter if letter.isprintable() else " " if letter == "\n" else "?" for letter in words)
