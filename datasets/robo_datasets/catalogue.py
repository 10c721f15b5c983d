"""The list of a dataset's episodes: a SQLite file in write-ahead mode, so that readers never meet half a change.

It can be made again from the episodes' files, all but the notes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

from robo_datasets.episode_file import FileName
from robo_rl.errors import DatabaseCorrupt, DatasetNotFound
from robo_rl.system.database import Database
from robo_rl.types import Episode

NAME = "catalogue.sqlite"
DRAFT = "catalogue.draft"
"""Name of a rebuilt catalogue until it replaces the damaged one."""
Note = tuple[str, str]
"""Identity of an episode, and a person's remark on it."""
_COLUMNS = """identity TEXT PRIMARY KEY, file TEXT NOT NULL, bytes INTEGER NOT NULL, steps INTEGER NOT NULL,
    episode_return REAL, success INTEGER, terminated INTEGER NOT NULL, truncated INTEGER NOT NULL,
    stop_reason TEXT NOT NULL, seed INTEGER, instruction TEXT, source TEXT NOT NULL"""
_KINDS: dict[str, tuple[type, ...]] = {  # SQLite does not enforce column types
    **dict.fromkeys(("identity", "file", "stop_reason", "source"), (str,)),
    **dict.fromkeys(("bytes", "steps", "terminated", "truncated"), (int,)),
    **dict.fromkeys(("success", "seed"), (int, type(None))),
    "episode_return": (float, type(None)),
    "instruction": (str, type(None)),
}


@dataclass(frozen=True)
class Entry:
    """Facts about an episode that the catalogue knows without reading the episode's file."""

    identity: str
    """Name of the episode that stays the same, 32 hex digits."""
    file: str
    """Name of its file."""
    bytes: int
    """Size of the file."""
    steps: int
    episode_return: float
    """Undiscounted sum of the rewards; NaN if one of them is NaN."""
    success: bool | None
    terminated: bool
    truncated: bool
    stop_reason: str
    seed: int | None
    instruction: str | None
    source: str
    """What acted: "scripted", the name of a run, ..."""

    @classmethod
    def of(cls, episode: Episode, file: FileName, size: int) -> Entry:
        """Return the entry of an episode, given its file and the file's size in bytes."""
        return cls(
            identity=file.identity,
            file=str(file),
            bytes=size,
            steps=len(episode),
            episode_return=episode.undiscounted_return,
            success=episode.success,
            terminated=episode.terminated,
            truncated=episode.truncated,
            stop_reason=episode.stop_reason,
            seed=episode.seed,
            instruction=episode.instruction,
            source=str(episode.metadata.get("source", "unknown")),
        )


