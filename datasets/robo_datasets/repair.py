"""Verify and repair a dataset after crashes or damage. Nothing is deleted: unreadable files are moved to quarantine/.

A repair may be interrupted at any time and repeated. A repair right after a complete one finds nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from robo_datasets.catalogue import DRAFT, NAME, Catalogue, Entry
from robo_datasets.dataset import DESCRIPTION, Dataset, DatasetWriter
from robo_datasets.episode_file import TEMPORARY, FileName, read_episode, require_fit, unreadable
from robo_datasets.figures import content_hash
from robo_datasets.labels import LabelSet, label_sets
from robo_datasets.preferences import PreferenceSet, preference_sets
from robo_datasets.quarantine import Quarantine
from robo_rl.errors import (
    DatabaseCorrupt,
    DatasetError,
    DatasetNotFound,
    EpisodeCorrupt,
    RoboRLError,
    SpecMismatch,
    is_passing,
)
from robo_rl.rollout.journal import SUFFIX, recover
from robo_rl.types import Episode

REFUTED = (EpisodeCorrupt, SpecMismatch)
"""errors that prove that an episode's bytes are wrong, or belong to another dataset"""


class Finding(NamedTuple):
    """One fault of a dataset, and its repair."""

    name: str
    """name of the file or set"""
    problem: str
    """the fault, in words"""
    action: str
    """what was done; from `verify`, what `repair` would do"""


def verify(dataset: Dataset, watch: Callable[[Episode], None] = lambda episode: None) -> list[Finding]:
    """Read every episode of a dataset and find the faults, without changing anything.

    Args:
        dataset: The dataset.
        watch: Called with each episode that can be read.

    Returns:
        A finding per fault; an empty list for a sound dataset.

    Raises:
        DatasetError: Disk, lock, rights or memory prevent reading.
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
    """Repair a dataset.

    Everything is read before anything is changed. A file is moved only if its checksum or its format is wrong.

    Args:
        writer: Writer of the dataset, inside its `with` block.
        thorough: True to check every episode; False to look only for what a crashed recorder has left.

    Returns:
        A finding per fault, with what was done.

    Raises:
        DatasetError: A lock, a full disk, missing rights or memory prevent reading, which says nothing about a file. Nothing
            is changed then.
    """
    dataset = writer.dataset
    plan = _Plan.of(dataset, thorough=thorough)
    if plan.changes_rows:
        dataset.catalogue.require_writable()
    return [*_mend_catalogue(dataset), *plan.carried_out(writer), *_sweep(dataset)]


class _Plan(NamedTuple):
    """Repairs that a dataset needs, as found by reading alone."""

    wrong: list[tuple[Entry, str]]
    """entries of the catalogue whose episode is damaged or missing, and the fault"""
    corrections: list[tuple[Entry, str]]
    """correct entries of sound episodes whose entry in the catalogue is wrong, and the fault"""
    orphans: list[tuple[Path, Entry | str]]
    """files of episodes that are not in the catalogue, in the order of recording, with their entry or their fault"""
    journals: list[tuple[Path, str | None]]
    """journals, with their fault or None"""
    changes_rows: bool
    """True if the repairs change a catalogue that is sound itself"""

    @classmethod
    def of(cls, dataset: Dataset, *, thorough: bool) -> _Plan:
        """Read the dataset and return the repairs that it needs; thorough: as for `repair`.

        Raises DatasetError if disk, lock, rights or memory prevent reading.
        """
        is_sound = _damage_of(dataset.catalogue) is None
        entries = dataset.entries() if is_sound else []
        journals = _journals(dataset)
        left = {path.stem for path in journals}
        judged = [(entry, *_judged(dataset, entry)) for entry in entries if thorough or entry.identity in left]
        wrong = [(entry, fault) for entry, fault, true in judged if fault and true is None]
        corrections = [(true, fault) for _, fault, true in judged if fault and true is not None]
        stored = {entry.identity for entry in entries} - {entry.identity for entry, _ in wrong}
        orphans = [*_judged_orphans(dataset, {entry.file for entry in entries}, stored)]
        stored |= {entry.identity for _, entry in orphans if isinstance(entry, Entry)}
        found = [(path, None if path.stem in stored else fault_of_journal(dataset, path, path.name)) for path in journals]
        adds = any(isinstance(entry, Entry) for _, entry in orphans) or any(fault is None for _, fault in found)
        return cls(wrong, corrections, orphans, found, is_sound and bool(wrong or corrections or adds))

    def carried_out(self, writer: DatasetWriter) -> Iterator[Finding]:
        """Do the repairs, and yield a finding after each."""
        dataset, quarantine = writer.dataset, Quarantine(writer.dataset.path)
        for entry, fault in self.wrong:
            _quarantine_entry(dataset, entry)
            yield Finding(entry.file, fault, "quarantined")
        for entry, fault in self.corrections:
            dataset.catalogue.correct(entry)
            yield Finding(entry.file, fault, "corrected from the episode")
        for path, found in self.orphans:
            if isinstance(found, Entry):
                writer.adopt(found)
                yield Finding(path.name, "not in the catalogue", "adopted")
            else:
                quarantine.move(path)
                yield Finding(path.name, found, "quarantined")
        stored = {entry.identity for entry in dataset.entries()}
        for path, refuted in self.journals:
            if path.stem in stored:  # the process died between storing the episode and removing its journal
                path.unlink()
            elif refuted is not None:
                quarantine.move(path)
                yield Finding(path.name, refuted, "quarantined")
            else:
                entry = writer.add(_recovered(dataset, path, path.name), identity=path.stem)
                path.unlink()
                yield Finding(path.name, "left by a process that died", f"recovered {entry.steps} steps as {entry.file}")


def _damage_of(catalogue: Catalogue) -> DatasetError | None:
    """Return the error of a damaged catalogue, None for a sound one; raises DatasetError if it cannot be read now."""
    try:
        catalogue.require_sound()
    except (DatabaseCorrupt, DatasetNotFound, EpisodeCorrupt) as error:
        return error
    return None


def _mend_catalogue(dataset: Dataset) -> Iterator[Finding]:
    """Rebuild a damaged catalogue, with those of its remarks that can be read.

    The new catalogue is complete before the old one is moved. So a full disk changes nothing, and a killed process loses no
    remark.
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
        Quarantine(dataset.path).move(path)
        yield Finding(path.name, "half written when its process died", "quarantined")


