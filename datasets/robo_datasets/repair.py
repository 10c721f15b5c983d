"""Verify and repair a dataset after crashes or damage. Nothing is deleted: unreadable files go to quarantine/.

Every action may be interrupted and repeated; a second repair finds nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

from robo_datasets.catalogue import DRAFT, NAME, Catalogue, Entry
from robo_datasets.dataset import DESCRIPTION, Dataset, DatasetWriter
from robo_datasets.episode_file import TEMPORARY, FileName, read_episode
from robo_datasets.figures import content_hash
from robo_datasets.labels import LabelSet, label_sets
from robo_datasets.preferences import PreferenceSet, preference_sets
from robo_rl.errors import DatabaseCorrupt, DatasetError, DatasetNotFound, EpisodeCorrupt, RoboRLError
from robo_rl.rollout.journal import SUFFIX, recover
from robo_rl.types import Episode


class Finding(NamedTuple):
    """One fault and its repair."""

    name: str
    problem: str
    action: str
    """the repair done; for `verify`, the repair that `repair` would do"""


def verify(dataset: Dataset, watch: Callable[[Episode], None] = lambda episode: None) -> list[Finding]:
    """Reads every episode and returns the faults, changing nothing; raises DatasetError if disk or lock prevent reading.

    watch: receives each episode that is readable.
    """
    if (damage := _damage_of(dataset.catalogue)) is not None:
        return [Finding(NAME, str(damage), "make it again from the episodes")]
    entries = dataset.entries()
    listed = {entry.file for entry in entries}
    findings = [Finding(path.name, "left over by a crash", "recover or quarantine") for path in _leftovers(dataset)]
    findings += [Finding(path.name, "not in the catalogue", "adopt") for path in _episodes(dataset) if path.name not in listed]
    for entry in entries:
        fault, true = _judged(dataset, entry, watch)
        if fault:
            findings.append(Finding(entry.file, fault, "quarantine" if true is None else "correct the catalogue"))
    if dataset.card.get("content") not in (None, content_hash(entries)):
        complete = "none: the command that made it completes it with --append"
        findings.append(Finding(DESCRIPTION, "the episodes are not those that its content hash is of", complete))
    return [*findings, *_faults_of_sets(dataset)]


def repair(writer: DatasetWriter, *, thorough: bool = True) -> list[Finding]:
    """Repairs a dataset and returns the findings; without `thorough` only leftovers of a crashed recorder."""
    dataset = writer.dataset
    findings = [*_mend_catalogue(dataset), *_sweep(dataset), *_adopt_orphans(writer), *_recover_journals(writer)]
    if thorough:
        for entry in dataset.entries():
            fault, true = _judged(dataset, entry)
            if fault and true is None:
                _quarantine_entry(dataset, entry)
                findings.append(Finding(entry.file, fault, "quarantined"))
            elif fault and true is not None:
                dataset.catalogue.correct(true)
                findings.append(Finding(entry.file, fault, "corrected from the episode"))
    return findings


def _damage_of(catalogue: Catalogue) -> DatasetError | None:
    """Returns the damage of the file, or None; raises DatasetError if only disk, lock or permissions prevent reading."""
    try:
        catalogue.require_sound()
    except (DatabaseCorrupt, DatasetNotFound, EpisodeCorrupt) as error:
        return error
    return None


def _mend_catalogue(dataset: Dataset) -> Iterator[Finding]:
    """Rebuilds a damaged catalogue, with its readable notes.

    The new one is complete before the old one moves: a full disk changes nothing, and a killed process loses no note.
    """
    damage, draft = _damage_of(dataset.catalogue), Catalogue(dataset.path, DRAFT)
    if draft.path.exists() and isinstance(_damage_of(draft), DatabaseCorrupt):
        _quarantine_all(dataset, draft.files)
    if damage is None:
        if draft.path.exists():  # a kill came between the old one's move and the new one's
            dataset.catalogue.add_notes(draft.all_notes())
            _quarantine_all(dataset, draft.files)
        return
    draft.create()
    draft.add_notes(dataset.catalogue.salvaged_notes())
    kept = len(draft.all_notes())
    _quarantine_all(dataset, dataset.catalogue.files)
    draft.path.rename(dataset.catalogue.path)
    yield Finding(NAME, str(damage), f"made again from the episodes, with the notes that could be read of it: {kept}")


def _sweep(dataset: Dataset) -> Iterator[Finding]:
    for path in (dataset.path / "episodes").glob(f"*{TEMPORARY}"):
        _quarantine(dataset, path)
        yield Finding(path.name, "half written when its process died", "quarantined")


def _adopt_orphans(writer: DatasetWriter) -> Iterator[Finding]:
    dataset = writer.dataset
    listed = {entry.file for entry in dataset.entries()}
    orphans = [path for path in _episodes(dataset) if path.name not in listed]
    for path in sorted(orphans, key=lambda path: (path.lstat().st_mtime_ns, path.name)):  # as they were recorded
        try:
            found = read_episode(path)
            dataset.spec.require(found.spec, what="It is of another environment than the dataset")
            writer.adopt(Entry.of(found.episode, FileName.parse(path.name), path.stat().st_size))
            yield Finding(path.name, "not in the catalogue", "adopted")
        except RoboRLError as error:
            _quarantine(dataset, path)
            yield Finding(path.name, str(error), "quarantined")


def _recover_journals(writer: DatasetWriter) -> Iterator[Finding]:
    dataset = writer.dataset
    stored = {entry.identity for entry in dataset.entries()}
    for path in sorted((dataset.path / "journal").glob(f"*{SUFFIX}")):
        if path.stem in stored:  # the process died between storing the episode and removing its journal
            path.unlink()
            continue
        try:
            episode = _recovered(dataset, path)
        except (RoboRLError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError) as error:
            _quarantine(dataset, path)
            yield Finding(path.name, f"{error}", "quarantined")
            continue
        entry = writer.add(episode, identity=path.stem)
        path.unlink()
        yield Finding(path.name, "left by a process that died", f"recovered {entry.steps} steps as {entry.file}")


def _recovered(dataset: Dataset, path: Path) -> Episode:
    """Returns the episode of a journal; raises EpisodeCorrupt, SpecMismatch, or other errors of a damaged record."""
    FileName.parse(f"{path.stem}.{'0' * 16}.h5")  # the name becomes a file's
    if not path.is_file():
        raise EpisodeCorrupt("The journal is not a plain file.")
    found = recover(path)
    if found is None:
        raise EpisodeCorrupt("Not one step of the journal is whole.")
    episode, spec = found
    dataset.spec.require(spec, what="It is of another environment than the dataset")
    return episode


def _judged(
    dataset: Dataset, entry: Entry, watch: Callable[[Episode], None] = lambda episode: None
) -> tuple[str | None, Entry | None]:
    """Returns the fault of an episode or its entry, and the correct entry if the episode is readable."""
    path = dataset.path / "episodes" / entry.file
    if not path.exists():
        return "its file is missing", None
    try:
        episode = dataset.read(entry)
    except RoboRLError as error:
        return str(error), None
    watch(episode)
    true = Entry.of(episode, FileName.parse(entry.file), path.stat().st_size)
    sums = entry.episode_return, true.episode_return  # a sum may end in other bits on another machine
    is_sum_same = math.isclose(*sums, rel_tol=1e-9) or all(map(math.isnan, sums))
    if is_sum_same and replace(entry, episode_return=0.0) == replace(true, episode_return=0.0):
        return None, true
    return "the catalogue says something else about it than its file", true


def _faults_of_sets(dataset: Dataset) -> Iterator[Finding]:
    """Yields the damaged sets of labels and preferences."""
    found: list[tuple[type[LabelSet | PreferenceSet], str, str]] = []
    found += [(LabelSet, name, "none: label it again") for name in label_sets(dataset)]
    found += [(PreferenceSet, name, "none: compare again") for name in preference_sets(dataset)]
    for kind, name, action in found:
        try:
            kind(dataset, name).require_sound()
        except DatasetError as error:
            yield Finding(name, str(error), action)


def _quarantine_entry(dataset: Dataset, entry: Entry) -> None:
    """Moves an episode and its entry to quarantine/."""
    with (dataset.path / "quarantine" / "entries.jsonl").open("a") as file:
        file.write(json.dumps(asdict(entry)) + "\n")
    path = dataset.path / "episodes" / entry.file
    if path.exists() or path.is_symlink():
        _quarantine(dataset, path)
    dataset.catalogue.remove(entry.identity)


def _quarantine_all(dataset: Dataset, paths: list[Path]) -> None:
    for path in paths:
        _quarantine(dataset, path)


def _quarantine(dataset: Dataset, path: Path) -> None:
    target, number = dataset.path / "quarantine" / path.name, 1
    while target.exists():
        target, number = target.with_name(f"{path.name}.{number}"), number + 1
    path.rename(target)


def _episodes(dataset: Dataset) -> list[Path]:
    return sorted(path for path in (dataset.path / "episodes").iterdir() if not path.name.endswith(TEMPORARY))


def _leftovers(dataset: Dataset) -> list[Path]:
    drafts = [path for path in (dataset.path / DRAFT,) if path.exists()]
    return [*drafts, *(dataset.path / "episodes").glob(f"*{TEMPORARY}"), *(dataset.path / "journal").glob(f"*{SUFFIX}")]
