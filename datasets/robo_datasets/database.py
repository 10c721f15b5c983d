"""A SQLite file whose changes are whole and durable, and which can be read where nothing may be written."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from robo_rl.errors import DatasetError

SUFFIX = ".sqlite"
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
"""Of a set that is a file of its own in a dataset."""
WAIT = 10.0
"""[s] for another process to finish its change."""
AT_STAKE = 1.0
"""[s] of changes that a power cut may undo where a file is held open."""
REMEDY = "look at the disk; robo-rl data repair DATASET makes a catalogue again"


class Database:
    """One file in write-ahead mode; every error of SQLite becomes a DatasetError that names the file."""

    def __init__(self, path: Path, remedy: str = REMEDY) -> None:
        """Names the file, and what helps where it is damaged."""
        self.path, self._remedy = path, remedy
        self._holding: ExitStack | None = None
        self._held: sqlite3.Connection | None = None
        self._synced = 0.0

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keeps the file open from the first change in this block on, which makes changes 100 times as fast.

        No kill undoes a change; a power cut may undo those of the last second, because the disk is waited for that often.
        """
        with ExitStack() as stack:
            self._holding = stack
            try:
                yield
            finally:
                self._holding = self._held = None

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Yields a connection whose changes are kept together at the end of the block: a power cut does not undo them."""
        if self._holding is None:
            with self._opened() as connection, connection:
                yield connection
            return
        if self._held is None:
            self._held = self._holding.enter_context(self._opened())
        is_due = time.monotonic() - self._synced >= AT_STAKE
        self._held.execute(f"PRAGMA synchronous = {'FULL' if is_due else 'NORMAL'}")
        with self._held:
            yield self._held
        self._synced = time.monotonic() if is_due else self._synced

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        if self.path.is_symlink():
            raise DatasetError(
                f"{self.path} is a link; nothing is written through it.", fix="put in its place what it leads to"
            )
        with self._connected("mode=rwc") as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
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
                fix=self._remedy,
            ) from error
