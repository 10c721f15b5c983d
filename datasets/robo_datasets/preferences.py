"""Comparisons of segments of a dataset, in sets by name; people, models and oracles may share one.

DATASET/preferences/NAME.sqlite, in write-ahead mode: one row for each pair and rater, in the order of the answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from robo_datasets.database import NAME, SUFFIX, Database
from robo_datasets.dataset import Dataset, require_no_links
from robo_rl.errors import DatasetError, InvalidSetting, UnknownName
from robo_rl.types import Preference

FOLDER = "preferences"
SKIP = -1.0
_SEGMENTS = "first, first_start, first_stop, second, second_start, second_stop"
_COLUMNS = f"""first TEXT NOT NULL, first_start INTEGER NOT NULL, first_stop INTEGER NOT NULL,
    second TEXT NOT NULL, second_start INTEGER NOT NULL, second_stop INTEGER NOT NULL, label REAL NOT NULL,
    rater TEXT NOT NULL, kind TEXT NOT NULL, UNIQUE ({_SEGMENTS}, rater)"""


class PreferenceSet:
    """What raters said of pairs; one answer of each rater to each pair."""

    def __init__(self, dataset: Dataset, name: str) -> None:
        """Names a set, which begins to exist with its first comparison; raises InvalidSetting for a name that is no file's."""
        if not NAME.fullmatch(name):
            raise InvalidSetting("A set of preferences has an impossible name.", got=name, allowed=NAME.pattern)
        self.name, self._dataset = name, dataset.path
        self._database = Database(dataset.path / FOLDER / f"{name}{SUFFIX}")

    @classmethod
    def existing(cls, dataset: Dataset, name: str) -> PreferenceSet:
        """Returns a set that exists; raises UnknownName with the close matches."""
        if name not in (names := preference_sets(dataset)):
            raise UnknownName("set of preferences", name, names)
        return cls(dataset, name)

    def add(self, preferences: Iterable[Preference]) -> None:
        """Stores comparisons durably, all or none; of a rater that compared the same pair before, the first answer stays."""
        require_no_links(self._dataset)
        rows = [(*each.first, *each.second, _stored(each.label), each.rater, each.kind) for each in preferences]
        try:
            self._database.path.parent.mkdir(exist_ok=True)
        except OSError as error:
            raise DatasetError(f"{self._database.path} cannot be written.", got=error, fix="look at its permissions") from None
        with self._database.writing() as connection:
            connection.execute(f"CREATE TABLE IF NOT EXISTS preferences ({_COLUMNS})")
            connection.executemany("INSERT OR IGNORE INTO preferences VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def __iter__(self) -> Iterator[Preference]:
        """Yields the comparisons in the order of the answers."""
        if not self._database.has("preferences"):
            return
        with self._database.reading() as connection:
            rows = connection.execute(f"SELECT {_SEGMENTS}, label, rater, kind FROM preferences ORDER BY rowid").fetchall()
        for first, a, b, second, c, d, label, rater, kind in rows:
            yield Preference((first, a, b), (second, c, d), "skip" if label == SKIP else label, rater, kind)


def preference_sets(dataset: Dataset) -> list[str]:
    """Returns the names of the sets that a dataset has."""
    return sorted(path.stem for path in Path(dataset.path / FOLDER).glob(f"*{SUFFIX}"))


def _stored(label: float | str) -> float:
    if label == "skip":
        return SKIP
    if label not in (0, 0.5, 1):
        raise InvalidSetting("A comparison has an impossible answer.", got=label, allowed='0, 0.5, 1 or "skip"')
    return float(label)
