"""Training cache of a dataset: its episodes as mapped rows, built once, and then as fast as arrays in memory at any size.

    CACHE/<content>/  cache.json  vectors.npy  action.npy  reward.npy  ...  observation.camera_front.npy

CACHE is DATASET/cache, or a folder under $XDG_CACHE_HOME/robo_rl if DATASET cannot be written to. `content` is a hash over the
names of the episodes' files, which have the hashes of their content. So other episodes have another cache.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, overload

from robo_datasets.catalogue import Entry
from robo_datasets.dataset import Dataset
from robo_datasets.labels import LabelSet
from robo_datasets.mapped_rows import map_rows, write_rows
from robo_rl.errors import DatasetError, InvalidSetting
from robo_rl.extras import Extra, recorded_columns
from robo_rl.replay.recorded import RecordedReplay
from robo_rl.replay.rows import layout_of, restricted_rows, rows_of, with_rewards
from robo_rl.replay.storage import GIGABYTE, size_of
from robo_rl.runs.run import write_text
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.system.durable_files import exclusive_lock, sync_folder
from robo_rl.system.plain_files import content_of as plain_content
from robo_rl.types import Array, Episode, Labels

SCHEMA = "robo_rl.cache/2"
MANIFEST = "cache.json"
KEPT = 3
"""number of caches of one dataset that are kept, for example of its first 50 and of all episodes; the one that was not used for
longest is removed first"""
TEMPORARY = ".tmp-"
NAME = re.compile(rf"[0-9a-f]{{32}}({re.escape(TEMPORARY)}[0-9a-f]{{32}})?")
"""Names of the folders that may be removed; all else is left alone"""

Watch = Callable[[Sequence[Entry]], Iterable[Entry]]
"""Function that passes entries on one by one, and may show progress"""


@dataclass(frozen=True)
class Cache:
    """Cache of some episodes that is open: their rows (robo_rl.replay.rows), mapped read-only."""

    path: Path
    """folder of the cache"""
    content: str
    """identifier of the episodes, 32 hex digits"""
    rows: Mapping[str, Array]
    """Name of an array -> its values for all steps, (rows, ...)."""


@dataclass(frozen=True)
class CachedEpisodes(Sequence[Episode]):
    """Some episodes of a dataset. Access by index reads an episode's file; `replay` samples steps from the cache."""

    dataset: Dataset
    entries: Sequence[Entry]
    """entries of the episodes"""
    watch: Watch = iter
    """passes the episodes on while the cache is built; may show progress"""
    labels: LabelSet | None = None
    """label set whose rewards replace the recorded ones; None for the recorded rewards"""

    def __len__(self) -> int:
        return len(self.entries)

    @overload
    def __getitem__(self, index: int) -> Episode: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Episode]: ...
    def __getitem__(self, index: int | slice) -> Episode | Sequence[Episode]:
        if isinstance(index, slice):
            return CachedEpisodes(self.dataset, self.entries[index], self.watch, self.labels)
        entry = self.entries[index]
        episode = self.dataset.read(entry)
        return episode if self.labels is None else replace(episode, rewards=_whole(self.labels, entry))

    def replay(self, seed: int, extras: Sequence[Extra] = (), spec: EnvironmentSpec | None = None) -> RecordedReplay:
        """Return a replay memory that samples steps of the episodes. Pictures stay on disk. Steps without a label are left out.

        Args:
            seed: Seed of the sampler.
            extras: Further columns per step, which are kept in RAM. For those that are computed from episodes, all episodes are
                read once.
            spec: Spec of a policy. Observations that the policy does not read are then left out, and the vectors of the others
                are copied into RAM. None for all observations.

        Raises:
            EpisodeCorrupt: An episode was changed after it was written.
            DatasetError: The cache cannot be built.
        """
        cache = open_cache(self.dataset, self.entries, self.watch)
        content, whole = cache.content, self.dataset.spec
        read = whole if spec is None else spec.restricted(whole.observation)
        rows = restricted_rows(whole, read, cache.rows)
        if self.labels is not None:
            rows = with_rewards(read, rows, _rewards(self.labels, self.entries))
            content = f"{content}-{self.labels.digest(self.entries)}"
        columns = recorded_columns(read, extras, [entry.steps for entry in self.entries], self._watched())
        return RecordedReplay(read, {**rows, **columns}, seed, content=content, extras=extras)

    def _watched(self) -> Iterator[Episode]:
        """Yield the episodes. Nothing is read, and no progress is shown, before the first one is asked for."""
        for entry in self.watch(self.entries):
            yield read_listed(self.dataset, entry)


