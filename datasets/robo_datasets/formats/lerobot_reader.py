"""Read a LeRobotDataset v3.0, which may be hostile: paths are computed, never taken from it; sizes are checked first."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from robo_datasets.formats.lerobot_layout import (
    CODEBASE,
    DATA_PATH,
    ENVIRONMENT,
    EPISODES_PATH,
    FACTS,
    INFO,
    OURS,
    SERVED,
    STATE,
    TASKS,
    VIDEO_PATH,
    WALL_TIME,
    arrow,
    file_in,
    require_known_paths,
    safe_key,
)
from robo_datasets.formats.lerobot_video import read_film
from robo_datasets.formats.parquet_file import batches, opened_parquet
from robo_datasets.formats.recording import (
    Actions,
    Array,
    Foreign,
    Recording,
    flat_name,
    foreign_array,
    require_file,
    within,
)
from robo_rl.errors import DatasetError
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec, ObservationSpec

MOST_JSON = 1 << 26
MOST_DESCRIBED = 1_000_000
"""Episodes, or tasks."""
MOST_STEPS = 1_000_000
"""Of an episode."""
NEEDED = ("action", "episode_index", "timestamp")
OPTIONAL = ("next.reward", "next.done", "next.terminated", "next.truncated", "next.success", "task_index", WALL_TIME)
NO_TASK = f"the task of an episode is not in {TASKS}: it has no instruction"
_PNG = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True)
class _Layout:
    """Features of the observations."""

    root: Path
    features: Mapping[str, Mapping[str, Any]]
    rate: float
    parts: Mapping[str, tuple[ArraySpec, ...]]
    """key -> its observations, in order"""

    @property
    def films(self) -> list[str]:
        return [key for key in self.parts if self.features[key]["dtype"] == "video"]

    @property
    def columns(self) -> list[str]:
        kept = [key for key in (*NEEDED, *OPTIONAL) if key in self.features]
        return [*kept, *(key for key in self.parts if key not in self.films)]


def read(source: Path) -> Foreign:
    """Opens the folder."""
    info = _load_json(source, INFO)
    version = str(info.get("codebase_version"))
    if not version.startswith(CODEBASE.split(".")[0] + "."):
        raise DatasetError(
            "Only LeRobotDataset v3 is read.",
            got=version,
            allowed=CODEBASE,
            fix="convert it: python -m lerobot.datasets.v30.convert_dataset_v21_to_v30 --repo-id=...",
        )
    require_known_paths(info)
    features = {safe_key(key): dict(described) for key, described in info["features"].items()}
    if missing := set(NEEDED) - set(features):
        raise DatasetError(f"{source} has no {', '.join(sorted(missing))}.")
    ours = _load_json(source, OURS) if (source / OURS).is_file() else None
    spec = None if ours is None else EnvironmentSpec.from_json(ours["spec"])
    is_served = info.get("robot_type") == SERVED
    unread: list[str] = []
    if spec is not None and ours is not None:
        parts = _parts_of(spec, ours["observations"], features)
    else:
        parts, unread = _parts(features, is_served)
    if not parts:
        raise DatasetError(f"{source} has no observation of numbers or pictures.", got=sorted(features))
    layout = _Layout(source, features, float(info["fps"]), parts)
    if not 0 < layout.rate < 1e6:
        raise DatasetError(f"{INFO} has an impossible frame rate.", got=info["fps"])
    arrays = [array for found in parts.values() for array in found]
    notes = [f"not read: {', '.join(unread)}"] if unread else []
    notes += [f"pictures come from lossy video: {', '.join(layout.films)}"] if layout.films else []
    notes += _contradictions(source, info, features)
    if not {"next.terminated", "next.truncated"} & set(features):
        notes.append("termination and truncation are not distinguished: episodes count as truncated, unless they succeeded")
    return Foreign(
        lambda: _recordings(layout),
        ObservationSpec(tuple(arrays)),
        _actions(layout, spec, are_normalized=spec is not None or is_served),
        name=str(info.get("robot_type") or "lerobot"),
        spec=spec,
        control_period=1.0 / layout.rate if spec is None else None,
        notes=tuple(notes),
    )


def _contradictions(source: Path, info: Mapping[str, Any], features: Mapping[str, Any]) -> list[str]:
    """Returns remarks on missing or contradictory metadata."""
    notes = []
    if "task_index" in features and not file_in(source, TASKS).exists():
        notes.append(f"{TASKS} is missing: the episodes have no instructions")
    frames = 0
    for path in _files(source, DATA_PATH):
        with opened_parquet(path) as file:
            frames += file.metadata.num_rows
    if info.get("total_frames") not in (None, frames):
        notes.append(f"{INFO} says {info['total_frames']} frames, the data has {frames}: all of the data is taken")
    return notes


def _parts_of(
    spec: EnvironmentSpec, layout: Mapping[str, list[str]], features: Container[str]
) -> dict[str, tuple[ArraySpec, ...]]:
    return {key: tuple(spec.observation[name] for name in names) for key, names in layout.items() if key in features}


def _parts(features: Mapping[str, Mapping[str, Any]], is_served: bool) -> tuple[dict[str, tuple[ArraySpec, ...]], list[str]]:
    """Return the observations of each feature, and features that are not read."""
    parts: dict[str, tuple[ArraySpec, ...]] = {}
    unread: list[str] = []
    for key, described in features.items():
        dtype, shape = described["dtype"], tuple(int(size) for size in described["shape"])
        if not key.startswith("observation") or key == WALL_TIME:
            continue
        if dtype in ("image", "video"):
            if len(shape) == 3 and shape[0] == 3 != shape[2]:
                shape = (*shape[1:], 3)  # described channels first, stored channels last
            name = key.removeprefix("observation.")
            parts[key] = (foreign_array(name.removeprefix("images.") if is_served else name, shape, np.uint8),)
        elif is_served and key in (STATE, ENVIRONMENT) and (vectors := _vectors(described.get("names"), shape[0])):
            parts[key] = vectors
        elif dtype not in ("string", "object") and len(shape) == 1:
            parts[key] = (foreign_array(key.removeprefix("observation."), shape, dtype),)
        else:
            unread.append(key)
    others = {"action", "timestamp", "frame_index", "episode_index", "index", *OPTIONAL}
    unread += [key for key in features if not key.startswith("observation") and key not in others]
    return parts, unread


def _vectors(labels: Any, size: int) -> tuple[ArraySpec, ...]:
    """Return the vectors of labels such as joint_position.0, joint_position.1; empty if they are no such labels."""
    names = [str(label).rpartition(".")[0] for label in labels] if isinstance(labels, list) and len(labels) == size else []
    sizes = Counter(names)
    if not names or labels != [f"{name}.{index}" for name, count in sizes.items() for index in range(count)]:
        return ()
    return tuple(foreign_array(name, (count,), np.float32) for name, count in sizes.items())


def _actions(layout: _Layout, spec: EnvironmentSpec | None, *, are_normalized: bool) -> Actions:
    described = layout.features["action"]
    size = int(described["shape"][0])
    if len(described["shape"]) != 1:
        raise DatasetError("Actions are not a vector.", got=described["shape"])
    rows = (
        (f"the part from episode {columns['episode_index'][0]} on", columns["action"].reshape(-1, size))
        for columns in _batches(layout, ["action", "episode_index"])
        if len(columns["action"])
    )
    if np.dtype(described["dtype"]).kind in "iu" and size == 1:
        choices = 1 + max(int(part.max()) for _, part in rows) if spec is None else spec.action.size
        return Actions(choices, are_choices=True)
    least, most = within(rows)
    names = described.get("names")
    names = tuple(flat_name(str(name)) for name in names) if isinstance(names, list) and len(names) == size else ()
    return Actions(size, least=least, most=most, names=names, are_normalized=are_normalized)


def _recordings(layout: _Layout) -> Iterator[Recording]:
    tasks, episodes = _tasks(layout.root), _episodes(layout)
    for columns in _grouped(layout):
        index = int(columns["episode_index"][0])
        row = episodes.get(index, {})
        if layout.films and not row:
            raise DatasetError(
                f"meta/episodes of {layout.root} does not locate the films of episode {index}.",
                fix="copy all of meta; of a recording that was never ended, call LeRobotDataset.finalize() first",
            )
        steps = len(columns["episode_index"])
        observations: dict[str, Array] = {}
        for key, arrays in layout.parts.items():
            values = _filmed(layout, key, row, steps) if key in layout.films else columns[key]
            edges = np.cumsum([array.size for array in arrays])[:-1]
            split = [values] if len(arrays) == 1 else np.split(values.reshape(steps, -1), edges, axis=1)
            observations |= {a.name: part.reshape(steps, *a.shape) for a, part in zip(arrays, split, strict=True)}
        facts = json.loads(row.get(FACTS) or "{}")
        success = bool(columns["next.success"].any()) if "next.success" in columns else None
        task = tasks.get(int(columns["task_index"][0])) if "task_index" in columns else None
        is_choice = layout.features["action"]["dtype"] == "int64"
        terminated, truncated = _ends(columns, success)
        yield Recording(
            observations,
            columns["action"].reshape(-1) if is_choice else columns["action"].reshape(steps, -1),
            columns.get("next.reward"),
            terminated=terminated,
            truncated=truncated,
            stop_reason=facts.get("stop_reason"),
            success=facts.get("success", success),
            seed=facts.get("seed"),
            instruction=facts.get("instruction", task),
            timestamps=columns.get(WALL_TIME, columns["timestamp"].astype(np.float64)),
            name=str(index),
            remarks=(NO_TASK,) if task is None and "task_index" in columns and tasks else (),
        )


def _ends(columns: Mapping[str, Array], success: bool | None) -> tuple[bool, bool]:
    last = {key: bool(columns[key][-1]) for key in columns if key.startswith("next.") and key != "next.reward"}
    truncated = last.get("next.truncated", False)
    done = last.get("next.done", False) and not truncated and ("next.truncated" in last or bool(success))
    return last.get("next.terminated", done), truncated


def _filmed(layout: _Layout, key: str, row: Mapping[str, Any], steps: int) -> Array:
    place = {name: row[f"videos/{key}/{name}"] for name in ("chunk_index", "file_index")}
    path = file_in(layout.root, VIDEO_PATH, video_key=key, **place)
    (array,) = layout.parts[key]
    return read_film(path, float(row[f"videos/{key}/from_timestamp"]), steps, layout.rate, array.shape)


def _grouped(layout: _Layout) -> Iterator[dict[str, Array]]:
    """Yields the columns of each episode."""
    held: list[dict[str, Array]] = []
    for columns in _batches(layout, layout.columns):
        starts = np.flatnonzero(np.diff(columns["episode_index"])) + 1
        edges = [0, *starts.tolist(), len(columns["episode_index"])]
        for first, last in pairwise(edges):
            part = {key: values[first:last] for key, values in columns.items()}
            if held and held[-1]["episode_index"][-1] != part["episode_index"][0]:
                yield _joined(held)
                held = []
            held.append(part)
            if sum(len(piece["episode_index"]) for piece in held) > MOST_STEPS:
                raise DatasetError("An episode is absurdly long.", allowed=f"{MOST_STEPS} steps")
    if held:
        yield _joined(held)


def _joined(parts: list[dict[str, Array]]) -> dict[str, Array]:
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def _batches(layout: _Layout, keys: list[str]) -> Iterator[dict[str, Array]]:
    """Yields rows of all files, in order, as arrays."""
    widths = {key: math.prod(layout.features[key]["shape"]) for key in keys}
    for path in _files(layout.root, DATA_PATH):
        for batch in batches(path, widths):
            yield {key: _array(batch.column(key), layout.features[key], f"{key!r} of {path}") for key in keys}


def _files(root: Path, pattern: str) -> list[Path]:
    """Returns the files of a pattern, in order; raises DatasetError if there are none."""
    found = sorted((root / pattern).parents[1].glob("chunk-*/file-*.parquet"))
    if not found:
        fix = "copy all of the folder; of a recording that was never ended, call LeRobotDataset.finalize() first"
        raise DatasetError(f"{root} has no {pattern.partition('/chunk')[0]}.", allowed=pattern, fix=fix)
    return [file_in(root, str(path.relative_to(root)).replace("{", "{{").replace("}", "}}")) for path in found]


def _array(column: Any, described: Mapping[str, Any], name: str) -> Array:
    """Returns a column as an array (rows, ...); raises DatasetError if it contradicts its description."""
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
    """Returns a PNG's pixels; checks the size in its header first."""
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


