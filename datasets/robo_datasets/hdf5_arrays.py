"""Read arrays from an HDF5 file that may be hostile: only what an episode needs is looked at, and nothing outside the file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from robo_rl.errors import EpisodeCorrupt

Array = npt.NDArray[Any]

DEEPEST = 2
"""Levels of groups in an episode file."""
MOST_ARRAYS = 1_000
MOST_BYTES = 1 << 36
"""64 GiB, unpacked, of one episode."""
MOST_UNPACKED = 1_100
"""Times the size of the file; deflate reaches 1,032 at most."""
FILTERS = {h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32}
"""Others are code that HDF5 loads from elsewhere."""


def write_array(group: h5py.Group, name: str, array: Array) -> None:
    """Writes an array with checksums; pictures in chunks of one frame, deflated, everything else as it is in large chunks."""
    if array.size == 0:
        group.create_dataset(name, data=array)  # nothing to protect, and no chunk may be empty
        return
    is_picture = array.ndim >= 3 and array.dtype == np.uint8
    rows = 1 if is_picture else min(len(array), max(1, (1 << 20) * len(array) // array.nbytes))
    packing = {"compression": "gzip", "compression_opts": 1, "shuffle": False} if is_picture else {}
    group.create_dataset(name, data=array, chunks=(rows, *array.shape[1:]), fletcher32=True, **packing)


def read_arrays(file: h5py.File, file_size: int) -> dict[str, Array]:
    """Returns every array by its path, "group/name"; raises EpisodeCorrupt before it allocates anything absurd.

    Refuses links out of the file, virtual and external storage, filters beyond deflate, shuffle and checksums, types that are
    not plain numbers, and more unpacked bytes than so small a file can hold.
    """
    found = dict(_datasets(file, 0))
    declared = sum(math.prod(dataset.shape) * dataset.dtype.itemsize for dataset in found.values())
    if declared > min(MOST_BYTES, MOST_UNPACKED * file_size):
        raise EpisodeCorrupt(
            "The file declares more data than it can hold.",
            got=f"{declared} bytes in a file of {file_size}",
            allowed=f"at most {MOST_UNPACKED} times the size of the file, and {MOST_BYTES} bytes",
        )
    return {path: np.asarray(dataset[()]) for path, dataset in found.items()}


def _datasets(group: h5py.Group, depth: int) -> Iterator[tuple[str, h5py.Dataset]]:
    if len(group) > MOST_ARRAYS or depth > DEEPEST:
        raise EpisodeCorrupt("The file holds more groups or arrays than an episode has.", got=len(group), allowed=MOST_ARRAYS)
    for name in group:
        link = group.get(name, getlink=True)
        if not isinstance(link, h5py.HardLink):
            raise EpisodeCorrupt(
                f"{name!r} is a link.",
                got=type(link).__name__,
                allowed="arrays in the file itself",
                fix="do not open this file",
            )
        node = group[name]
        if isinstance(node, h5py.Group):
            yield from ((f"{name}/{path}", dataset) for path, dataset in _datasets(node, depth + 1))
        else:
            _require_plain(name, node)
            yield name, node


def _require_plain(name: str, node: object) -> None:
    wrong: Mapping[str, bool] = {"no array": True}
    if isinstance(node, h5py.Dataset):
        creation = node.id.get_create_plist()
        filters = {creation.get_filter(index)[0] for index in range(creation.get_nfilters())}
        wrong = {
            "stored in other files": node.is_virtual or creation.get_external_count() > 0,
            "packed by an unknown filter": not filters <= FILTERS,
            "not of plain numbers": node.dtype.kind not in "biuf",
            "without a shape": node.shape is None,
        }
    if faults := [words for words, is_so in wrong.items() if is_so]:
        raise EpisodeCorrupt(
            f"{name!r} is {' and '.join(faults)}.", allowed="arrays of numbers, in the file itself", fix="do not open this file"
        )
