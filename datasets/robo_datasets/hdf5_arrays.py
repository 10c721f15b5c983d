"""Read arrays of an HDF5 file that may be hostile (nothing outside the file is opened), and write HDF5 files safely."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from robo_rl.errors import EpisodeCorrupt

inflate: Any
try:
    from zlib_ng import zlib_ng as inflate
except ModuleNotFoundError:
    import zlib as inflate

Array = npt.NDArray[Any]

MOST_UNPACKED = 1_100
"""largest ratio of unpacked to packed bytes; deflate reaches 1,032 at most"""
FILTERS = {h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32}
"""filters of an array that are allowed; others are code that HDF5 would load from plugins"""
PICTURES = [h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_FLETCHER32]
"""filters of the pictures that `write_array` writes, in this order"""
MOST_METADATA = 1 << 22
"""[byte] largest cache of metadata of an open file"""
CHECKSUM = 4
"""[byte] length of the FLETCHER32 checksum after a chunk"""


@dataclass(frozen=True)
class Allowance:
    """Limits on what an HDF5 file may contain."""

    deepest: int = 2
    """largest number of levels of groups"""
    most_arrays: int = 1_000
    """largest number of arrays and groups together"""
    most_bytes: int = 1 << 36
    """[byte] largest size of all arrays, unpacked; 64 GiB"""
    filters: frozenset[int] = frozenset(FILTERS)
    """filters of an array that are allowed"""
    may_hold_texts: bool = False
    """True to allow strings, and rows of bytes of different lengths"""


EPISODE = Allowance()
FOREIGN = Allowance(
    deepest=8,
    most_arrays=2_000_000,
    most_bytes=1 << 44,
    filters=frozenset(FILTERS | {h5py.h5z.FILTER_LZF}),  # h5py brings LZF along
    may_hold_texts=True,
)
"""Limits for a file of another program, which may hold a whole dataset"""


@contextmanager
def created_hdf5(path: Path, *, track_order: bool = False) -> Iterator[h5py.File]:
    """Yield a new HDF5 file to write to. Raises OSError at the end of the block if a write has failed, as on a full disk.

    HDF5 itself must not notice a failed write, since version 2.0 then reads freed memory. So failures are hidden from it.

    track_order: True to keep the order in which groups and arrays are created.
    """
    with path.open("w+b", buffering=0) as raw:
        sink = _Sink(raw)
        try:
            with h5py.File(sink, "w", track_order=track_order) as file:
                yield file
        except (OSError, RuntimeError):  # HDF5 reads back parts that were not written
            if sink.failure is None:
                raise
        if sink.failure is not None:
            raise sink.failure


class _Sink(io.RawIOBase):
    """File that keeps the first error of a write in `failure`, instead of raising it, and ignores all later writes."""

    def __init__(self, file: io.FileIO) -> None:
        super().__init__()
        self._file = file
        self.failure: OSError | None = None

    def write(self, content: Any) -> int:
        view, start = memoryview(content).cast("B"), self._file.tell()
        rest = view
        while rest and self.failure is None:
            try:
                rest = rest[self._file.write(rest) :]
            except OSError as error:
                self.failure = error
        self._file.seek(start + len(view))
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        if self.failure is None:
            try:
                return self._file.truncate(size)
            except OSError as error:
                self.failure = error
        return size or 0

    def readinto(self, target: Any) -> int:
        return self._file.readinto(target)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        """Do nothing: nothing is buffered."""

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


def write_array(group: h5py.Group, name: str, array: Array) -> None:
    """Write an array with checksums. Pictures are deflated in chunks of one frame, other arrays are raw in large chunks."""
    if array.size == 0:
        group.create_dataset(name, data=array)  # nothing to protect, and no chunk may be empty
        return
    is_picture = array.ndim >= 3 and array.dtype == np.uint8
    rows = 1 if is_picture else min(len(array), max(1, (1 << 20) * len(array) // array.nbytes))
    packing = {"compression": "gzip", "compression_opts": 1, "shuffle": False} if is_picture else {}
    group.create_dataset(name, data=array, chunks=(rows, *array.shape[1:]), fletcher32=True, **packing)


def read_arrays(file: h5py.File, file_size: int) -> dict[str, Array]:
    """Read all arrays of an episode's file: path, "group/name" -> array. Raises EpisodeCorrupt as `plain_datasets` does.

    file_size: [byte] size of the file.
    """
    found = plain_datasets(file, file_size).items()
    return {path: _inflated(dataset) if _is_pictures(dataset) else np.asarray(dataset[()]) for path, dataset in found}


def _is_pictures(dataset: h5py.Dataset) -> bool:
    """Return whether an array has pictures as `write_array` stores them, deflated with one frame per chunk."""
    creation = dataset.id.get_create_plist()
    filters = [creation.get_filter(index)[0] for index in range(creation.get_nfilters())]
    whole = math.prod(dataset.shape) > 0 and dataset.id.get_num_chunks() == len(dataset) if dataset.chunks else False
    return filters == PICTURES and dataset.dtype == np.uint8 and whole and dataset.chunks == (1, *dataset.shape[1:])


def _inflated(dataset: h5py.Dataset) -> Array:
    """Return the pictures of an array, inflated by zlib-ng, which is twice as fast as HDF5's own zlib.

    Their checksums are not compared, since the hash of the whole file was. Raises EpisodeCorrupt if a picture is damaged.
    """
    pictures = np.empty(dataset.shape, np.uint8)
    inside = (0,) * (dataset.ndim - 1)
    for row, picture in enumerate(pictures):
        skipped, chunk = dataset.id.read_direct_chunk((row, *inside))
        if skipped:
            return np.asarray(dataset[()])
        unpacking, content = inflate.decompressobj(), b""
        with suppress(inflate.error):
            content = unpacking.decompress(chunk[:-CHECKSUM], picture.nbytes)  # limits the size of a hostile chunk
        if len(content) != picture.nbytes or not unpacking.eof:
            raise EpisodeCorrupt(f"Picture {row} of {dataset.name} has another size.", allowed=f"{picture.nbytes} bytes")
        picture[...] = np.frombuffer(content, np.uint8).reshape(picture.shape)
    return pictures


def limit_metadata(file: h5py.File) -> None:
    """Limit the cache of metadata of an open file to MOST_METADATA; by default HDF5 takes 250 MB of memory."""
    config = file.id.get_mdc_config()
    config.max_size = min(config.max_size, MOST_METADATA)
    config.initial_size, config.min_size = min(config.initial_size, MOST_METADATA), min(config.min_size, MOST_METADATA)
    file.id.set_mdc_config(config)


class PlainDatasets(Mapping[str, h5py.Dataset]):
    """Mapping from path, "group/name", to the arrays of a file. An array is opened only on access.

    HDF5 scans all open arrays whenever one is closed, so with all of them open the time for reading would grow with the square
    of their number.
    """

    def __init__(self, file: h5py.File, paths: Iterable[str]) -> None:
        self._file, self._paths = file, dict.fromkeys(paths)

    def __getitem__(self, path: str) -> h5py.Dataset:
        if path not in self._paths:
            raise KeyError(path)
        return self._file[path]

    def __contains__(self, path: object) -> bool:
        return path in self._paths

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)


def plain_datasets(file: h5py.File, file_size: int, allowance: Allowance = EPISODE) -> PlainDatasets:
    """Check all arrays of a file, and return them by path, "group/name".

    Args:
        file: The open file.
        file_size: [byte] Size of the file.
        allowance: Limits on its contents.

    Raises:
        EpisodeCorrupt: The file has a link, virtual or external storage, a filter or type that is not allowed, or declares
            more data than the limits or its size allow. No large memory is allocated before.
    """
    paths, declared = [], 0
    for path, dataset in _Search(allowance).datasets(file, 0):
        paths.append(path)
        declared += math.prod(dataset.shape) * dataset.dtype.itemsize
    if declared > min(allowance.most_bytes, MOST_UNPACKED * file_size):
        raise EpisodeCorrupt(
            "The file declares more data than it can hold.",
            got=f"{declared} bytes in a file of {file_size}",
            allowed=f"at most {MOST_UNPACKED} times the size of the file, and {allowance.most_bytes} bytes",
        )
    return PlainDatasets(file, paths)


class _Search:
    """Walk through the groups of a file. It counts groups and arrays, so that groups that contain themselves end the walk."""

    def __init__(self, allowance: Allowance) -> None:
        self._allowance, self._count = allowance, 0

    def datasets(self, group: h5py.Group, depth: int) -> Iterator[tuple[str, h5py.Dataset]]:
        """Yield path and array of all arrays below a group; depth: level of the group, 0 for the file itself."""
        most = self._allowance.most_arrays
        self._count += len(group)
        if self._count > most or depth > self._allowance.deepest:
            raise EpisodeCorrupt("The file holds more groups or arrays than it may.", got=self._count, allowed=most)
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
                yield from ((f"{name}/{path}", dataset) for path, dataset in self.datasets(node, depth + 1))
            else:
                _require_plain(name, node, self._allowance)
                yield name, node


def _require_plain(name: str, node: object, allowance: Allowance) -> None:
    wrong: Mapping[str, bool] = {"no array": True}
    if isinstance(node, h5py.Dataset):
        creation = node.id.get_create_plist()
        filters = {creation.get_filter(index)[0] for index in range(creation.get_nfilters())}
        wrong = {
            "stored in other files": node.is_virtual or creation.get_external_count() > 0,
            "packed by an unknown filter": not filters <= allowance.filters,
            "not of plain numbers": node.dtype.kind not in "biuf" and not (allowance.may_hold_texts and _is_text(node.dtype)),
            "without a shape": node.shape is None,
        }
    if faults := [words for words, is_so in wrong.items() if is_so]:
        raise EpisodeCorrupt(
            f"{name!r} is {' and '.join(faults)}.", allowed="arrays of numbers, in the file itself", fix="do not open this file"
        )


def _is_text(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "S" or h5py.check_string_dtype(dtype) is not None or h5py.check_vlen_dtype(dtype) == np.uint8