class Catalogue:
    """Catalogue of a dataset: an entry for each episode, in the order in which they were added, and remarks on episodes."""

    def __init__(self, folder: Path, name: str = NAME) -> None:
        self._database = Database(folder / name)
        self.path = folder / name

    @property
    def files(self) -> list[Path]:
        """Existing files of the database, the main one last."""
        return [path for end in ("-wal", "-shm", "") if (path := self.path.with_name(f"{self.path.name}{end}")).exists()]

    def create(self) -> None:
        """Make an empty catalogue unless one exists."""
        with self._database.writing() as connection:
            connection.execute(f"CREATE TABLE IF NOT EXISTS episodes ({_COLUMNS})")
            connection.execute("CREATE TABLE IF NOT EXISTS notes (identity TEXT NOT NULL, note TEXT NOT NULL)")

    def add(self, entry: Entry) -> None:
        """Add an entry durably: it survives a power cut after this returns."""
        self.put_back(entry, None)

    def put_back(self, entry: Entry, place: int | None) -> None:
        """Add an entry at the place in the order where it was; last if `place` is taken, or None."""
        names = ", ".join(field.name for field in fields(Entry))
        free = "CASE WHEN EXISTS (SELECT 1 FROM episodes WHERE rowid = ?1) THEN NULL ELSE ?1 END"
        marks = ", ".join(f"?{number}" for number in range(2, len(fields(Entry)) + 2))
        self._database.change(f"INSERT INTO episodes (rowid, {names}) VALUES ({free}, {marks})", [(place, *astuple(entry))])

    def place_of(self, identity: str) -> int | None:
        """Return the place of an entry in the order of the catalogue; None if there is no such entry."""
        rows = self._rows("SELECT rowid FROM episodes WHERE identity = ?", identity)
        return rows[0][0] if rows else None

    def require_writable(self) -> None:
        """Raise DatasetBusy while another process writes the file, DatasetError if nothing may be written."""
        with self._database.writing() as connection:
            connection.execute("BEGIN IMMEDIATE")

    def correct(self, entry: Entry) -> None:
        """Replace the entry of the same file; its place in the order stays."""
        settings = ", ".join(f"{field.name} = ?" for field in fields(Entry))
        self._database.change(f"UPDATE episodes SET {settings} WHERE file = ?", [(*astuple(entry), entry.file)])

    def remove(self, identity: str) -> None:
        """Remove an entry; the remarks on the episode stay, in case it comes back."""
        self._database.change("DELETE FROM episodes WHERE identity = ?", [(identity,)])

    def note(self, identity: str, text: str) -> None:
        """Add a remark on an episode, such as a person's."""
        self._database.change("INSERT INTO notes VALUES (?, ?)", [(identity, text)])

    def notes(self, identity: str) -> list[str]:
        """Return the remarks on an episode, oldest first."""
        return [note for (note,) in self._rows("SELECT note FROM notes WHERE identity = ?", identity)]

    def all_notes(self) -> list[Note]:
        """Return every remark as (identity of the episode, text), oldest first."""
        return [(identity, note) for identity, note in self._rows("SELECT identity, note FROM notes ORDER BY rowid")]

    def salvaged_notes(self) -> list[Note]:
        """Return the remarks that are still readable in a damaged catalogue."""
        rows = self._database.salvaged("SELECT identity, note FROM notes")
        return [row for row in rows if all(isinstance(value, str) for value in row)]

    def add_notes(self, notes: Iterable[Note]) -> None:
        """Add the missing remarks, all or none."""
        present = Counter(self.all_notes())
        missing = [note for note in notes if not _taken(present, note)]
        self._database.change("INSERT INTO notes VALUES (?, ?)", missing)

    def noted(self) -> dict[str, int]:
        """Return identity -> number of remarks, for episodes with remarks."""
        return dict(self._rows("SELECT identity, COUNT(*) FROM notes GROUP BY identity"))

    def entries(self) -> list[Entry]:
        """Return all entries; raises DatabaseCorrupt if the file is damaged or not a catalogue."""
        return [_entry(row) for row in self._rows("SELECT * FROM episodes ORDER BY rowid")]

    def require_sound(self) -> None:
        """Raise DatabaseCorrupt unless the whole file is readable and consistent; DatasetNotFound without a file."""
        self.entries()
        self.noted()
        self._database.require_sound()

    def _rows(self, query: str, *parameters: str) -> list[tuple[Any, ...]]:
        if not self.path.exists():
            raise DatasetNotFound(f"{self.path} does not exist.", fix="robo-rl data repair DATASET makes it from the episodes")
        with self._database.reading() as connection:
            return connection.execute(query, parameters).fetchall()


def _taken(present: Counter[Note], note: Note) -> bool:
    """Remove a note from those present; return False if it was not among them."""
    is_there = present[note] > 0
    present[note] -= is_there
    return is_there


def _entry(row: tuple[Any, ...]) -> Entry:
    values = dict(zip((field.name for field in fields(Entry)), row, strict=False))
    is_whole = len(row) == len(values) and all(isinstance(values[name], kinds) for name, kinds in _KINDS.items())
    if not is_whole or values["steps"] < 0:
        raise DatabaseCorrupt(
            "A row of the catalogue is damaged.", got=row, fix="robo-rl data repair DATASET makes it again from the episodes"
        )
    flags = {name: None if values[name] is None else bool(values[name]) for name in ("success", "terminated", "truncated")}
    if values["episode_return"] is None:  # SQLite keeps NaN as NULL
        values["episode_return"] = math.nan
    FileName.parse(values["file"])  # a hostile catalogue must not lead out of the folder
    return Entry(**values | flags)
