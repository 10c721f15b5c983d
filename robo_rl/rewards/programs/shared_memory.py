"""Shared memory of two processes: one block for inputs, one for outputs, laid out alike by both.

Inputs: the number of rows, then each column with room for `rows` rows. Outputs: total and terms, (K + 1, N) float64 without
gaps, then a message of bounded length.
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
"""As robo_rl.types.Array; that module is not loaded in the process that programs run in."""
Buffer = mmap.mmap
MOST_MESSAGE = 4_096
"""[byte]"""
ALIGNMENT = 64
"""[byte] a line of the processor's cache"""


@dataclass(frozen=True)
class ColumnLayout:
    """Type and shape of one row of a column."""

    dtype: str
    """As numpy writes it, such as "<f4"."""
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """[byte] of a row."""
        return int(np.dtype(self.dtype).itemsize * np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True)
class Layout:
    """Layout of both memories."""

    columns: Mapping[str, ColumnLayout]
    terms: int
    rows: int
    """Capacity in rows."""

    @cached_property
    def offsets(self) -> dict[str, int]:
        """Name -> [byte] offset of the column."""
        offsets, offset = {}, ALIGNMENT
        for name, column in self.columns.items():
            offsets[name] = offset
            offset += -(-column.size * self.rows // ALIGNMENT) * ALIGNMENT
        return offsets

    @property
    def bytes_in(self) -> int:
        """[byte] of the memory for inputs."""
        return ALIGNMENT + sum(-(-column.size * self.rows // ALIGNMENT) * ALIGNMENT for column in self.columns.values())

    @property
    def message(self) -> int:
        """[byte] offset of the message in the memory for outputs."""
        return 8 * (self.terms + 1) * self.rows

    @property
    def bytes_out(self) -> int:
        """[byte] of the memory for outputs."""
        return self.message + 8 + MOST_MESSAGE

    def inputs(self, memory: Buffer, rows: int) -> dict[str, Array]:
        """Return name -> (rows, ...) views."""
        return {
            name: np.frombuffer(memory, column.dtype, rows * column.size // np.dtype(column.dtype).itemsize, offset).reshape(
                rows, *column.shape
            )
            for (name, column), offset in zip(self.columns.items(), self.offsets.values(), strict=True)
        }

    def outputs(self, memory: Buffer, rows: int) -> npt.NDArray[np.float64]:
        """Return a (terms + 1, rows) view."""
        return np.frombuffer(memory, np.float64, (self.terms + 1) * rows).reshape(self.terms + 1, rows)

    def write_message(self, memory: Buffer, text: str) -> None:
        """Leave a message, cut to its room."""
        words = text.encode("utf-8", "replace")[:MOST_MESSAGE]
        memory[self.message : self.message + 8] = len(words).to_bytes(8, "little")
        memory[self.message + 8 : self.message + 8 + len(words)] = words

    def read_message(self, memory: Buffer) -> str:
        """Return the message as one printable line, for any bytes: more lines could pass for ours."""
        size = min(int.from_bytes(memory[self.message : self.message + 8], "little"), MOST_MESSAGE)
        words = memory[self.message + 8 : self.message + 8 + size].decode("utf-8", "replace")
        return "".join(letter if letter.isprintable() else " " if letter == "\n" else "?" for letter in words)
