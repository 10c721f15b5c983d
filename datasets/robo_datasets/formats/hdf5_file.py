"""Open a foreign HDF5 file, which may be hostile, and store the spec of the environment in an exported file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from robo_datasets.formats.recording import Array, require_file
from robo_datasets.hdf5_arrays import FOREIGN, limit_metadata, plain_datasets
from robo_rl.errors import DatasetError
from robo_rl.spec.environment import EnvironmentSpec

SPEC = "robo_rl"
"""name of the array of bytes that has the spec of the environment as JSON; other programs ignore it"""
MAGIC = b"\x89HDF\r\n\x1a\n"
ACTIONS = "actions are in [-1, 1]; low, high, units and mode in `action` give the meaning of -1 and 1"


@contextmanager
def opened_hdf5(path: Path) -> Iterator[Mapping[str, h5py.Dataset]]:
    """Open a file inside the context, and yield path -> array. Arrays outside the file and unsafe ones are refused.

    Raises DatasetError or EpisodeCorrupt.
    """
    require_file(path)
    with h5py.File(path, "r") as file:
        limit_metadata(file)
        yield plain_datasets(file, path.stat().st_size, FOREIGN)


def names_in_hdf5(path: Path) -> set[str]:
    """Return the names at the first level of a file; an empty set if the file is damaged or no HDF5."""
    try:
        with h5py.File(path, "r") as file:
            return set(file)
    except (OSError, RuntimeError, LookupError, ValueError, TypeError):
        return set()


def damage_of_hdf5(path: Path) -> str | None:
    """Return the text of HDF5's error if a file is HDF5 and cannot be opened; None if it opens, or is no HDF5."""
    if not path.is_file():
        return None
    with path.open("rb") as start:
        if start.read(len(MAGIC)) != MAGIC:
            return None
    try:
        with h5py.File(path, "r") as file:
            list(file)
    except (OSError, RuntimeError, LookupError, ValueError, TypeError) as error:
        return " ".join(str(error).split())
    return None


def spec_bytes(spec: EnvironmentSpec) -> Array:
    """Return a spec as an array of bytes, for the array SPEC of an exported file."""
    return np.frombuffer(json.dumps({"spec": spec.to_json(), "actions": ACTIONS}).encode(), np.uint8)


def spec_in(datasets: Mapping[str, h5py.Dataset], path: str = SPEC) -> EnvironmentSpec | None:
    """Return the spec that `spec_bytes` has stored at `path`; None if there is none."""
    if path not in datasets:
        return None
    return EnvironmentSpec.from_json(json.loads(np.asarray(datasets[path][()]).tobytes())["spec"])


def loaded(dataset: h5py.Dataset, start: int = 0, stop: int | None = None) -> Array:
    """Read the rows of an array from `start` to before `stop`; raises DatasetError if the array is a single number."""
    if not dataset.shape:
        raise DatasetError(f"{dataset.name} is one number, not one for each step.")
    return np.asarray(dataset[start:stop])


def required(datasets: Mapping[str, h5py.Dataset], episode: str, inside: str) -> h5py.Dataset:
    """Return an array of an episode; raises DatasetError if the episode lacks it.

    Args:
        datasets: Path in the file -> array.
        episode: Path of the episode.
        inside: Path of the array in the episode.
    """
    if (found := datasets.get(f"{episode}/{inside}")) is None:
        raise DatasetError(
            f"{episode} has no {inside}, as other episodes of the file have.",
            allowed="the same arrays in every episode",
            fix="leave that episode out, or write what is missing",
        )
    return found


def attribute(node: h5py.Group | h5py.File, name: str) -> Any:
    """Return an attribute of a group or file as a plain Python value; None if there is none."""
    value = node.attrs.get(name)
    if isinstance(value, bytes):
        return value.decode()
    return value.item() if isinstance(value, np.generic) else value
