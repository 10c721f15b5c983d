"""Write a LeRobotDataset v3.0 with pyarrow and PyAV, without LeRobot."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from robo_datasets.formats.lerobot_layout import (
    CODEBASE,
    DATA_MEGABYTES,
    DATA_PATH,
    EPISODES_PATH,
    FACTS,
    FILES_A_CHUNK,
    INFO,
    OURS,
    STATS,
    TASKS,
    VIDEO_MEGABYTES,
    VIDEO_PATH,
    WALL_TIME,
    Feature,
    arrow,
    file_in,
    frame_rate,
)
from robo_datasets.formats.lerobot_statistics import ColumnStatistics, PictureStatistics
from robo_datasets.formats.lerobot_video import Film, film_facts
from robo_datasets.formats.recording import About, Array, Recording
from robo_rl.errors import DatasetError

ROWS_HELD = 100
"""number of rows of meta/episodes that are held in memory"""
INDICES = ("frame_index", "episode_index", "index", "task_index")


def write(recordings: Iterable[Recording], about: About, features: Mapping[str, Feature], out: Path) -> None:
    """Write a LeRobotDataset into the folder `out`, episode by episode.

    Args:
        recordings: The episodes, as `LeRobot.reduced` returns them.
        about: Facts about the dataset.
        features: Key -> feature of the observations.
        out: Folder of the dataset.
    """
    writer = _Writer(about, features, out)
    try:
        for recording in recordings:
            writer.add(recording)
        writer.finish()
    finally:
        writer.close()
    writer.describe()


class _Writer:
    def __init__(self, about: About, features: Mapping[str, Feature], out: Path) -> None:
        self._about, self._observed, self._out = about, features, out
        self._rate = frame_rate(about.spec)
        self._columns = _columns(about)
        self._features = {key: feature.described() for key, feature in features.items()} | self._columns
        self._statistics: dict[str, Any] = {
            key: PictureStatistics() if described["dtype"] in ("image", "video") else ColumnStatistics()
            for key, described in self._features.items()
        }
        self._tasks: dict[str, int] = {}
        self._count = 0
        """number of episodes that were added"""
        self._rows: list[dict[str, Any]] = []
        """rows of meta/episodes that are not written yet; each has 80 KB of statistics"""
        self._table: Any = None
        self._films: dict[str, Film] = {}
        self._numbers = {key: 0 for key, feature in features.items() if feature.kind == "video"}
        self._steps, self._file_number = 0, 0
        self._parquet: Any = None
        (out / "meta").mkdir(parents=True)

    def add(self, recording: Recording) -> None:
        """Append an episode to the files."""
        pa, pq = arrow()
        steps = len(recording)
        row: dict[str, Any] = {"episode_index": self._count, "length": steps}
        task = recording.instruction or self._about.spec.instruction or self._about.spec.name
        row |= {"tasks": [task], "dataset_from_index": self._steps, "dataset_to_index": self._steps + steps}
        columns = self._values(recording, self._tasks.setdefault(task, len(self._tasks)))
        for key, feature in self._observed.items():
            values = [recording.observations[name] for name in feature.names]
            columns[key] = (
                values[0] if feature.kind != "numbers" else np.concatenate([v.reshape(steps, -1) for v in values], axis=1)
            )
        stored = {key: _column(pa, columns[key], self._features[key]) for key in columns if key not in self._numbers}
        table = pa.table(stored)
        if self._parquet is None:
            path = file_in(self._out, DATA_PATH, **_place(self._file_number))
            path.parent.mkdir(parents=True, exist_ok=True)
            self._parquet, self._path = pq.ParquetWriter(path, table.schema, compression="snappy"), path
        self._parquet.write_table(table)
        row |= {f"data/{name}": number for name, number in _place(self._file_number).items()}
        for key in self._numbers:
            row |= self._filmed(key, columns[key])
        for key, column in columns.items():
            row |= {f"stats/{key}/{name}": value.tolist() for name, value in self._statistics[key].add(column).items()}
        facts = {name: getattr(recording, name) for name in ("success", "seed", "instruction", "stop_reason")}
        self._rows.append(row | {"meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0, FACTS: json.dumps(facts)})
        if len(self._rows) == ROWS_HELD:
            self._write_rows()
        self._count += 1
        self._steps += steps
        if self._path.stat().st_size > DATA_MEGABYTES * 2**20:
            self._parquet.close()
            self._parquet, self._file_number = None, self._file_number + 1

    def finish(self) -> None:
        """Write the rows of meta/episodes that are still held."""
        if self._rows or self._table is None:
            self._write_rows()

    def close(self) -> None:
        """Close all open files; rows that are not written yet are lost."""
        for parquet in (self._parquet, self._table):
            if parquet is not None:
                parquet.close()
        for film in self._films.values():
            film.close()

    def describe(self) -> None:
        """Write all files in meta/ but meta/episodes; the data files must be closed."""
        pa, pq = arrow()
        pq.write_table(_tasks(pa, self._tasks), self._out / TASKS)
        for key in self._numbers:
            film = file_in(self._out, VIDEO_PATH, video_key=key, chunk_index=0, file_index=0)
            self._features[key]["info"] = film_facts(film)
        stats = {key: {name: v.tolist() for name, v in found.total().items()} for key, found in self._statistics.items()}
        spec = self._about.spec
        layout = {key: list(feature.names) for key, feature in self._observed.items()}
        _write_json(self._out / INFO, self._info())
        _write_json(self._out / STATS, stats)
        _write_json(self._out / OURS, {"spec": spec.to_json(), "observations": layout, "actions": "in [-1, 1]"})

    def _write_rows(self) -> None:
        """Append the rows that are held to meta/episodes."""
        pa, pq = arrow()
        table = pa.Table.from_pylist(self._rows, None if self._table is None else self._table.schema)
        if self._table is None:
            path = file_in(self._out, EPISODES_PATH, chunk_index=0, file_index=0)
            path.parent.mkdir(parents=True)
            self._table = pq.ParquetWriter(path, table.schema, compression="snappy")
        self._table.write_table(table)
        self._rows = []

    def _values(self, recording: Recording, task: int) -> dict[str, Array]:
        steps, last = len(recording), np.zeros((3, len(recording)), np.bool_)
        last[:, -1] = bool(recording.terminated), bool(recording.truncated), bool(recording.success)
        frames = np.arange(steps, dtype=np.int64)
        actions = recording.actions
        values = {"action": actions.astype(np.int64) if actions.ndim == 1 else actions}
        values |= {"next.reward": np.asarray(recording.rewards, np.float32), "next.done": last[0] | last[1]}
        values |= {"next.terminated": last[0], "next.truncated": last[1], "next.success": last[2]}
        values |= {WALL_TIME: np.asarray(recording.timestamps), "timestamp": (frames / self._rate).astype(np.float32)}
        episode = np.full(steps, self._count, np.int64)
        values |= dict(zip(INDICES, (frames, episode, frames + self._steps, np.full(steps, task, np.int64)), strict=True))
        return {key: value for key, value in values.items() if key in self._columns}

    def _filmed(self, key: str, pictures: Array) -> dict[str, Any]:
        place = _place(self._numbers[key])
        if key not in self._films:
            path = file_in(self._out, VIDEO_PATH, video_key=key, **place)
            self._films[key] = Film(path, self._rate, pictures.shape[1], pictures.shape[2])
        film = self._films[key]
        start = film.frames / self._rate
        film.add(pictures)
        times = {"from_timestamp": start, "to_timestamp": film.frames / self._rate}
        if film.megabytes > VIDEO_MEGABYTES:
            self._films.pop(key).close()
            self._numbers[key] += 1
        return {f"videos/{key}/{name}": value for name, value in (place | times).items()}

    def _info(self) -> dict[str, Any]:
        return {
            "codebase_version": CODEBASE,
            "robot_type": self._about.spec.name,
            "total_episodes": self._count,
            "total_frames": self._steps,
            "total_tasks": len(self._tasks),
            "chunks_size": FILES_A_CHUNK,
            "data_files_size_in_mb": DATA_MEGABYTES,
            "video_files_size_in_mb": VIDEO_MEGABYTES,
            "fps": self._rate,
            "splits": {"train": f"0:{self._count}"},
            "data_path": DATA_PATH,
            "video_path": VIDEO_PATH if self._numbers else None,
            "features": self._features,
        }


def _columns(about: About) -> dict[str, dict[str, Any]]:
    """Return key -> description of the columns that are not observations."""
    action = about.spec.action
    named: dict[str, Any] = {"dtype": "int64", "shape": [1], "names": None}
    if not action.is_discrete:
        named = {"dtype": "float32", "shape": [action.size], "names": list(action.names)}
    kinds = {"next.reward": "float32", "next.done": "bool", "next.terminated": "bool", "next.truncated": "bool"}
    kinds |= {"next.success": "bool"} if about.is_judged else {}
    kinds |= {WALL_TIME: "float64", "timestamp": "float32"} | dict.fromkeys(INDICES, "int64")
    return {"action": named} | {key: {"dtype": kind, "shape": [1], "names": None} for key, kind in kinds.items()}


def _column(pa: Any, values: Array, described: Mapping[str, Any]) -> Any:
    if described["dtype"] == "image":
        kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        return pa.array([{"bytes": _png(picture), "path": f"frame-{i:06d}.png"} for i, picture in enumerate(values)], kind)
    kind = pa.from_numpy_dtype(np.dtype(described["dtype"]))
    flat = pa.array(np.ascontiguousarray(values).reshape(-1), kind)
    size = described["shape"][0]
    return flat if size == 1 else pa.FixedSizeListArray.from_arrays(flat, size)


def _png(picture: Array) -> bytes:
    done, content = cv2.imencode(".png", cv2.cvtColor(picture, cv2.COLOR_RGB2BGR))
    if not done:
        raise DatasetError("A picture cannot be written as PNG.", got=picture.shape)
    return content.tobytes()


def _place(number: int) -> dict[str, int]:
    return {"chunk_index": number // FILES_A_CHUNK, "file_index": number % FILES_A_CHUNK}


def _tasks(pa: Any, tasks: Mapping[str, int]) -> Any:
    """Return the table of tasks, which pandas reads as a frame whose index is the texts."""
    index = "__index_level_0__"
    task = {"name": None, "field_name": index, "pandas_type": "unicode", "numpy_type": "object", "metadata": None}
    number = {"name": "task_index", "field_name": "task_index", "pandas_type": "int64", "numpy_type": "int64", "metadata": None}
    columns = [number, task]
    note = {"index_columns": [index], "column_indexes": [], "columns": columns, "pandas_version": "2.2.0"}
    table = pa.table({"task_index": pa.array(list(tasks.values()), pa.int64()), index: pa.array(list(tasks), pa.string())})
    return table.replace_schema_metadata({"pandas": json.dumps(note)})


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=4, ensure_ascii=False), encoding="utf-8")