def _judged_orphans(dataset: Dataset, listed: set[str], stored: set[str]) -> Iterator[tuple[Path, Entry | str]]:
    """Yield the files of episodes that are not in the catalogue, in the order of recording, with their entry or their fault.

    Args:
        dataset: The dataset.
        listed: Names of the files in the catalogue.
        stored: Identities of the sound episodes in the catalogue.
    """
    paths = [path for path in _episodes(dataset) if path.name not in listed]
    taken = set(stored)
    for path in sorted(paths, key=lambda path: (path.lstat().st_mtime_ns, path.name)):
        try:
            found = read_episode(path)
            dataset.spec.require(found.spec, what="It is of another environment than the dataset")
        except REFUTED as error:
            yield path, str(error)
            continue
        entry = Entry.of(found.episode, FileName.parse(path.name), path.stat().st_size)
        yield path, f"another file has the episode {entry.identity}" if entry.identity in taken else entry
        taken.add(entry.identity)


def _journals(dataset: Dataset) -> list[Path]:
    return sorted((dataset.path / "journal").glob(f"*{SUFFIX}"))


def fault_of_journal(dataset: Dataset, path: Path, name: str) -> str | None:
    """Return the fault of a journal, None if its episode can be recovered; raises DatasetError if it cannot be read now.

    Args:
        dataset: The dataset.
        path: The journal.
        name: Name that the journal had when it was written.
    """
    try:
        require_fit(_recovered(dataset, path, name), dataset.spec)
    except (
        *(OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError, MemoryError),
        RoboRLError,
    ) as error:
        if is_passing(error):
            raise unreadable(path.name, error) from error
        return f"{error}"
    return None


def _recovered(dataset: Dataset, path: Path, name: str) -> Episode:
    """Return the episode in a journal; raises EpisodeCorrupt, SpecMismatch, or another error of a damaged journal."""
    FileName.parse(f"{name.removesuffix(SUFFIX)}.{'0' * 16}.h5")  # the name becomes a file's
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
    """Return the fault of an episode or of its entry, None if both are sound; and the correct entry if it can be read."""
    path = dataset.path / "episodes" / entry.file
    try:
        episode = dataset.read(entry)
    except DatasetNotFound:
        return "its file is missing", None
    except REFUTED as error:
        return str(error), None
    watch(episode)
    true = Entry.of(episode, FileName.parse(entry.file), path.stat().st_size)
    sums = entry.episode_return, true.episode_return  # a sum may end in other bits on another machine
    is_sum_same = math.isclose(*sums, rel_tol=1e-9) or all(map(math.isnan, sums))
    if is_sum_same and replace(entry, episode_return=0.0) == replace(true, episode_return=0.0):
        return None, true
    return "the catalogue says something else about it than its file", true


def _faults_of_sets(dataset: Dataset) -> Iterator[Finding]:
    """Yield a finding for each damaged set of labels or preferences."""
    found: list[tuple[type[LabelSet | PreferenceSet], str, str]] = []
    found += [(LabelSet, name, "none: label it again") for name in label_sets(dataset)]
    found += [(PreferenceSet, name, "none: compare again") for name in preference_sets(dataset)]
    for kind, name, action in found:
        try:
            kind(dataset, name).require_sound()
        except (DatabaseCorrupt, EpisodeCorrupt) as error:
            yield Finding(name, str(error), action)


def _quarantine_entry(dataset: Dataset, entry: Entry) -> None:
    """Move an episode and its entry to quarantine/."""
    quarantine, path = Quarantine(dataset.path), dataset.path / "episodes" / entry.file
    quarantine.note(entry, dataset.catalogue.place_of(entry.identity))
    dataset.catalogue.remove(entry.identity)
    if path.exists() or path.is_symlink():
        quarantine.move(path)


def _quarantine_all(dataset: Dataset, paths: list[Path]) -> None:
    for path in paths:
        Quarantine(dataset.path).move(path)


def _episodes(dataset: Dataset) -> list[Path]:
    return sorted(path for path in (dataset.path / "episodes").iterdir() if not path.name.endswith(TEMPORARY))


def _leftovers(dataset: Dataset) -> list[Path]:
    drafts = [path for path in (dataset.path / DRAFT,) if path.exists()]
    return [*drafts, *(dataset.path / "episodes").glob(f"*{TEMPORARY}"), *(dataset.path / "journal").glob(f"*{SUFFIX}")]
