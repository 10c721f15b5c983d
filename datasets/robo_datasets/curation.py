"""Make datasets from datasets: copies of some episodes, with their labels and notes; the sources stay as they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from robo_datasets.catalogue import Entry
from robo_datasets.dataset import Dataset, DatasetWriter
from robo_datasets.labels import LabelSet, label_sets
from robo_rl.errors import InvalidSetting


@dataclass(frozen=True)
class Selection:
    """Which episodes are meant; what is not set does not matter."""

    success: bool | None = None
    """Only successes, or only failures."""
    least_return: float | None = None
    most_return: float | None = None
    least_steps: int = 0
    source: str | None = None
    """Only episodes of this actor, as `robo-rl data info` names it."""
    stop_reason: str | None = None

    def has(self, entry: Entry) -> bool:
        """Returns whether an episode is meant."""
        return (
            (self.success is None or entry.success is self.success)
            and (self.least_return is None or entry.episode_return >= self.least_return)
            and (self.most_return is None or entry.episode_return <= self.most_return)
            and entry.steps >= self.least_steps
            and (self.source is None or entry.source == self.source)
            and (self.stop_reason is None or entry.stop_reason == self.stop_reason)
        )


def copy_episodes(source: Dataset, entries: Iterable[Entry], writer: DatasetWriter) -> int:
    """Copies episodes with labels and notes, leaving out those that are there already; returns how many were copied.

    Raises SpecMismatch where the datasets are of different environments.
    """
    target = writer.dataset
    target.spec.require(source.spec, what=f"{source.path} is of another environment than {target.path}")
    present = {entry.identity for entry in target.entries()}
    wanted = [entry for entry in entries if entry.identity not in present]
    for entry in wanted:
        writer.add(source.read(entry), identity=entry.identity)
        for note in source.catalogue.notes(entry.identity):
            target.catalogue.note(entry.identity, note)
    for name in label_sets(source):
        _copy_labels(LabelSet(source, name), LabelSet(target, name), wanted)
    return len(wanted)


def inherited(cards: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns what a dataset made from others knows by their cards: environment, arguments, reference, where all agree."""
    wheres = [(card.get("environment"), card.get("arguments")) for card in cards]
    if None in wheres[0] or any(where != wheres[0] for where in wheres):
        return {}
    same = {"environment": wheres[0][0], "arguments": wheres[0][1]}
    references = [card.get("reference") for card in cards]
    return same | ({"reference": references[0]} if references[0] and all(r == references[0] for r in references) else {})


def shares(entries: list[Entry], fractions: Mapping[str, float], seed: int) -> dict[str, list[Entry]]:
    """Returns name -> entries, drawn at random without overlap; raises InvalidSetting unless the fractions add up to 1."""
    if not fractions or min(fractions.values()) <= 0 or abs(sum(fractions.values()) - 1) > 1e-6:
        raise InvalidSetting("The shares do not add up to 1.", got=dict(fractions), allowed="positive shares of 1 in all")
    order = np.random.default_rng(seed).permutation(len(entries))
    edges = np.round(np.cumsum(list(fractions.values())) * len(entries)).astype(int)
    parts = np.split(order, edges[:-1])
    return {name: [entries[index] for index in sorted(part)] for name, part in zip(fractions, parts, strict=True)}


def _copy_labels(source: LabelSet, target: LabelSet, entries: Iterable[Entry]) -> None:
    for entry in entries:
        if (labels := source.read(entry.identity)) is not None:
            target.add(entry.identity, labels)
