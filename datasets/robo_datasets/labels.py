"""Labels: rewards by models for recorded episodes, in named sets. The episodes' files are never changed.

A set is a SQLite file in write-ahead mode. It has one row per episode, with a SHA-256 over the whole row. In sets of older
versions the SHA-256 is over the numbers alone; these sets can still be read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from robo_datasets.catalogue import Entry
from robo_datasets.dataset import Dataset
from robo_datasets.quarantine import Quarantine
from robo_rl.errors import EpisodeCorrupt, InvalidSetting, UnknownName
from robo_rl.system.database import NAME, SUFFIX, Database
from robo_rl.types import RewardLabels

COLUMNS = """values_f32 BLOB NOT NULL, valid BLOB NOT NULL, confidence_f32 BLOB,
    model TEXT NOT NULL, weights_hash TEXT NOT NULL, prompt_hash TEXT NOT NULL, sha256 TEXT NOT NULL"""
"""SQL columns of the labels of one episode, as `row_of` writes and `labels_of` reads them"""
WHOLE = "row:"
"""prefix of a hash over the whole row, with identity, model and its hashes"""


class LabelSet:
    """One set of labels of a dataset. An episode without labels is missing in the set; its rewards do not count as zero."""

    def __init__(self, dataset: Dataset, name: str) -> None:
        """Open a set, whose file the first labels create; raises InvalidSetting if no file can have this name."""
        if not NAME.fullmatch(name):
            raise InvalidSetting("A label set has an impossible name.", got=name, allowed=NAME.pattern)
        self.name = name
        remedy = f"move labels/{name}{SUFFIX} away, and label again"
        schema = f"CREATE TABLE IF NOT EXISTS labels (identity TEXT PRIMARY KEY, {COLUMNS})"
        self._database = Database(dataset.path / "labels" / f"{name}{SUFFIX}", remedy, schema=schema)
        self._known = set(Quarantine(dataset.path).places())
        self._steps = {entry.identity: entry.steps for entry in dataset.entries()}

    @classmethod
    def existing(cls, dataset: Dataset, name: str) -> LabelSet:
        """Open and check an existing set; raises UnknownName if there is none, DatasetError if it is damaged."""
        if name not in (names := label_sets(dataset)):
            fix = f"robo-rl label {dataset.path} --reward REWARD --name {name} makes it"
            raise UnknownName("label set", name, names, fix=fix)
        found = cls(dataset, name)
        found.require_sound()
        return found

    def add(self, identity: str, labels: RewardLabels) -> None:
        """Store the labels of an episode durably, in place of earlier ones.

        Raises InvalidSetting unless there is one label per step.
        """
        self.add_all({identity: labels})

    def add_all(self, found: Mapping[str, RewardLabels]) -> None:
        """Store the labels of several episodes in one transaction: all or none. found: identity of the episode -> labels."""
        for identity, labels in found.items():
            self._require_fit(identity, labels)
        rows = [_sealed(identity, row_of(labels)) for identity, labels in found.items()]
        self._database.change("INSERT OR REPLACE INTO labels VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def held(self) -> AbstractContextManager[None]:
        """Return a context in which writes are fast: a power cut may undo the last second, a killed process nothing."""
        return self._database.held()

    def _require_fit(self, identity: str, labels: RewardLabels) -> None:
        steps = self._steps.get(identity)
        lengths = {len(labels), len(labels.values if labels.confidence is None else labels.confidence)}
        if lengths != {steps}:
            raise InvalidSetting("Labels and episode differ in length.", got=sorted(lengths), allowed=f"{steps} steps")

    def read(self, identity: str) -> RewardLabels | None:
        """Return the labels of an episode, None if it has none; raises EpisodeCorrupt if the row was changed."""
        rows = self._rows("SELECT * FROM labels WHERE identity = ?", identity)
        return self._labels(rows[0]) if rows else None

    def _rows(self, query: str, *parameters: str) -> list[tuple[Any, ...]]:
        return self._database.rows("labels", query, parameters)

    def _labels(self, row: tuple[Any, ...]) -> RewardLabels:
        labels = None
        with suppress(TypeError, ValueError):  # SQLite does not enforce column types
            labels = labels_of(_unsealed(row))
        if labels is None or len(labels) != self._steps.get(row[0], len(labels)):
            raise EpisodeCorrupt(f"The labels {self.name!r} of episode {row[0]} were changed.", fix="label it again")
        return labels

    def require_sound(self) -> None:
        """Raise DatasetError if the file is damaged, a row was changed, or a row belongs to no episode of the dataset."""
        self._database.require_sound()
        for row in self._rows("SELECT * FROM labels"):
            self._labels(row)
            if row[0] not in self._steps and row[0] not in self._known and not str(row[-1]).startswith(WHOLE):
                raise EpisodeCorrupt(
                    f"The label set {self.name!r} has labels of an episode that is not in the dataset.",
                    got=row[0],
                    fix=f"move labels/{self.name}{SUFFIX} away, and label again",
                )

    @property
    def labelled(self) -> set[str]:
        """Identities of the episodes that have labels."""
        return {row[0] for row in self._rows("SELECT identity FROM labels")}

    @property
    def without_gaps(self) -> set[str]:
        """Identities of the episodes in which every step has a label."""
        return {identity for identity, valid in self._rows("SELECT identity, valid FROM labels") if 0 not in valid}

    @property
    def makers(self) -> set[tuple[str, str]]:
        """Name and hash of the weights of each model whose labels are in this set."""
        return {(model, weights) for model, weights in self._rows("SELECT DISTINCT model, weights_hash FROM labels")}

    def count(self, entries: Iterable[Entry]) -> int:
        """Return the number of steps of these episodes that have a label."""
        found = (self.read(entry.identity) for entry in entries)
        return sum(int(labels.valid.sum()) for labels in found if labels is not None)

    def digest(self, entries: Iterable[Entry]) -> str:
        """Return a hash over the labels of these episodes, 16 hex digits; raises DatasetError if the set has no file yet."""
        with self._database.reading() as connection:
            found = dict(connection.execute("SELECT identity, sha256 FROM labels"))
        return hashlib.sha256("\n".join(found.get(entry.identity, "none") for entry in entries).encode()).hexdigest()[:16]


def label_sets(dataset: Dataset) -> list[str]:
    """Return the names of the label sets of a dataset."""
    return sorted(path.stem for path in Path(dataset.path / "labels").glob(f"*{SUFFIX}"))


def row_of(labels: RewardLabels) -> tuple[Any, ...]:
    """Return labels as values for COLUMNS, of which the last one is the SHA-256 of the numbers."""
    confidence = None if labels.confidence is None else labels.confidence.astype(np.float32).tobytes()
    numbers = (labels.values.astype(np.float32).tobytes(), labels.valid.astype(np.bool_).tobytes(), confidence)
    return (*numbers, labels.model, labels.weights_hash, labels.prompt_hash, _digest(*numbers))


def labels_of(row: tuple[Any, ...]) -> RewardLabels | None:
    """Return the labels in the values of COLUMNS; None if the numbers do not have the SHA-256."""
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


def _sealed(identity: str, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the row of an episode in a set: values of COLUMNS, with a hash that also covers the episode and the model."""
    return (identity, *row[:-1], _seal(identity, row))


def _unsealed(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the values of COLUMNS from the row of a set; raises ValueError if the hash over the row is wrong."""
    identity, *kept, seal = row
    if not seal.startswith(WHOLE):
        return (*kept, seal)
    numbers = _digest(*kept[:3])
    if _seal(identity, (*kept, numbers)) != seal:
        raise ValueError("changed")
    return (*kept, numbers)


def _seal(identity: str, row: tuple[Any, ...]) -> str:
    return WHOLE + hashlib.sha256(json.dumps([identity, *row[3:]]).encode()).hexdigest()


def _digest(*parts: bytes | None) -> str:
    return hashlib.sha256(b"|".join(b"" if part is None else part for part in parts)).hexdigest()
