"""Layout of a LeRobotDataset: features of the observations, and paths of the files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from robo_rl.errors import DatasetError, optional
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec

CODEBASE = "v3.0"
INFO, STATS, TASKS, OURS = "meta/info.json", "meta/stats.json", "meta/tasks.parquet", "meta/robo_rl.json"
DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
EPISODES_PATH = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO_PATH = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
FILES_A_CHUNK, DATA_MEGABYTES, VIDEO_MEGABYTES = 1000, 100, 200
STATE, ENVIRONMENT, WALL_TIME = "observation.state", "observation.environment_state", "observation.wall_time"
SERVED = "robo_rl"
"""robot type of recordings that LeRobot made of a served robot, through the plugin lerobot_robot_robo_rl"""
FACTS = "robo_rl/facts"
"""column of meta/episodes with success, seed, instruction and stop reason as JSON"""
UNTIMED_RATE = 10
"""[1/s] frame rate of an environment without a control period"""
SMALLEST_FILM = 64
"""[pixel] smallest height and width of a video, since encoders of AV1 refuse smaller ones"""
_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}")


@dataclass(frozen=True)
class Feature:
    """One feature of a LeRobotDataset: a column of numbers, or a camera."""

    kind: Literal["video", "image", "numbers"]
    dtype: str
    shape: tuple[int, ...]
    """shape of one row"""
    names: tuple[str, ...]
    """names of the observations that are joined in this feature, in order"""
    labels: tuple[str, ...] | None = None
    """names of the elements of a row, or of the axes of a picture"""

    def described(self) -> dict[str, Any]:
        """Return the feature's entry in info.json."""
        dtype = self.dtype if self.kind == "numbers" else self.kind
        return {"dtype": dtype, "shape": list(self.shape), "names": None if self.labels is None else list(self.labels)}


def plan(spec: EnvironmentSpec, *, as_videos: bool) -> dict[str, Feature]:
    """Return key -> feature for the observations that LeRobot can hold. Pictures other than RGB are left out.

    as_videos: True to store pictures as video, if they are large enough.
    """
    features: dict[str, Feature] = {}
    for key, roles in ((STATE, ("proprioception",)), (ENVIRONMENT, ("object", "goal"))):
        arrays = [array for array in spec.observation.values() if array.role in roles and array.dtype == "float32"]
        if arrays:
            features[key] = _joined(arrays)
    for name, array in spec.observation.items():
        if array.role == "image":
            if array.dtype == "uint8" and len(array.shape) == 3 and array.shape[2] == 3:
                height, width, _ = array.shape
                is_film = as_videos and min(height, width) >= SMALLEST_FILM and height % 2 == width % 2 == 0
                kind: Literal["video", "image"] = "video" if is_film else "image"
                features[picture_key(name)] = Feature(kind, "uint8", array.shape, (name,), ("height", "width", "channels"))
        elif array.role == "privileged":
            features[f"privileged.{name}"] = _joined([array])  # not under "observation.", which policies read
        elif array.dtype != "float32":
            features[f"observation.{name}"] = _joined([array])
    return features


def picture_key(name: str) -> str:
    """Return the key of the feature of a camera."""
    return f"observation.images.{name}"


def frame_rate(spec: EnvironmentSpec) -> float | int:
    """Return the frame rate [1/s] of an environment, as an int if it is a whole number."""
    rate = 1.0 / spec.action.control_period if spec.action.control_period else UNTIMED_RATE
    return round(rate) if abs(rate - round(rate)) < 1e-6 else rate


def safe_key(key: object) -> str:
    """Check and return the key of a feature, which becomes the name of a folder; raises DatasetError if it is unsafe."""
    if not isinstance(key, str) or not _KEY.fullmatch(key) or ".." in key:
        raise DatasetError(
            "A feature has an impossible name.", got=repr(key), allowed=_KEY.pattern, fix="do not open this folder"
        )
    return key


def file_in(root: Path, pattern: str, **parts: Any) -> Path:
    """Return the path of a file of the dataset; raises DatasetError if it leads out of the folder `root`.

    Args:
        root: Folder of the dataset.
        pattern: Path in the folder, with fields such as {chunk_index}.
        **parts: Values of the fields.
    """
    numbers = {name: value if name == "video_key" else int(value) for name, value in parts.items()}
    path = root / pattern.format(**numbers)
    if not path.resolve().is_relative_to(root.resolve()):
        raise DatasetError(f"{path} leads out of the folder.", got=path.resolve(), fix="copy the folder with cp -rL first")
    return path


def arrow() -> tuple[ModuleType, ModuleType]:
    """Import and return pyarrow and pyarrow.parquet; raises MissingExtra if they are not installed."""
    with optional("The format lerobot", "pyarrow", "formats"):
        import pyarrow
        import pyarrow.parquet
    return pyarrow, pyarrow.parquet


def require_known_paths(info: Mapping[str, Any]) -> None:
    """Raise DatasetError if info.json has other path patterns than LeRobot writes, since such paths are never followed."""
    for name, pattern in (("data_path", DATA_PATH), ("video_path", VIDEO_PATH)):
        if info.get(name) not in (None, pattern):
            raise DatasetError(f"{INFO} has an unknown {name}.", got=info[name], allowed=pattern, fix="do not open this folder")


def _joined(arrays: list[ArraySpec]) -> Feature:
    labels = tuple(f"{array.name}.{index}" for array in arrays for index in range(array.size))
    return Feature("numbers", arrays[0].dtype, (len(labels),), tuple(array.name for array in arrays), labels)
