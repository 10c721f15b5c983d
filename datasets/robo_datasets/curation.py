"""Make datasets from other datasets: copies of some episodes, with their labels and remarks. The sources are not changed."""

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
    """Criteria by which episodes are selected; an episode must meet all that are set."""

    success: bool | None = None
    """True for successful episodes only, False for failed ones only."""
    least_return: float | None = None
    """Smallest undiscounted return of episodes to select; None selects any return."""
    most_return: float | None = None
    """Largest undiscounted return of episodes to select; None selects any return."""
    least_steps: int = 0
    """Smallest number of steps."""
    source: str | None = None
    """Actor of the episodes, as `robo-rl data info` names it."""
    stop_reason: str | None = None
    """Stop reason of the episodes, such as time_limit."""

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
    """Make a dataset of episodes of other datasets. It appears only when it is complete.

    Args:
        out: Folder of the new dataset, which must not exist.
        card: Card of the new dataset.
        sources: Folder of a dataset -> entries of the episodes that are copied from it.

    Returns:
        Folder of a dataset -> number of episodes that were copied from it.

    Raises:
        SpecMismatch: The datasets are of different environments.
        DatasetError: An episode cannot be read or written. Nothing is then left at `out`.
    """
    datasets = [Dataset(path) for path in sources]
    for source in datasets[1:]:
        what = f"{source.path} is of another environment than {datasets[0].path}"
        datasets[0].spec.require(source.spec, what=what, fix="merge what was recorded in one environment")
    with atomic_write(out) as draft, Dataset.create(draft, datasets[0].spec, card).writer() as writer:
        return {source.path: copy_episodes(source, sources[source.path], writer) for source in datasets}


def copy_episodes(source: Dataset, entries: Iterable[Entry], writer: DatasetWriter) -> int:
    """Copy episodes of a dataset into another one, with their labels, comparisons and remarks.

    For an episode that the target has already, only missing labels and comparisons are added.

    Args:
        source: Dataset of the episodes.
        entries: Their entries.
        writer: Writer of the target.

    Returns:
        The number of episodes that were added.

    Raises:
        SpecMismatch: The datasets are of different environments.
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
    """Return the entries of a new card that a dataset takes over from the cards of its sources.

    These are `environment` and `arguments`, if all cards agree on both, and `reference`, if they agree on that, too.
    """
    origins = [(card.get("environment"), card.get("arguments")) for card in cards]
    if None in origins[0] or any(origin != origins[0] for origin in origins):
        return {}
    same = {"environment": origins[0][0], "arguments": origins[0][1]}
    references = [card.get("reference") for card in cards]
    return same | ({"reference": references[0]} if references[0] and all(r == references[0] for r in references) else {})


def differing_arguments(cards: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a line for each argument of the environment in which datasets of one spec differ.

    A spec does not have the pose of a camera, light or mass. So two datasets of one spec may still differ in these.

    Args:
        cards: Path of a dataset -> its card.
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
    """Divide episodes at random into parts without overlap.

    Args:
        entries: Entries of the episodes.
        fractions: Name of a part -> its share of the episodes; the shares add up to 1.
        seed: Seed of the drawing.

    Returns:
        Name of a part -> its entries.

    Raises:
        InvalidSetting: The shares do not add up to 1, a name cannot be that of a folder, or a part gets no episode.
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
