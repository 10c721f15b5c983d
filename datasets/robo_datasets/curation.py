"""Make datasets from datasets: copies of some episodes, with their labels and notes; the sources stay as they are."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from robo_datasets.atomic_write import atomic_write
from robo_datasets.catalogue import Entry
from robo_datasets.dataset import Dataset, DatasetWriter
from robo_datasets.labels import LabelSet, label_sets
from robo_datasets.preferences import PreferenceSet, preference_sets
from robo_rl.errors import InvalidSetting

_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Selection:
    """Selection of episodes; criteria that are not set do not apply."""

    success: bool | None = None
    """Only successes, or only failures."""
    least_return: float | None = None
    most_return: float | None = None
    least_steps: int = 0
    source: str | None = None
    """Only episodes of this actor, as `robo-rl data info` names it."""
    stop_reason: str | None = None

    def has(self, entry: Entry) -> bool:
        """Return whether an episode meets all criteria."""
        return (
            (self.success is None or entry.success is self.success)
            and (self.least_return is None or entry.episode_return >= self.least_return)
            and (self.most_return is None or entry.episode_return <= self.most_return)
            and entry.steps >= self.least_steps
            and (self.source is None or entry.source == self.source)
            and (self.stop_reason is None or entry.stop_reason == self.stop_reason)
        )


def make_dataset(out: Path, card: Mapping[str, Any], sources: Mapping[Path, Sequence[Entry]]) -> dict[Path, int]:
    """Make a dataset of episodes of others, atomically, and return the number from each.

    Raises SpecMismatch if they are of different environments, DatasetError; then nothing is left behind.
    """
    datasets = [Dataset(path) for path in sources]
    for source in datasets[1:]:
        what = f"{source.path} is of another environment than {datasets[0].path}"
        datasets[0].spec.require(source.spec, what=what, fix="merge what was recorded in one environment")
    with atomic_write(out) as draft, Dataset.create(draft, datasets[0].spec, card).writer() as writer:
        return {source.path: copy_episodes(source, sources[source.path], writer) for source in datasets}


def copy_episodes(source: Dataset, entries: Iterable[Entry], writer: DatasetWriter) -> int:
    """Copies episodes with labels, comparisons and notes and returns their number; existing ones are only completed.

    Raises SpecMismatch if the datasets are of different environments.
    """
    target = writer.dataset
    target.spec.require(source.spec, what=f"{source.path} is of another environment than {target.path}")
    entries, present = list(entries), {entry.identity for entry in target.entries()}
    wanted = [entry for entry in entries if entry.identity not in present]
    for entry in wanted:
        writer.copy(source, entry)
        for note in source.catalogue.notes(entry.identity):
            target.catalogue.note(entry.identity, note)
    for name in label_sets(source):
        _copy_labels(LabelSet(source, name), LabelSet(target, name), entries)
    copied = {entry.identity for entry in entries}
    for name in preference_sets(source):
        found = [each for each in PreferenceSet(source, name) if {each.first[0], each.second[0]} <= copied]
        PreferenceSet(target, name).add(found)
    return len(wanted)


def inherited(cards: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return environment, arguments and reference for the card of a dataset made from others, if all of them agree."""
    origins = [(card.get("environment"), card.get("arguments")) for card in cards]
    if None in origins[0] or any(origin != origins[0] for origin in origins):
        return {}
    same = {"environment": origins[0][0], "arguments": origins[0][1]}
    references = [card.get("reference") for card in cards]
    return same | ({"reference": references[0]} if references[0] and all(r == references[0] for r in references) else {})


def differing_arguments(cards: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a line for each argument of the environment in which datasets differ, though their specs agree.

    cards: path of a dataset -> its card. A spec knows no pose and no field of view of a camera, no light and no mass: two
    datasets of one spec may still show different worlds.
    """
    made = {path: card.get("arguments") or {} for path, card in cards.items() if card.get("environment")}
    names = sorted({name for arguments in made.values() for name in arguments})
    values = {name: {path: arguments.get(name) for path, arguments in made.items()} for name in names}
    return [
        f"recorded with other {name}: "
        + "; ".join(f"{value if value is not None else 'default'} in {path}" for path, value in found.items())
        for name, found in values.items()
        if len({repr(value) for value in found.values()}) > 1
    ]


def shares(entries: list[Entry], fractions: Mapping[str, float], seed: int) -> dict[str, list[Entry]]:
    """Return name -> entries, drawn at random without overlap.

    Raises InvalidSetting unless the fractions add up to 1, if a name is no folder's, or if a share is too small for an episode.
    """
    if wrong := [name for name in fractions if not _PART.fullmatch(name)]:
        raise InvalidSetting("A part has an impossible name.", got=wrong[0], allowed=_PART.pattern)
    if not fractions or not min(fractions.values()) > 0 or not math.isclose(sum(fractions.values()), 1, abs_tol=1e-6):
        raise InvalidSetting("The shares do not add up to 1.", got=dict(fractions), allowed="positive shares of 1 in all")
    order = np.random.default_rng(seed).permutation(len(entries))
    edges = np.round(np.cumsum(list(fractions.values())) * len(entries)).astype(int)
    parts = np.split(order, edges[:-1])
    if empty := [name for name, part in zip(fractions, parts, strict=True) if not len(part)]:
        raise InvalidSetting(
            f"No episode is left for the part {empty[0]!r}.",
            got=f"{fractions[empty[0]]:g} of {len(entries)} episodes",
            fix="give it a larger share, or split a larger dataset",
        )
    return {name: [entries[index] for index in sorted(part)] for name, part in zip(fractions, parts, strict=True)}


def _copy_labels(source: LabelSet, target: LabelSet, entries: Iterable[Entry]) -> None:
    present = target.labelled
    for entry in entries:
        if entry.identity not in present and (labels := source.read(entry.identity)) is not None:
            target.add(entry.identity, labels)
