"""Side file of an export: the data that the foreign format cannot hold, so that an import can restore them.

    header                               JSON: schema, format, spec and card of the dataset, fingerprint of the foreign spec
    episodes/<number>/header             JSON: digest of the foreign recording, identity, facts, metadata, notes, first rows
    episodes/<number>/rows/<array>       rows of an array from the first row on that differs in the foreign file
    labels/<set>/<identity>/<array>      rewards by models; `header` has the rest as JSON

An episode is found by the digest of its foreign recording. So a recording that was edited after the export is not overwritten.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from robo_datasets.catalogue import Entry
from robo_datasets.dataset import Dataset
from robo_datasets.episode_file import episode_arrays, episode_facts, episode_of, unreadable
from robo_datasets.formats.recording import Array, require_file
from robo_datasets.hdf5_arrays import FOREIGN, limit_metadata, plain_datasets, write_array
from robo_datasets.labels import LabelSet, label_sets
from robo_rl.errors import DatasetError, EpisodeCorrupt, RoboRLError, is_passing
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Episode, RewardLabels

SCHEMA = "robo_rl.side/1"
NAME = "robo_rl.h5"


def side_path(export: Path) -> Path:
    """Return the path of an export's side file: in its folder, or next to its file."""
    return export / NAME if export.is_dir() else export.with_name(f"{export.name}.{NAME}")


class Kept(NamedTuple):
    """Keys by which an episode of a side file is found: its number, its foreign recording and its original."""

    number: str
    """number of the episode in the side file"""
    digest: str
    """digest of its foreign recording, `Recording.digest`"""
    identity: str
    """identity of the original episode, 32 hex digits"""