def _whole(labels: LabelSet, entry: Entry) -> Array:
    """Return the rewards (T,) of an episode; raises InvalidSetting if a step has none, because missing is not zero."""
    found = labels.read(entry.identity)
    count = 0 if found is None else int(found.valid.sum())
    if found is None or count < entry.steps:
        raise InvalidSetting(
            f"An episode has steps without a label of the set {labels.name!r}, and this learner cannot leave them out.",
            got=f"{count} of {entry.steps} steps of {entry.identity}",
            allowed="a label for each step",
            fix="label them, filter the dataset, or take a learner of our own, such as iql or rlpd",
        )
    return found.values


def _rewards(labels: LabelSet, entries: Sequence[Entry]) -> Labels:
    """Return the labels of all rows of the episodes. An episode of T steps has T + 1 rows; one without a step has none."""
    parts = [Labels.missing(0)]
    for entry in entries:
        parts += [labels.read(entry.identity) or Labels.missing(entry.steps), Labels.missing(min(entry.steps, 1))]
    return Labels.joined(parts)


def open_cache(dataset: Dataset, entries: Sequence[Entry], watch: Watch = iter) -> Cache:
    """Open the cache of some episodes. If it is missing or damaged, build it first, and check every episode against its hash.

    Args:
        dataset: The dataset.
        entries: Entries of the episodes.
        watch: Passes the entries on while the cache is built; may show progress.

    Raises:
        EpisodeCorrupt: An episode was changed after it was written.
        DatasetError: There is no room, or no folder that can be written to.
    """
    content, places = content_of(dataset, entries), cache_folders(dataset)
    for place in places:
        if (cache := _found(place / content, dataset)) is not None:
            return cache
    with _locked(places) as place:  # of two processes at once, the second finds the cache of the first
        if (cache := _found(place / content, dataset)) is None:
            _remove_old(place, dataset)
            _build(place / content, dataset, entries, watch)
            cache = _found(place / content, dataset)
    if cache is None:
        raise DatasetError(f"The cache {place / content} is not as it was just written.", fix="check the disk")
    return cache


def content_of(dataset: Dataset, entries: Iterable[Entry]) -> str:
    """Return an identifier of these episodes in this order, 32 hex digits."""
    names = [SCHEMA, dataset.spec.fingerprint, *(entry.file for entry in entries)]
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:32]


def cache_folders(dataset: Dataset) -> tuple[Path, Path]:
    """Return the folders in which a cache may be: one in the dataset, and one in the user's cache."""
    path = dataset.path.absolute()
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return path / "cache", root / "robo_rl" / f"{path.name}-{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"


