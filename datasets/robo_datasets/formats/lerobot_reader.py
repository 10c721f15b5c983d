"""Read a LeRobotDataset v3.0, which may be hostile: paths are computed, not taken from it, and sizes are checked first."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sized
from pathlib import Path
from typing import Any

import numpy as np

from robo_datasets.formats.lerobot_layout import (
    CODEBASE,
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
    file_in,
    require_known_paths,
    safe_key,
)
from robo_datasets.formats.lerobot_tables import (
    NEEDED,
    OPTIONAL,
    Layout,
    counted_rows,
    episodes_of,
    table_batches,
    table_files,
)
from robo_datasets.formats.lerobot_video import read_film
from robo_datasets.formats.parquet_file import batches, opened_parquet
from robo_datasets.formats.recording import (
    SEVERAL_TASKS,
    Actions,
    Array,
    Foreign,
    Recording,
    flat_name,
    foreign_array,
    number_of_choices,
    require_file,
    within,
)
from robo_rl.errors import DatasetError
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec, ObservationSpec

MOST_JSON = 1 << 26
MOST_DESCRIBED = 1_000_000
"""largest number of episodes, and of tasks"""
NO_TASK = f"the task of an episode is not in {TASKS}: it has no instruction"
CLOSE = 0.1
"""[frame] largest rounding error of a time stamp; that of float32 after hours is smaller"""


def read(source: Path) -> Foreign:
    """Open a LeRobotDataset; raises DatasetError if it is damaged, of another version, or unsafe."""
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
    layout = Layout(source, features, float(info["fps"]), parts)
    if not 0 < layout.rate < 1e6:
        raise DatasetError(f"{INFO} has an impossible frame rate.", got=info["fps"])
    arrays = [array for found in parts.values() for array in found]
    notes = [f"not read: {', '.join(unread)}"] if unread else []
    notes += [f"pictures come from lossy video: {', '.join(layout.films)}"] if layout.films else []
    notes += _contradictions(layout, info)
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


def _contradictions(layout: Layout, info: Mapping[str, Any]) -> list[str]:
    """Return remarks on missing or contradictory metadata."""
    notes = []
    if "task_index" in layout.features and not file_in(layout.root, TASKS).exists():
        notes.append(f"{TASKS} is missing: the episodes have no instructions")
    counts = counted_rows(layout)
    for name, found in (("frames", counts.total()), ("episodes", len(counts))):
        if info.get(f"total_{name}") not in (None, found):
            notes.append(f"{INFO} says {info[f'total_{name}']} {name}, the data has {found}: all of the data is taken")
    listed = _lengths(layout)
    described = Counter(index for index, _ in listed)
    if repeated := sum(count > 1 for count in described.values()):
        notes.append(f"meta/episodes lists {repeated} episodes more than once: the last entry is taken")
    if absent := len({*described} - {*counts}):
        notes.append(f"meta/episodes lists {absent} episodes of which the data has no row")
    if other := sum(length not in (None, counts[index]) for index, length in dict(listed).items() if index in counts):
        notes.append(f"meta/episodes says another length of {other} episodes than the data has: the data is taken")
    return notes


def _lengths(layout: Layout) -> list[tuple[int, int | None]]:
    """Return index and length of each episode that meta/episodes lists; an empty list if meta/episodes is missing."""
    if not (layout.root / EPISODES_PATH).parents[1].is_dir():
        return []
    found: list[tuple[int, int | None]] = []
    for path in table_files(layout.root, EPISODES_PATH):
        with opened_parquet(path) as file:
            columns = [name for name in ("episode_index", "length") if name in file.schema_arrow.names]
        for batch in batches(path, dict.fromkeys(columns, 1)):
            found += [(int(row["episode_index"]), row.get("length")) for row in batch.to_pylist()]
            _require_few(path, found, ())
    return found


def _parts_of(
    spec: EnvironmentSpec, layout: Mapping[str, list[str]], features: Container[str]
) -> dict[str, tuple[ArraySpec, ...]]:
    return {key: tuple(spec.observation[name] for name in names) for key, names in layout.items() if key in features}


def _parts(features: Mapping[str, Mapping[str, Any]], is_served: bool) -> tuple[dict[str, tuple[ArraySpec, ...]], list[str]]:
    """Return key of a feature -> specs of its observations, and the keys of the features that are not read.

    is_served: True for a recording of a served robot, whose joined vectors can be split by their labels.
    """
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
    """Return the specs of the vectors in a joined one, from labels such as joint_position.0, joint_position.1.

    The result is empty if the labels have another form. size: number of elements of the joined vector.
    """
    names = [str(label).rpartition(".")[0] for label in labels] if isinstance(labels, list) and len(labels) == size else []
    sizes = Counter(names)
    if not names or labels != [f"{name}.{index}" for name, count in sizes.items() for index in range(count)]:
        return ()
    return tuple(foreign_array(name, (count,), np.float32) for name, count in sizes.items())


def _actions(layout: Layout, spec: EnvironmentSpec | None, *, are_normalized: bool) -> Actions:
    described = layout.features["action"]
    size = int(described["shape"][0])
    if len(described["shape"]) != 1:
        raise DatasetError("Actions are not a vector.", got=described["shape"])
    rows = (
        (f"the part from episode {columns['episode_index'][0]} on", columns["action"].reshape(-1, size))
        for columns in table_batches(layout, ["action", "episode_index"])
        if len(columns["action"])
    )
    if layout.are_choices:
        return Actions(number_of_choices(rows) if spec is None else spec.action.size, are_choices=True)
    least, most = within(rows)
    names = described.get("names")
    names = tuple(flat_name(str(name)) for name in names) if isinstance(names, list) and len(names) == size else ()
    return Actions(size, least=least, most=most, names=names, are_normalized=are_normalized)


def _recordings(layout: Layout) -> Iterator[Recording]:
    tasks, episodes = _tasks(layout.root), _episodes(layout)
    for columns, remarks in episodes_of(layout):
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
            values = _filmed(layout, key, row, columns) if key in layout.films else columns[key]
            edges = np.cumsum([array.size for array in arrays])[:-1]
            split = [values] if len(arrays) == 1 else np.split(values.reshape(steps, -1), edges, axis=1)
            observations |= {a.name: part.reshape(steps, *a.shape) for a, part in zip(arrays, split, strict=True)}
        facts = json.loads(row.get(FACTS) or "{}")
        success = bool(columns["next.success"].any()) if "next.success" in columns else None
        task, found = _task(columns, tasks)
        terminated, truncated = _ends(columns, success)
        yield Recording(
            observations,
            columns["action"].reshape(-1) if layout.are_choices else columns["action"].reshape(steps, -1),
            columns.get("next.reward"),
            terminated=terminated,
            truncated=truncated,
            stop_reason=facts.get("stop_reason"),
            success=facts.get("success", success),
            seed=facts.get("seed"),
            instruction=facts.get("instruction", task),
            timestamps=columns.get(WALL_TIME, columns["timestamp"].astype(np.float64)),
            name=str(index),
            remarks=(*remarks, *found),
        )


def _task(columns: Mapping[str, Array], tasks: Mapping[int, str]) -> tuple[str | None, list[str]]:
    """Return the task of an episode as its instruction, None if it is not known; and remarks."""
    if "task_index" not in columns:
        return None, []
    indices = columns["task_index"]
    task = tasks.get(int(indices[0]))
    remarks = [NO_TASK] if task is None and tasks else []
    return task, remarks + ([SEVERAL_TASKS] if (indices != indices[0]).any() else [])


def _ends(columns: Mapping[str, Array], success: bool | None) -> tuple[bool, bool]:
    last = {key: bool(columns[key][-1]) for key in columns if key.startswith("next.") and key != "next.reward"}
    truncated = last.get("next.truncated", False)
    done = last.get("next.done", False) and not truncated and ("next.truncated" in last or bool(success))
    return last.get("next.terminated", done), truncated


def _filmed(layout: Layout, key: str, row: Mapping[str, Any], columns: Mapping[str, Array]) -> Array:
    """Return the pictures (T, H, W, 3) of a video at the time stamps of an episode's rows, which need not be consecutive."""
    place = {name: row[f"videos/{key}/{name}"] for name in ("chunk_index", "file_index")}
    path = file_in(layout.root, VIDEO_PATH, video_key=key, **place)
    (array,) = layout.parts[key]
    times = columns["timestamp"].astype(np.float64)
    frames = np.rint(times * layout.rate)
    wrong = ~(np.abs(times * layout.rate - frames) <= CLOSE) | (frames < 0) | (np.diff(frames, prepend=-1.0) <= 0)
    if wrong.any():
        raise DatasetError(
            f"The time stamps of episode {columns['episode_index'][0]} are not those of frames of its film.",
            got=f"{times[wrong][0]:.6g} s in row {np.flatnonzero(wrong)[0]}",
            allowed=f"rising multiples of 1/{layout.rate:g} s, counted from the beginning of the episode",
            fix="write the dataset with lerobot's own writer",
        )
    return read_film(path, float(row[f"videos/{key}/from_timestamp"]) + times, layout.rate, array.shape)


def _episodes(layout: Layout) -> dict[int, dict[str, Any]]:
    """Return index of an episode -> its row of meta/episodes: where its videos are, and the facts that our export adds."""
    if not layout.films and not (layout.root / EPISODES_PATH).parents[1].is_dir():
        return {}
    keys = [f"videos/{k}/{name}" for k in layout.films for name in ("chunk_index", "file_index", "from_timestamp")]
    rows: dict[int, dict[str, Any]] = {}
    for path in table_files(layout.root, EPISODES_PATH):
        with opened_parquet(path) as file:
            columns = ["episode_index", *keys, *([FACTS] if FACTS in file.schema_arrow.names else [])]
        for batch in batches(path, dict.fromkeys(columns, 1)):
            rows |= {int(row["episode_index"]): row for row in batch.to_pylist()}
            _require_few(path, rows, (row.get(FACTS) for row in rows.values()))
    return rows


def _tasks(root: Path) -> dict[int, str]:
    """Return index of a task -> its text; in the file the texts are the index of a pandas frame."""
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
