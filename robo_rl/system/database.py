"""SQLite files with atomic and durable changes, readable also in read-only folders."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from robo_rl.errors import DatabaseCorrupt, DatasetBusy, DatasetError, RoboRLError

SUFFIX = ".sqlite"
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
"""Pattern for the name of a set, such as labels, that has its own file in a dataset."""
WAIT = 10.0
"""[s] Longest wait for another process that holds the file."""
AT_STAKE = 1.0
"""[s] of changes that a power failure may undo while a file is held open."""
LONGEST = 120.0
"""[s] after which a query is interrupted; only a malicious file makes one take so long."""
REMEDY = "look at the disk; robo-rl data repair DATASET makes a catalogue again"
WRITE = "mode=rwc"
PAGE = 4096
"""[bytes] page size of SQLite's default, and so of all files written here."""

_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_OTHER_SCHEMA = re.compile(r"no such (table|column)|Could not decode to UTF-8|has \d+ columns but \d+ values")
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_FIXES = {
    sqlite3.SQLITE_FULL: "make room on the disk; nothing was changed",
    sqlite3.SQLITE_IOERR: "look at the disk, which is full or failing; nothing was changed",
    sqlite3.SQLITE_BUSY: "wait for the program that holds it, or end it; nothing was changed",
    sqlite3.SQLITE_INTERRUPT: "do not use a file from a source that you do not trust",
    **dict.fromkeys(
        (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM), "look at its permissions; nothing was changed"
    ),
}
_NO_ROOM = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}
_FOREIGN_SCHEMA = """SELECT name FROM sqlite_master
    WHERE sql NOT LIKE 'CREATE TABLE %' OR lower(sql) GLOB '*[^a-z_0-9]as[^a-z_0-9]*' LIMIT 1"""
"""Views, triggers, virtual tables and computed columns, in which a file could hide work without end."""


