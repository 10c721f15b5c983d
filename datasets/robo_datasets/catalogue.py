"""Catalogue of a dataset: a SQLite file with an entry for each episode, and with people's remarks on episodes.

The file is in write-ahead mode, so that readers never see a part of a change. All but the remarks can be rebuilt from the
episodes' files.
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
"""name of a rebuilt catalogue until it replaces the damaged one"""
Note = tuple[str, str]
"""Identity of an episode, and a person's remark on the episode"""
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
    """Facts about one episode in the catalogue, which are known without reading the episode's file."""

    identity: str
    """identity of the episode, 32 hex digits; copies of the episode in other datasets have the same"""
    file: str
    """name of the episode's file in the folder of episodes"""
    bytes: int
    """[byte] size of the file"""
    steps: int
    """number of steps"""
    episode_return: float
    """undiscounted sum of the rewards; NaN if a reward is NaN"""
    success: bool | None
    """True if the task was done; None if the environment has no criterion"""
    terminated: bool
    truncated: bool
    stop_reason: str
    """reason for the end, such as goal or time_limit"""
    seed: int | None
    """seed of the episode; None if it is not known"""
    instruction: str | None
    """task of the episode in words; None if it has none"""
    source: str
    """actor of the episode: "scripted", the name of a run, ..."""

    @classmethod
    def of(cls, episode: Episode, file: FileName, size: int) -> Entry:
        """Return the entry of an episode.

        Args:
            episode: The episode.
            file: Name of its file.
            size: [byte] Size of the file.
        """
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
    """Catalogue of a dataset: the entries of its episodes, in the order in which they were added, and remarks on episodes."""

    def __init__(self, folder: Path, name: str = NAME) -> None:
        self._database = Database(folder / name)
        self.path = folder / name

    @property
    def files(self) -> list[Path]:
        """Files of the SQLite database that exist, the main one last."""
        return [path for end in ("-wal", "-shm", "") if (path := self.path.with_name(f"{self.path.name}{end}")).exists()]

    def create(self) -> None:
        """Make an empty catalogue unless one exists."""
        with self._database.writing() as connection:
            connection.execute(f"CREATE TABLE IF NOT EXISTS episodes ({_COLUMNS})")
            connection.execute("CREATE TABLE IF NOT EXISTS notes (identity TEXT NOT NULL, note TEXT NOT NULL)")

    def add(self, entry: Entry) -> None:
        """Add an entry durably: after the call it survives a power cut."""
        self.put_back(entry, None)

    def put_back(self, entry: Entry, place: int | None) -> None:
        """Add an entry at its former place in the catalogue's order; as the last one if the place is taken or None."""
        names = ", ".join(field.name for field in fields(Entry))
        free = "CASE WHEN EXISTS (SELECT 1 FROM episodes WHERE rowid = ?1) THEN NULL ELSE ?1 END"
        marks = ", ".join(f"?{number}" for number in range(2, len(fields(Entry)) + 2))
        self._database.change(f"INSERT INTO episodes (rowid, {names}) VALUES ({free}, {marks})", [(place, *astuple(entry))])

    def place_of(self, identity: str) -> int | None:
        """Return the place of an entry in the catalogue's order, from 1; None if there is no such entry."""
        rows = self._rows("SELECT rowid FROM episodes WHERE identity = ?", identity)
        return rows[0][0] if rows else None

    def require_writable(self) -> None:
        """Raise DatasetBusy if another process writes the file at present, DatasetError if it cannot be written to."""
        with self._database.writing() as connection:
            connection.execute("BEGIN IMMEDIATE")

    def correct(self, entry: Entry) -> None:
        """Replace the entry with the same file name by a correct one; its place in the order stays."""
        settings = ", ".join(f"{field.name} = ?" for field in fields(Entry))
        self._database.change(f"UPDATE episodes SET {settings} WHERE file = ?", [(*astuple(entry), entry.file)])

    def remove(self, identity: str) -> None:
        """Remove an entry. Remarks on the episode stay, in case the episode is restored."""
        self._database.change("DELETE FROM episodes WHERE identity = ?", [(identity,)])

    def note(self, identity: str, text: str) -> None:
        """Add a remark on an episode."""
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
        """Add those remarks that the catalogue does not have yet, all or none."""
        present = Counter(self.all_notes())
        missing = [note for note in notes if not _taken(present, note)]
        self._database.change("INSERT INTO notes VALUES (?, ?)", missing)

    def noted(self) -> dict[str, int]:
        """Return identity -> number of remarks, for the episodes that have remarks."""
        return dict(self._rows("SELECT identity, COUNT(*) FROM notes GROUP BY identity"))

    def entries(self) -> list[Entry]:
        """Return all entries in order; raises DatabaseCorrupt if the file is damaged or no catalogue."""
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
    """Remove one note from `present`, and return True; return False if it is not there."""
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
