"""Rewards of models beside recorded episodes, in sets by name; the episodes' own files are never touched.

Each set is a SQLite file in write-ahead mode: one row for each episode, with the SHA-256 of its numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from robo_datasets.catalogue import Entry
from robo_datasets.database import NAME, SUFFIX, Database
from robo_datasets.dataset import Dataset
from robo_rl.errors import EpisodeCorrupt, InvalidSetting, UnknownName
from robo_rl.types import RewardLabels

COLUMNS = """values_f32 BLOB NOT NULL, valid BLOB NOT NULL, confidence_f32 BLOB,
    model TEXT NOT NULL, weights_hash TEXT NOT NULL, prompt_hash TEXT NOT NULL, sha256 TEXT NOT NULL"""
"""Of the labels of one episode, as `row_of` and `labels_of` write and read them."""


class LabelSet:
    """One set of labels of a dataset; episodes that it says nothing about are missing from it, not zero."""

    def __init__(self, dataset: Dataset, name: str) -> None:
        """Names a set, which begins to exist with its first label; raises InvalidSetting for a name that is no file's."""
        if not NAME.fullmatch(name):
            raise InvalidSetting("A label set has an impossible name.", got=name, allowed=NAME.pattern)
        self.name = name
        self._database = Database(dataset.path / "labels" / f"{name}{SUFFIX}")
        self._steps = {entry.identity: entry.steps for entry in dataset.entries()}

    @classmethod
    def existing(cls, dataset: Dataset, name: str) -> LabelSet:
        """Returns a set that exists; raises UnknownName with the close matches."""
        if name not in (names := label_sets(dataset)):
            raise UnknownName("label set", name, names)
        return cls(dataset, name)

    def add(self, identity: str, labels: RewardLabels) -> None:
        """Stores the labels of an episode durably, in place of older ones; raises InvalidSetting where they do not fit it."""
        self.add_all({identity: labels})

    def add_all(self, found: Mapping[str, RewardLabels]) -> None:
        """Stores the labels of several episodes in one step."""
        for identity, labels in found.items():
            self._require_fit(identity, labels)
        rows = [(identity, *row_of(labels)) for identity, labels in found.items()]
        with self._database.writing() as connection:
            connection.execute(f"CREATE TABLE IF NOT EXISTS labels (identity TEXT PRIMARY KEY, {COLUMNS})")
            connection.executemany("INSERT OR REPLACE INTO labels VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def held(self) -> AbstractContextManager[None]:
        """Returns a block in which storing is fast; a power cut may undo what was stored in its last second, no kill does."""
        return self._database.held()

    def _require_fit(self, identity: str, labels: RewardLabels) -> None:
        steps = self._steps.get(identity)
        lengths = {
            len(labels.values),
            len(labels.valid),
            len(labels.values if labels.confidence is None else labels.confidence),
        }
        if lengths != {steps}:
            raise InvalidSetting("Labels and episode differ in length.", got=sorted(lengths), allowed=f"{steps} steps")
        if not np.isfinite(labels.values[labels.valid]).all():
            raise InvalidSetting("A valid label is not finite.", got=labels.values, fix="mark what is missing as not valid")

    def read(self, identity: str) -> RewardLabels | None:
        """Returns the labels of an episode, or None; raises EpisodeCorrupt where their numbers were changed."""
        if not self._database.has("labels"):
            return None
        with self._database.reading() as connection:
            row = connection.execute("SELECT * FROM labels WHERE identity = ?", (identity,)).fetchone()
        if row is None:
            return None
        if (labels := labels_of(row[1:])) is None:
            raise EpisodeCorrupt(f"The labels {self.name!r} of episode {identity} were changed.", fix="label it again")
        return labels

    @property
    def labelled(self) -> set[str]:
        """Identities of the episodes that have labels."""
        if not self._database.has("labels"):
            return set()
        with self._database.reading() as connection:
            return {row[0] for row in connection.execute("SELECT identity FROM labels")}

    @property
    def without_gaps(self) -> set[str]:
        """Identities of the episodes every step of which has a label."""
        if not self._database.has("labels"):
            return set()
        with self._database.reading() as connection:
            return {row[0] for row in connection.execute("SELECT identity, valid FROM labels") if 0 not in row[1]}

    @property
    def makers(self) -> set[tuple[str, str]]:
        """Models and hashes of their weights that the labels are of."""
        if not self._database.has("labels"):
            return set()
        with self._database.reading() as connection:
            return {
                (model, weights) for model, weights in connection.execute("SELECT DISTINCT model, weights_hash FROM labels")
            }

    def known(self, entries: Iterable[Entry]) -> int:
        """Returns how many steps of these episodes have a label."""
        found = (self.read(entry.identity) for entry in entries)
        return sum(int(labels.valid.sum()) for labels in found if labels is not None)

    def digest(self, entries: Iterable[Entry]) -> str:
        """Returns what identifies the labels of these episodes, 16 hex digits; raises DatasetError for an empty set."""
        with self._database.reading() as connection:
            found = dict(connection.execute("SELECT identity, sha256 FROM labels"))
        return hashlib.sha256("\n".join(found.get(entry.identity, "none") for entry in entries).encode()).hexdigest()[:16]


def label_sets(dataset: Dataset) -> list[str]:
    """Returns the names of the sets that a dataset has."""
    return sorted(path.stem for path in Path(dataset.path / "labels").glob(f"*{SUFFIX}"))


def row_of(labels: RewardLabels) -> tuple[Any, ...]:
    """Returns the values of COLUMNS, the SHA-256 of the numbers last."""
    confidence = None if labels.confidence is None else labels.confidence.astype(np.float32).tobytes()
    numbers = (labels.values.astype(np.float32).tobytes(), labels.valid.astype(np.bool_).tobytes(), confidence)
    return (*numbers, labels.model, labels.weights_hash, labels.prompt_hash, _digest(*numbers))


def labels_of(row: tuple[Any, ...]) -> RewardLabels | None:
    """Returns the labels of the values of COLUMNS, None where the numbers are not those that were written."""
    values, valid, confidence, model, weights, prompt, digest = row
    if _digest(values, valid, confidence) != digest:
        return None
    return RewardLabels(
        values=np.frombuffer(values, np.float32),
        valid=np.frombuffer(valid, np.bool_),
        model=model,
        weights_hash=weights,
        prompt_hash=prompt,
        confidence=None if confidence is None else np.frombuffer(confidence, np.float32),
    )


def _digest(*parts: bytes | None) -> str:
    return hashlib.sha256(b"|".join(b"" if part is None else part for part in parts)).hexdigest()