def _episodes(layout: _Layout) -> dict[int, dict[str, Any]]:
    """Returns index -> location of an episode's videos and our facts."""
    if not layout.films and not (layout.root / EPISODES_PATH).parents[1].is_dir():
        return {}
    keys = [f"videos/{k}/{name}" for k in layout.films for name in ("chunk_index", "file_index", "from_timestamp")]
    rows: dict[int, dict[str, Any]] = {}
    for path in _files(layout.root, EPISODES_PATH):
        with opened_parquet(path) as file:
            columns = ["episode_index", *keys, *([FACTS] if FACTS in file.schema_arrow.names else [])]
        for batch in batches(path, dict.fromkeys(columns, 1)):
            rows |= {int(row["episode_index"]): row for row in batch.to_pylist()}
            _require_few(path, rows, (row.get(FACTS) for row in rows.values()))
    return rows


def _tasks(root: Path) -> dict[int, str]:
    """Returns index -> text of a task; the text is the index of a pandas frame."""
    path = file_in(root, TASKS)
    if not path.exists():
        return {}
    with opened_parquet(path) as file:
        names = file.schema_arrow.names
    words = [name for name in names if name != "task_index"]
    if not words or "task_index" not in names:
        raise DatasetError(f"{path} has no tasks.", got=names)
    tasks: dict[int, str] = {}
    for batch in batches(path, {"task_index": 1, words[0]: 1}):
        pairs = zip(batch.column("task_index").to_pylist(), batch.column(words[0]).to_pylist(), strict=True)
        tasks |= {int(index): str(text) for index, text in pairs}
        _require_few(path, tasks, tasks.values())
    return tasks


def _require_few(path: Path, rows: Sized, texts: Iterable[str | None]) -> None:
    if len(rows) > MOST_DESCRIBED or sum(len(text or "") for text in texts) > MOST_JSON:
        raise DatasetError(f"{path} is absurdly large.", allowed=f"{MOST_DESCRIBED} rows, {MOST_JSON} letters in all")


def _load_json(root: Path, name: str) -> dict[str, Any]:
    path = file_in(root, name)
    require_file(path)
    if path.stat().st_size > MOST_JSON:
        raise DatasetError(f"{path} is absurdly large.", got=f"{path.stat().st_size} bytes", allowed=f"{MOST_JSON} bytes")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found