def _found(path: Path, dataset: Dataset) -> Cache | None:
    """Open the cache at `path` and update its time of use; return None if it is missing, or a byte was changed."""
    try:
        manifest = _manifest(path)
        rows = map_rows(path, layout_of(dataset.spec), manifest["rows"], manifest["sha256"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    with suppress(OSError):  # if nothing can be written, nothing is removed either
        os.utime(path)
    return Cache(path, path.name, rows)


def _build(final: Path, dataset: Dataset, entries: Sequence[Entry], watch: Watch) -> None:
    """Write a cache under a temporary name, with one episode at a time in memory, and rename it once it is durable."""
    layout = layout_of(dataset.spec)
    count = sum(entry.steps + 1 for entry in entries if entry.steps)
    _require_space(final.parent, size_of(layout, count))
    temporary = final.with_name(f"{final.name}{TEMPORARY}{uuid.uuid4().hex}")
    parts = (rows_of(dataset.spec, read_listed(dataset, entry)) for entry in watch(entries))
    try:
        temporary.mkdir()
        digests = write_rows(temporary, layout, count, parts)
        files = [entry.file for entry in entries]
        manifest = {"schema": SCHEMA, "content": final.name, "rows": count, "sha256": digests, "episodes": files}
        write_text(temporary / MANIFEST, json.dumps(manifest))
        shutil.rmtree(final, ignore_errors=True)  # one that is damaged
        temporary.rename(final)
        sync_folder(final.parent)
    except OSError as error:
        raise DatasetError(f"No training cache could be written to {final.parent}.", got=error, fix="make room") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def read_listed(dataset: Dataset, entry: Entry) -> Episode:
    """Read the episode of an entry; raises DatasetError if it has another number of steps than the entry says."""
    episode = dataset.read(entry)
    if len(episode) != entry.steps:
        raise DatasetError(
            f"The catalogue is wrong about episode {entry.file}.",
            got=f"{entry.steps} steps",
            allowed=f"{len(episode)} steps",
            fix=f"remove {dataset.path}/catalogue.sqlite, then: robo-rl data repair {dataset.path}",
        )
    return episode


def _remove_old(place: Path, dataset: Dataset) -> None:
    """Remove leftovers of killed processes, caches of episodes that are gone, and all but the most recently used caches.

    A process that uses a removed cache can go on, since a mapped file exists until it is closed.
    """
    present = {entry.file for entry in dataset.entries()}
    usable: list[tuple[float, Path]] = []
    for path in (ours := [path for path in place.iterdir() if NAME.fullmatch(path.name) and path.is_dir()]):
        try:
            is_usable = TEMPORARY not in path.name and present.issuperset(_manifest(path)["episodes"])
        except (OSError, ValueError, KeyError, TypeError):
            is_usable = False
        usable += [(path.stat().st_mtime, path)] if is_usable else []
    kept = {path for _, path in sorted(usable)[-(KEPT - 1) :]}  # and the one that is about to be built
    for path in [path for path in ours if path not in kept]:
        shutil.rmtree(path, ignore_errors=True)


def _manifest(path: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(plain_content(path / MANIFEST))
    if (manifest["schema"], manifest["content"]) != (SCHEMA, path.name):
        raise ValueError(f"{path} holds another cache than it says.")
    return manifest


@contextmanager
def _locked(places: Sequence[Path]) -> Iterator[Path]:
    """Yield the first folder that can be written to, locked against other processes; raises DatasetError if there is none."""
    problems = []
    for place in places:
        if place.is_symlink():  # in a foreign dataset, it may lead to any folder of the user's
            problems.append(f"{place}: is a link")
            continue
        try:
            place.mkdir(parents=True, exist_ok=True)
            lock = exclusive_lock(place / "lock")
        except OSError as error:
            problems.append(f"{place}: {error.strerror}")
            continue
        with lock:
            yield place
        return
    raise DatasetError(
        "There is no place for the training cache.", got="; ".join(problems), fix="set XDG_CACHE_HOME to a folder of yours"
    )


def _require_space(place: Path, size: int) -> None:
    free = shutil.disk_usage(place).free
    if size > free:
        raise DatasetError(
            f"The training cache does not fit on the disk of {place}.",
            got=f"{size / GIGABYTE:.2f} GB",
            allowed=f"{free / GIGABYTE:.2f} GB",
            fix="make room, or train on fewer episodes: --demonstrations.episodes N",
        )