class Database:
    """SQLite file in write-ahead mode; errors of SQLite become errors of robo_rl that name the file.

    DatabaseCorrupt means that the file itself is damaged; a full disk, a lock or missing permissions raise another
    DatasetError.
    """

    def __init__(self, path: Path, remedy: str = REMEDY, *, schema: str = "", error: type[RoboRLError] | None = None) -> None:
        """Store the path; the file is opened later.

        Args:
            path: The file.
            remedy: Remedy in the error for a damaged file.
            schema: Statements that create missing tables, run when the file is opened for writing.
            error: Error to raise instead of DatasetError, DatasetBusy and DatabaseCorrupt.
        """
        self.path, self._remedy, self._schema = path, remedy, schema
        self._failed, self._busy, self._damaged = (error or DatasetError), (error or DatasetBusy), (error or DatabaseCorrupt)
        self._holding: ExitStack | None = None
        self._held: sqlite3.Connection | None = None
        self._synced = 0.0

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep the file open within this context, from the first change on, which makes changes 100 times as fast.

        A kill undoes no change; a power failure may undo the changes of the last second, because only once a second the disk is
        waited for.
        """
        with ExitStack() as stack:
            self._holding = stack
            try:
                yield
            finally:
                self._holding = self._held = None

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection whose changes are committed together and durably at the end of the context."""
        if self._holding is None:
            with self.opened() as connection, connection:
                yield connection
            return
        if self._held is None:
            self._held = self._holding.enter_context(self.opened())
        is_due = time.monotonic() - self._synced >= AT_STAKE
        self._held.execute(f"PRAGMA synchronous = {'FULL' if is_due else 'NORMAL'}")
        with self._held:
            yield self._held
        self._synced = time.monotonic() if is_due else self._synced

    def change(self, query: str, rows: Iterable[Sequence[Any]]) -> None:
        """Execute a statement once for each row, atomically and durably."""
        with self.writing() as connection:
            connection.executemany(query, rows)

    @contextmanager
    def opened(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection for writing; each transaction is durable once committed."""
        if self.path.is_symlink():
            raise self._failed(f"{self.path} is a link; nothing is written through it.", fix="replace it by its target")
        with self._connected(WRITE) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.executescript(self._schema)
            yield connection

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection to the file for reading only."""
        with ExitStack() as stack:
            try:
                connection = stack.enter_context(self._live())
            except RoboRLError as error:
                # a full disk, like a folder that may not be written to, has no room for a reader's write-ahead files
                if self.path.is_symlink() or _code(error.__cause__) not in _NO_ROOM:
                    raise
                connection = stack.enter_context(self._frozen())
            yield connection

    @contextmanager
    def _live(self) -> Iterator[sqlite3.Connection]:
        # no process can be writing in a folder that may not be written to
        with self._connected("mode=ro") if os.access(self.path.parent, os.W_OK) else self._frozen() as connection:
            yield connection

    @contextmanager
    def _frozen(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection for reading that creates no file beside the database."""
        ahead = self.path.with_name(f"{self.path.name}-wal")
        if not ahead.exists() or not ahead.stat().st_size:
            with self._connected("mode=ro&immutable=1") as connection:
                yield connection
            return
        with TemporaryDirectory() as folder:  # the write-ahead log of a killed process is part of the file
            try:
                for path in (self.path, ahead):
                    shutil.copyfile(path, Path(folder) / path.name)
            except OSError as error:
                raise self._failed(f"{self.path} cannot be read.", got=error, fix="make room on the disk") from error
            with self._connected("mode=rw", Path(folder) / self.path.name) as connection:
                yield connection

    def rows(self, table: str, query: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query; none if the file or the table does not exist, as after a kill."""
        if not self.path.exists():
            return []
        with self.reading() as connection:
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone():
                return []
            return connection.execute(query, parameters).fetchall()

    def require_sound(self) -> None:
        """Raise DatabaseCorrupt if SQLite finds contradictions between pages or indices of an existing file."""
        if not self.path.exists():
            return
        with self.reading() as connection:
            found = connection.execute("PRAGMA integrity_check(1)").fetchone()
            if found is None or found[0] != "ok":
                raise self._corrupt(None if found is None else found[0])

    def salvaged(self, query: str) -> list[tuple[Any, ...]]:
        """Return as many rows of a damaged file as can be read; the file is not changed. Raises OSError."""
        found: list[tuple[Any, ...]] = []
        if not self.path.is_file():
            return found
        for opened in (self._in_place("mode=ro"), self._in_place("mode=ro&immutable=1"), self._with_new_header):
            with suppress(sqlite3.Error), closing(opened()) as connection:
                _bound(connection)
                rows = _readable_rows(connection, query)
                found = max(found, rows, key=len)
        return found

    def _in_place(self, options: str) -> Callable[[], sqlite3.Connection]:
        return lambda: sqlite3.connect(f"{self.path.absolute().as_uri()}?{options}", uri=True, timeout=WAIT)

    def _with_new_header(self) -> sqlite3.Connection:
        """Open a copy in memory with a sound header in place of the damaged one."""
        content = bytearray(self.path.read_bytes())
        content[:24] = b"SQLite format 3\0" + PAGE.to_bytes(2, "big") + bytes((1, 1, 0, 64, 32, 32))
        content[28:32] = (len(content) // PAGE).to_bytes(4, "big")
        content[44:48], content[56:60] = (4).to_bytes(4, "big"), (1).to_bytes(4, "big")
        connection = sqlite3.connect(":memory:")
        connection.deserialize(bytes(content))
        return connection

    @contextmanager
    def _connected(self, options: str, path: Path | None = None) -> Iterator[sqlite3.Connection]:
        for end in ("", "-wal", "-shm", "-journal"):
            part = self.path.with_name(f"{self.path.name}{end}")
            if part.exists() and not part.is_file():  # opening a pipe would block without end
                raise self._corrupt(f"{part.name} is not a plain file" if end else "it is not a plain file")
        try:
            uri = (path or self.path).absolute().as_uri()
            connection = sqlite3.connect(f"{uri}?{options}", uri=True, timeout=WAIT)
            try:
                self._require_plain(connection)
                if options != WRITE:
                    _bound(connection)
                yield connection
            finally:
                connection.close()
        except UnicodeDecodeError as error:
            raise self._corrupt(error) from error
        except sqlite3.Error as error:
            code = _code(error)
            if code in _DAMAGE or _OTHER_SCHEMA.search(str(error)):
                raise self._corrupt(error) from error
            kind, key = (self._busy, sqlite3.SQLITE_BUSY) if code in _BUSY else (self._failed, code)
            raise kind(f"{self.path} cannot be used.", got=error, fix=_FIXES.get(key or 0, self._remedy)) from error

    def _require_plain(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA trusted_schema = OFF")
        if (found := connection.execute(_FOREIGN_SCHEMA).fetchone()) is not None:
            raise self._corrupt(f"{found[0]}, which is computed", allowed="tables of plain columns")

    def _corrupt(self, got: object, allowed: str | None = None) -> RoboRLError:
        return self._damaged(f"{self.path} cannot be used.", got=f"damaged: {got}", allowed=allowed, fix=self._remedy)


def _code(error: BaseException | None) -> int | None:
    """Return SQLite's primary code of an error, None if it has none."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def _bound(connection: sqlite3.Connection) -> None:
    """Interrupt statements of this connection that take longer than LONGEST."""
    until = time.monotonic() + LONGEST
    connection.set_progress_handler(lambda: time.monotonic() > until, 100_000)


def _readable_rows(connection: sqlite3.Connection, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query up to the first that cannot be read."""
    connection.text_factory = lambda text: text.decode(errors="replace")
    connection.execute("PRAGMA writable_schema = ON")  # a table is read although the words on another one are damaged
    rows = []
    with suppress(sqlite3.Error, UnicodeDecodeError):
        for row in connection.execute(query):
            rows.append(row)
    return rows
