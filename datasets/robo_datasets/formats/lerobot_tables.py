"""Read the rows of a LeRobotDataset in batches, and join them to complete episodes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from robo_datasets.formats.lerobot_layout import DATA_PATH, INFO, WALL_TIME, arrow, file_in
from robo_datasets.formats.parquet_file import batches
from robo_datasets.formats.recording import Array
from robo_rl.errors import DatasetError
from robo_rl.spec.environment import ArraySpec

MOST_STEPS = 1_000_000
"""largest number of steps of an episode; if rows are out of order, of all episodes that are not complete yet"""
NEEDED = ("action", "episode_index", "timestamp")
OPTIONAL = (
    "next.reward",
    "next.done",
    "next.terminated",
    "next.truncated",
    "next.success",
    "task_index",
    "frame_index",
    WALL_TIME,
)
OUT_OF_ORDER = "its rows lay out of order: they are sorted by frame"
TWICE = "rows that the data has twice: taken once"
_PNG = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True)
class Layout:
    """Description of a LeRobotDataset: its folder, frame rate, features, and the observations in each feature."""

    root: Path
    """folder of the dataset"""
    features: Mapping[str, Mapping[str, Any]]
    """key of a feature -> its entry in info.json"""
    rate: float
    """Frame rate of the dataset [1/s]."""
    parts: Mapping[str, tuple[ArraySpec, ...]]
    """key of a feature -> specs of the observations in it, in order"""

    @property
    def films(self) -> list[str]:
        """Keys of the cameras that are stored as video."""
        return [key for key in self.parts if self.features[key]["dtype"] == "video"]

    @property
    def are_choices(self) -> bool:
        """True if actions are discrete: one whole number each."""
        described = self.features["action"]
        return np.dtype(described["dtype"]).kind in "iu" and math.prod(described["shape"]) == 1

    @property
    def columns(self) -> list[str]:
        """Keys of the columns that are read; videos are no columns."""
        kept = [key for key in (*NEEDED, *OPTIONAL) if key in self.features]
        return [*kept, *(key for key in self.parts if key not in self.films)]


def counted_rows(layout: Layout) -> Counter[int]:
    """Return index of an episode -> number of its rows."""
    counts: Counter[int] = Counter()
    for columns in table_batches(layout, ["episode_index"]):
        indices, rows = np.unique(columns["episode_index"], return_counts=True)
        counts.update(dict(zip(indices.tolist(), rows.tolist(), strict=True)))
    return counts


def episodes_of(layout: Layout) -> Iterator[tuple[dict[str, Array], list[str]]]:
    """Yield key -> column (T, ...) of each episode, and remarks.

    The rows of an episode are sorted by frame; they may be scattered over the files, in several pieces.

    Raises:
        DatasetError: An episode is too long, or has two different rows of one frame.
    """
    missing = counted_rows(layout)
    held: dict[int, list[dict[str, Array]]] = {}
    waiting = 0
    for columns in table_batches(layout, layout.columns):
        indices = columns["episode_index"]
        edges = [0, *(np.flatnonzero(np.diff(indices)) + 1).tolist(), len(indices)]
        for first, last in pairwise(edges):
            if first == last:
                continue
            index = int(indices[first])
            held.setdefault(index, []).append({key: values[first:last] for key, values in columns.items()})
            missing[index] -= last - first
            waiting += last - first
            if waiting > MOST_STEPS:
                raise DatasetError("An episode is absurdly long.", allowed=f"{MOST_STEPS} steps")
            if not missing[index]:
                whole = _joined(held.pop(index))
                waiting -= len(whole["episode_index"])
                yield _sorted(whole, layout.rate)


def _joined(parts: list[dict[str, Array]]) -> dict[str, Array]:
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def _sorted(columns: dict[str, Array], rate: float) -> tuple[dict[str, Array], list[str]]:
    """Return the rows sorted by frame, without repeated ones, and remarks; raises DatasetError if rows of a frame differ."""
    frames = columns["frame_index"] if "frame_index" in columns else np.rint(columns["timestamp"] * rate)
    if (np.diff(frames) > 0).all():
        return columns, []
    remarks = [OUT_OF_ORDER]
    order = np.argsort(frames, kind="stable")
    columns, frames = {key: values[order] for key, values in columns.items()}, frames[order]
    repeated = np.flatnonzero(np.diff(frames) == 0)
    if len(repeated):
        for key, values in columns.items():
            if not _are_equal(values[repeated], values[repeated + 1]):
                raise DatasetError(
                    "The data has several rows of one frame, and they differ: two recordings under one number?",
                    got=f"frame {frames[repeated[0]]:g} of episode {columns['episode_index'][0]}, {key}",
                    allowed="each frame_index once in an episode",
                    fix="give each episode an episode_index of its own",
                )
        kept = np.delete(np.arange(len(frames)), repeated + 1)
        columns = {key: values[kept] for key, values in columns.items()}
        remarks = [TWICE]
    return columns, remarks


def _are_equal(first: Array, second: Array) -> bool:
    return np.array_equal(first, second, equal_nan=first.dtype.kind == "f")


def table_batches(layout: Layout, keys: list[str]) -> Iterator[dict[str, Array]]:
    """Yield the rows of all data files in order and in batches.

    Args:
        layout: Layout of the dataset.
        keys: Names of the columns.

    Returns:
        For each batch, key -> array (rows, ...).
    """
    widths = {key: math.prod(layout.features[key]["shape"]) for key in keys}
    for path in table_files(layout.root, DATA_PATH):
        for batch in batches(path, widths):
            yield {key: _array(batch.column(key), layout.features[key], f"{key!r} of {path}") for key in keys}


def table_files(root: Path, pattern: str) -> list[Path]:
    """Return the Parquet files of a path pattern, in order; raises DatasetError if there are none."""
    found = sorted((root / pattern).parents[1].glob("chunk-*/file-*.parquet"))
    if not found:
        fix = "copy all of the folder; of a recording that was never ended, call LeRobotDataset.finalize() first"
        raise DatasetError(f"{root} has no {pattern.partition('/chunk')[0]}.", allowed=pattern, fix=fix)
    return [file_in(root, str(path.relative_to(root)).replace("{", "{{").replace("}", "}}")) for path in found]


def _array(column: Any, described: Mapping[str, Any], name: str) -> Array:
    """Return a column as an array (rows, ...); raises DatasetError if it does not fit its entry in info.json."""
    pa, _ = arrow()
    shape = tuple(int(size) for size in described["shape"])
    if described["dtype"] == "image":
        return np.stack([_picture(row, shape, name) for row in column.field("bytes").to_pylist()])
    flat = column
    while pa.types.is_list(flat.type) or pa.types.is_fixed_size_list(flat.type) or pa.types.is_large_list(flat.type):
        flat = flat.flatten()
    values = flat.to_numpy(zero_copy_only=False)
    if values.dtype.kind not in "biuf" or len(values) != len(column) * math.prod(shape):
        got = f"{values.dtype}, {len(values)} numbers in {len(column)} rows"
        raise DatasetError(f"Column {name} contradicts {INFO}.", got=got, allowed=f"{described['dtype']}{list(shape)}")
    return np.asarray(values, np.dtype(described["dtype"])).reshape(len(column), *(() if shape == (1,) else shape))


def _picture(content: bytes | None, shape: tuple[int, ...], name: str) -> Array:
    """Decode a PNG to (H, W, 3) uint8, RGB, after a check of the size in its header; raises DatasetError."""
    if content is None or not content.startswith(_PNG):
        raise DatasetError(
            f"A picture of {name!r} is not a PNG in the file.", fix="write the dataset with lerobot's own writer"
        )
    width, height = int.from_bytes(content[16:20]), int.from_bytes(content[20:24])
    channels_last = {(height, width, 3), (3, height, width)}
    if shape not in channels_last:
        raise DatasetError(f"A picture of {name} has another size.", got=f"{height} x {width}", allowed=shape)
    picture = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR_RGB)
    if picture is None:
        raise DatasetError(f"A picture of {name} is damaged.")
    return np.asarray(picture)
