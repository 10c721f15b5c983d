"""A SQLite file whose changes are whole and durable, and which can be read where nothing may be written."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from robo_rl.errors import DatasetError

WAIT = 10.0
"""[s] for another process to finish its change."""


class Database:
    """One file in write-ahead mode; every error of SQLite becomes a DatasetError that names the file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Yields a connection whose changes are kept together at the end of the block: a power cut does not undo them."""
        with self._connected("mode=rwc") as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            with connection:
                yield connection

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yields a connection that changes nothing."""
        # a folder that may not be written to has no room for write-ahead files, and nobody can be writing there
        fixed = "" if os.access(self.path.parent, os.W_OK) else "&immutable=1"
        with self._connected(f"mode=ro{fixed}") as connection:
            yield connection

    @contextmanager
    def _connected(self, options: str) -> Iterator[sqlite3.Connection]:
        try:
            connection = sqlite3.connect(f"{self.path.absolute().as_uri()}?{options}", uri=True, timeout=WAIT)
            try:
                yield connection
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise DatasetError(
                f"{self.path} cannot be used.",
                got=error,
                fix="look at the disk; robo-rl data repair DATASET makes a catalogue again",
            ) from error
