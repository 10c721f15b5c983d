"""Comparisons of segments of a dataset, in named sets. People, models and oracles may answer in the same set.

A set is a SQLite file in write-ahead mode, DATASET/preferences/NAME.sqlite. It has one row per pair and rater, in the order of
the answers, with a SHA-256 over the row. Rows of older versions have no SHA-256 and stay readable.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from robo_datasets.dataset import Dataset, require_no_links
from robo_rl.errors import DatasetError, EpisodeCorrupt, InvalidSetting, UnknownName
from robo_rl.system.database import NAME, SUFFIX, Database
from robo_rl.types import Preference

FOLDER = "preferences"
SKIP = -1.0
_HASHED = "SELECT 1 FROM pragma_table_info('preferences') WHERE name = 'sha256'"
_SEGMENTS = "first, first_start, first_stop, second, second_start, second_stop"
_FACTS = f"{_SEGMENTS}, label, rater, kind"
_KINDS = (str, int, int, str, int, int, float, str, str)
_COLUMNS = f"""first TEXT NOT NULL, first_start INTEGER NOT NULL, first_stop INTEGER NOT NULL,
    second TEXT NOT NULL, second_start INTEGER NOT NULL, second_stop INTEGER NOT NULL, label REAL NOT NULL,
    rater TEXT NOT NULL, kind TEXT NOT NULL, sha256 TEXT, UNIQUE ({_SEGMENTS}, rater)"""


class PreferenceSet:
    """Set of the answers of raters on pairs of segments, at most one per rater and pair."""

    def __init__(self, dataset: Dataset, name: str) -> None:
        """Open a set, whose file the first answer creates; raises InvalidSetting if no file can have this name."""
        if not NAME.fullmatch(name):
            raise InvalidSetting("A set of preferences has an impossible name.", got=name, allowed=NAME.pattern)
        self.name, self._dataset = name, dataset.path
        remedy = f"move {FOLDER}/{name}{SUFFIX} away, and compare again"
        schema = f"CREATE TABLE IF NOT EXISTS preferences ({_COLUMNS})"
        self._database = Database(dataset.path / FOLDER / f"{name}{SUFFIX}", remedy, schema=schema)

    @classmethod
    def existing(cls, dataset: Dataset, name: str) -> PreferenceSet:
        """Open an existing set; raises UnknownName if there is none."""
        if name not in (names := preference_sets(dataset)):
            raise UnknownName("set of preferences", name, names)
        return cls(dataset, name)

    def add(self, preferences: Iterable[Preference]) -> None:
        """Store answers durably, all or none. If a rater has answered on a pair before, the earlier answer stays."""
        require_no_links(self._dataset)
        rows = [(*each.first, *each.second, _stored(each.label), each.rater, each.kind) for each in preferences]
        try:
            self._database.path.parent.mkdir(exist_ok=True)
        except OSError as error:
            raise DatasetError(f"{self._database.path} cannot be written.", got=error, fix="look at its permissions") from None
        with self._database.writing() as connection:
            if not connection.execute(_HASHED).fetchone():
                connection.execute("ALTER TABLE preferences ADD COLUMN sha256 TEXT")
            query = f"INSERT OR IGNORE INTO preferences ({_FACTS}, sha256) VALUES ({', '.join('?' * 10)})"
            connection.executemany(query, [(*row, _digest(row)) for row in rows])

    def __iter__(self) -> Iterator[Preference]:
        """Yield the answers in the order in which they were stored; raises EpisodeCorrupt if a row was changed."""
        column = "sha256" if self._database.rows("preferences", _HASHED) else "NULL"
        for *row, digest in self._database.rows("preferences", f"SELECT {_FACTS}, {column} FROM preferences ORDER BY rowid"):
            if digest not in (None, _digest(row)) or not _is_plain(row):
                raise EpisodeCorrupt(
                    f"A comparison of the set {self.name!r} was changed.",
                    got=row,
                    fix=f"move {FOLDER}/{self.name}{SUFFIX} away, and compare again",
                )
            first, a, b, second, c, d, label, rater, kind = row
            yield Preference((first, a, b), (second, c, d), "skip" if label == SKIP else label, rater, kind)

    def require_sound(self) -> None:
        """Raise DatasetError if the file is damaged or a row was changed."""
        self._database.require_sound()
        for _ in self:
            pass


def preference_sets(dataset: Dataset) -> list[str]:
    """Return the names of the sets of preferences of a dataset."""
    return sorted(path.stem for path in Path(dataset.path / FOLDER).glob(f"*{SUFFIX}"))


def _is_plain(row: Sequence[Any]) -> bool:
    """Return whether each value is of its column's type, which SQLite does not enforce."""
    are_typed = all(isinstance(value, kind) for value, kind in zip(row, _KINDS, strict=True))
    return are_typed and row[6] in (SKIP, 0.0, 0.5, 1.0) and row[8] in ("human", "model", "oracle")


def _digest(row: Sequence[Any]) -> str | None:
    try:
        return hashlib.sha256(json.dumps(list(row)).encode()).hexdigest()
    except TypeError:  # bytes if there was a text
        return None


def _stored(label: float | str) -> float:
    if label == "skip":
        return SKIP
    if label not in (0, 0.5, 1):
        raise InvalidSetting("A comparison has an impossible answer.", got=label, allowed='0, 0.5, 1 or "skip"')
    return float(label)
