"""A SQLite file whose changes are whole and durable, and which can be read where nothing may be written."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from robo_rl.errors import DatasetError

SUFFIX = ".sqlite"
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
"""Of a set that is a file of its own in a dataset."""
WAIT = 10.0
"""[s] for another process to finish its change."""


class Database:
    """One file in write-ahead mode; every error of SQLite becomes a DatasetError that names the file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Yields a connection whose changes are kept together at the end of the block: a power cut does not undo them."""
        if self.path.is_symlink():
            raise DatasetError(
                f"{self.path} is a link; nothing is written through it.", fix="put in its place what it leads to"
            )
        with self._connected("mode=rwc") as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            with connection:
                yield connection

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yields a connection that changes nothing."""
        if os.access(self.path.parent, os.W_OK):
            with self._connected("mode=ro") as connection:
                yield connection
            return
        # a folder that may not be written to has no room for write-ahead files, and nobody can be writing there
        ahead = self.path.with_name(f"{self.path.name}-wal")
        if not ahead.exists() or not ahead.stat().st_size:
            with self._connected("mode=ro&immutable=1") as connection:
                yield connection
            return
        with TemporaryDirectory() as folder:  # what a process that was killed wrote ahead is part of the file
            for path in (self.path, ahead):
                shutil.copyfile(path, Path(folder) / path.name)
            with self._connected("mode=rw", Path(folder) / self.path.name) as connection:
                yield connection

    def has(self, table: str) -> bool:
        """Returns whether the file is there with a table, which a kill may have left without."""
        if not self.path.exists():
            return False
        with self.reading() as connection:
            return bool(connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone())

    @contextmanager
    def _connected(self, options: str, path: Path | None = None) -> Iterator[sqlite3.Connection]:
        try:
            uri = (path or self.path).absolute().as_uri()
            connection = sqlite3.connect(f"{uri}?{options}", uri=True, timeout=WAIT)
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