class SideFile:
    """Side file that is open for reading: it restores the episodes that a foreign file holds only in part.

    Args:
        file: The open HDF5 file.
        size: [bytes] size of the file.

    Raises:
        DatasetError: The side file has another schema.
        EpisodeCorrupt: It is not readable as a side file.
    """

    def __init__(self, file: h5py.File, size: int) -> None:
        self._datasets = plain_datasets(file, size, FOREIGN)
        header = self._json("header")
        if header["schema"] != SCHEMA:
            raise DatasetError("The side file has another schema.", got=header["schema"], allowed=SCHEMA)
        self.spec = EnvironmentSpec.from_json(header["spec"])
        self.read_as = str(header["read_as"])
        """fingerprint of the spec that the foreign file had when it was read back at the export"""
        self.card: dict[str, Any] = header["card"]
        numbers = sorted(path.split("/")[1] for path in self._datasets if _is_header(path, "episodes"))
        self._rows: dict[str, list[str]] = {}
        for path in self._datasets:
            if path.startswith("episodes/") and not _is_header(path, "episodes"):
                self._rows.setdefault(path.split("/")[1], []).append(path)
        self.kept = [self._kept(number) for number in numbers]

    def restore(self, kept: Kept, foreign: Episode | None) -> Episode:
        """Return the original episode.

        Args:
            kept: Episode of the side file.
            foreign: Episode that was imported from the foreign file; None if no step of it is left.
        """
        header, held = self._header(kept.number), {} if foreign is None else episode_arrays(foreign)
        prefix = f"episodes/{kept.number}/rows/"
        arrays = {path: held[path] for path in header["exact"]}
        for inside in self._rows.get(kept.number, []):
            path = inside.removeprefix(prefix)
            first, values = int(header["first"][path]), np.asarray(self._datasets[inside][()])
            arrays[path] = np.concatenate([held[path][:first], values]) if first else values
        return episode_of(arrays, header["facts"], header["metadata"], self.spec)

    def notes(self, kept: Kept) -> list[str]:
        """Return the remarks that people have made on an episode."""
        return [str(note) for note in self._header(kept.number)["notes"]]

    def labels(self) -> Iterator[tuple[str, str, RewardLabels]]:
        """Yield, for all labels of the side file, the name of their set, the identity of their episode, and the labels."""
        for path in self._datasets:
            if _is_header(path, "labels"):
                _, name, identity, _ = path.split("/")
                paths = {part: f"labels/{name}/{identity}/{part}" for part in ("values", "valid", "confidence")}
                parts: dict[str, Any] = {
                    part: np.asarray(self._datasets[at][()]) for part, at in paths.items() if at in self._datasets
                }
                yield name, identity, RewardLabels(**parts, **self._json(path))

    def _kept(self, number: str) -> Kept:
        header = self._header(number)
        return Kept(number, header["digest"], header["identity"])

    def _header(self, number: str) -> dict[str, Any]:
        return self._json(f"episodes/{number}/header")

    def _json(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(np.asarray(self._datasets[path][()]).tobytes())
        return found


@contextmanager
def opened(path: Path) -> Iterator[SideFile]:
    """Open a side file inside the context; raises DatasetError if it is damaged or no side file."""
    fix = f"move {path.name} away to read the export without it"
    try:
        require_file(path)
        with h5py.File(path, "r") as file:
            limit_metadata(file)
            yield SideFile(file, path.stat().st_size)
    except EpisodeCorrupt as error:
        raise DatasetError(f"The side file {path} cannot be read. {error}", fix=fix) from None
    except RoboRLError:
        raise
    except (OSError, KeyError, ValueError, TypeError, AttributeError, IndexError, RuntimeError) as error:
        if is_passing(error):
            raise unreadable(path.name, error) from error
        raise DatasetError(f"{path} is not a side file.", got=f"{type(error).__name__}: {error}", fix=fix) from error


class SideFileWriter:
    """Writer of a side file, one episode after the other."""

    def __init__(self, file: h5py.File, format_name: str, dataset: Dataset, read_as: EnvironmentSpec) -> None:
        self._file, self._dataset, self._count = file, dataset, 0
        self._notes: dict[str, list[str]] = {}
        for identity, note in dataset.catalogue.all_notes():
            self._notes.setdefault(identity, []).append(note)
        header = {"schema": SCHEMA, "format": format_name, "spec": dataset.spec.to_json(), "card": dataset.card}
        header |= {"read_as": read_as.fingerprint}
        write_array(file, "header", _encoded(header))

    def add(self, entry: Entry, episode: Episode, digest: str, foreign: Episode | None) -> None:
        """Store the differences between an episode and its foreign version.

        Args:
            entry: Entry of the episode.
            episode: The original episode.
            digest: Digest of the foreign recording.
            foreign: Episode as it is imported from the foreign file; None if no step of it is left.
        """
        group = self._file.create_group(f"episodes/{self._count:09d}")
        self._count += 1
        held = {} if foreign is None else episode_arrays(foreign)
        exact, first = [], {}
        for path, array in episode_arrays(episode).items():
            same = rows_alike(array, held.get(path))
            if same == len(array) and len(array) == len(held[path]):
                exact.append(path)
                continue
            first[path] = same
            parent, _, name = f"rows/{path}".rpartition("/")
            write_array(group.require_group(parent), name, np.ascontiguousarray(array[same:]))
        header = {"digest": digest, "identity": entry.identity, "facts": episode_facts(episode), "exact": exact, "first": first}
        header |= {"metadata": dict(episode.metadata), "notes": self._notes.get(entry.identity, [])}
        write_array(group, "header", _encoded(header))

    def add_labels(self) -> None:
        """Store all label sets of the dataset."""
        for name in label_sets(self._dataset):
            labels = LabelSet(self._dataset, name)
            for identity in sorted(labels.labelled):
                if (found := labels.read(identity)) is not None:
                    values = {field.name: getattr(found, field.name) for field in fields(RewardLabels)}
                    group = self._file.create_group(f"labels/{name}/{identity}")
                    for field, value in values.items():
                        if isinstance(value, np.ndarray):
                            write_array(group, field, value)
                    texts = {field: value for field, value in values.items() if isinstance(value, str)}
                    write_array(group, "header", _encoded(texts))


def rows_alike(array: Array, other: Array | None) -> int:
    """Return the number of rows, from the first one on, that are equal to the bit; 0 if shape or type of the rows differ."""
    if other is None or other.dtype != array.dtype or other.shape[1:] != array.shape[1:]:
        return 0
    shared = min(len(array), len(other))
    if shared == 0:
        return 0
    first, second = (np.ascontiguousarray(rows[:shared]).view(np.uint8).reshape(shared, -1) for rows in (array, other))
    alike = (first == second).all(axis=1)
    return shared if alike.all() else int(np.argmin(alike))


def _encoded(value: Mapping[str, Any]) -> Array:
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def _is_header(path: str, kind: str) -> bool:
    parts = path.split("/")
    return parts[0] == kind and parts[-1] == "header" and len(parts) == (3 if kind == "episodes" else 4)
