"""Cache of the labels of reward models. Cached labels can be used without the model or the pictures.

    FOLDER/labels.sqlite   labels: name of the model, hash of its weights and settings, hash of the episode -> labels
                           makers: settings of a model -> its name and hash, for a model whose weights are gone

The hash of an episode is the one in its file's name, so copies of a dataset share their labels.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from robo_datasets.catalogue import Entry
from robo_datasets.episode_file import FileName
from robo_datasets.labels import COLUMNS, labels_of, row_of
from robo_rl.errors import DatasetError
from robo_rl.protocols.rewards import RewardModel
from robo_rl.settings import plain
from robo_rl.system.database import Database
from robo_rl.types import RewardLabels

Maker = tuple[str, str]
"""Identity of a reward model: its name, and the hash of its weights and settings."""
_SCHEMA = f"""CREATE TABLE IF NOT EXISTS labels
    (content TEXT NOT NULL, {COLUMNS}, bound TEXT NOT NULL, PRIMARY KEY (model, weights_hash, content));
CREATE TABLE IF NOT EXISTS makers (settings TEXT PRIMARY KEY, model TEXT NOT NULL, weights_hash TEXT NOT NULL)"""
TOGETHER = 500
"""number of episodes in one query, since SQLite takes 999 parameters"""


class LabelCache:
    """Cache of the labels that any reward models gave to episodes of any datasets.

    The attribute `given` counts the episodes whose labels were found, `dropped` the damaged rows that were deleted.
    """

    def __init__(self, folder: Path) -> None:
        """Open the cache in a folder, which is made if it does not exist; raises DatasetError if that fails."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DatasetError(
                f"There is no place for the cache of labels: {folder}.", got=error, fix="set ROBO_RL_CACHE to a folder of yours"
            ) from None
        self.path = folder / "labels.sqlite"
        remedy = "move it away: models are run again, and a new one is made"
        self._database = Database(self.path, remedy, schema=_SCHEMA)
        self.given = self.dropped = 0

    def find(self, maker: Maker, entries: Sequence[Entry], *, with_gaps: bool) -> Iterator[Mapping[str, RewardLabels]]:
        """Yield the cached labels of some episodes: mappings from identity to labels, many episodes at a time.

        Episodes that are not in the cache are left out. Damaged rows are deleted.

        Args:
            maker: Identity of the model.
            entries: Entries of the episodes.
            with_gaps: True to yield also the labels of episodes in which some steps have no label.
        """
        for start in range(0, len(entries), TOGETHER):
            some = {_content(entry): entry for entry in entries[start : start + TOGETHER]}
            query = f"SELECT * FROM labels WHERE model = ? AND weights_hash = ? AND content IN ({', '.join('?' * len(some))})"
            rows = self._database.rows("labels", query, (*maker, *some))
            found = {row[0]: _checked(row, some[row[0]]) for row in rows}
            self._drop(maker, [content for content, labels in found.items() if labels is None])
            whole = {content: labels for content, labels in found.items() if labels is not None}
            if wanted := {some[key].identity: labels for key, labels in whole.items() if with_gaps or labels.valid.all()}:
                self.given += len(wanted)
                yield wanted

    def add(self, maker: Maker, entry: Entry, labels: RewardLabels) -> None:
        """Store the labels that the model `maker` gave to an episode, durably."""
        row, content = row_of(labels), _content(entry)
        values = content, *row, _bound(content, row)
        self._database.change(f"INSERT OR REPLACE INTO labels VALUES ({', '.join('?' * len(values))})", [values])

    def _drop(self, maker: Maker, contents: Sequence[str]) -> None:
        if contents:
            query = "DELETE FROM labels WHERE model = ? AND weights_hash = ? AND content = ?"
            self._database.change(query, [(*maker, content) for content in contents])
            self.dropped += len(contents)

    def held(self) -> AbstractContextManager[None]:
        """Return a context in which many writes are fast: a power cut may undo the last second, a killed process nothing."""
        return self._database.held()

    def remember(self, model: RewardModel, maker: Maker) -> None:
        """Store the identity of a model under its class and settings, so that `recalled` finds it without its weights."""
        if self.recalled(model) != maker:
            self._database.change("INSERT OR REPLACE INTO makers VALUES (?, ?, ?)", [(_settings(model), *maker)])

    def recalled(self, model: RewardModel) -> Maker | None:
        """Return the identity that was last stored for a model of this class and these settings, or None."""
        rows = self._database.rows("makers", "SELECT model, weights_hash FROM makers WHERE settings = ?", (_settings(model),))
        return (rows[0][0], rows[0][1]) if rows else None


def _content(entry: Entry) -> str:
    return FileName.parse(entry.file).digest


def _settings(model: RewardModel) -> str:
    """Return a hash of the class and the settings of a model."""
    kind = f"{type(model).__module__}.{type(model).__qualname__}"
    settings: Any = plain(model) if dataclasses.is_dataclass(model) else {}
    return hashlib.sha256(json.dumps([kind, settings], sort_keys=True, default=str).encode()).hexdigest()


def _bound(content: str, row: Sequence[Any]) -> str:
    """Return a hash that binds labels, by their own hash, to the content of their episode."""
    return hashlib.sha256(json.dumps([content, *map(str, row[3:])]).encode()).hexdigest()


def _checked(row: tuple[Any, ...], entry: Entry) -> RewardLabels | None:
    """Return the labels of a row; None if the row was altered or its length differs from the episode's."""
    content, *middle, bound = row
    with suppress(TypeError, ValueError):  # SQLite does not enforce column types
        labels = labels_of(tuple(middle)) if _bound(content, middle) == bound else None
        return labels if labels is not None and len(labels.values) == entry.steps else None
    return None
