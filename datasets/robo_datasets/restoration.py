"""Restore episodes from quarantine/: sound ones return to the dataset, to their former places in the catalogue's order."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from robo_datasets.catalogue import Entry
from robo_datasets.dataset import DatasetWriter
from robo_datasets.episode_file import NAME, FileName, read_episode
from robo_datasets.quarantine import Quarantine
from robo_datasets.repair import REFUTED, Finding, fault_of_journal, repair
from robo_rl.rollout.journal import SUFFIX


class _Return(NamedTuple):
    """A file in quarantine/ that may be moved back."""

    path: Path
    target: Path
    entry: Entry | None
    """catalogue entry of an episode; None for a journal, the steps of an episode that was not stored"""


def restore(writer: DatasetWriter) -> list[Finding]:
    """Move sound episodes and journals back from quarantine/; all other files stay there.

    Everything is read before anything is moved.

    Returns:
        A finding for each file.

    Raises:
        DatasetError: Disk, lock, rights or memory prevent reading or moving.
    """
    dataset, quarantine = writer.dataset, Quarantine(writer.dataset.path)
    stored, places = {entry.identity for entry in dataset.entries()}, quarantine.places()
    returns, findings = list[_Return](), list[Finding]()
    for path, name in quarantine.files().items():
        found = _judged(writer, path, name, stored)
        if isinstance(found, str):
            findings.append(Finding(path.name, found, "stays"))
        else:
            returns.append(found)
            stored.add(name.partition(".")[0])
    if returns:
        dataset.catalogue.require_writable()
    for path, target, entry in sorted(returns, key=lambda found: _order(found, places)):
        path.rename(target)
        if entry is not None:
            dataset.catalogue.put_back(entry, places.get(entry.identity))
            findings.append(Finding(path.name, "whole", f"restored: {entry.steps} steps"))
    return findings + repair(writer, thorough=False)  # which recovers the journals


def _order(found: _Return, places: dict[str, int | None]) -> tuple[bool, int, int]:
    place = None if found.entry is None else places.get(found.entry.identity)
    return place is None, place or 0, found.path.lstat().st_mtime_ns


def _judged(writer: DatasetWriter, path: Path, name: str, stored: set[str]) -> _Return | str:
    """Return where a file is moved, or the reason why it stays; raises DatasetError if it cannot be read now."""
    dataset = writer.dataset
    is_journal = name.endswith(SUFFIX)
    if not is_journal and not NAME.fullmatch(name):
        return "no episode"
    if name.partition(".")[0] in stored:
        return "the dataset has this episode"
    target = dataset.path / ("journal" if is_journal else "episodes") / name
    if target.exists() or target.is_symlink():
        return f"{target.parent.name}/ has a file of this name"
    if is_journal:
        return fault_of_journal(dataset, path, name) or _Return(path, target, None)
    try:
        found = read_episode(path, name)
        dataset.spec.require(found.spec, what="It is of another environment than the dataset")
    except REFUTED as error:
        return str(error)
    return _Return(path, target, Entry.of(found.episode, FileName.parse(name), path.stat().st_size))
