"""Recordings, which are the episodes of foreign formats, and the protocol of a format."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from robo_rl.errors import DatasetError
from robo_rl.spec.cost import PLAIN
from robo_rl.spec.environment import ActionMode, ArraySpec, EnvironmentSpec, Limit, ObservationSpec
from robo_rl.types import Episode

Array = npt.NDArray[Any]
SEVERAL_TASKS = "several tasks in one episode: the first is taken as its instruction"
FACTS = ("terminated", "truncated", "stop_reason", "success", "seed", "instruction")


@dataclass(frozen=True)
class Recording:
    """One episode as a foreign format has it; a field that the format does not have is None."""

    observations: Mapping[str, Array]
    """name -> (T+1, ...), or (T, ...) if the format has no observation after the last action"""
    actions: Array
    """(T, A); (T,) for discrete actions"""
    rewards: Array | None = None
    """(T,) reward of each step; None if the format has no rewards."""
    terminated: bool | None = None
    truncated: bool | None = None
    stop_reason: str | None = None
    success: bool | None = None
    seed: int | None = None
    instruction: str | None = None
    timestamps: Array | None = None
    """times of the steps [s], (T,), or (T+1,) with that of the last observation"""
    costs: Mapping[str, Array] = field(default_factory=dict)
    """name -> (T,) constraint costs"""
    name: str = ""
    """name of the episode in the file, for errors"""
    remarks: tuple[str, ...] = ()
    """contradictions in the file, and how they were resolved, in words"""

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def has_final_observation(self) -> bool:
        """True if every observation has the row after the last action."""
        return all(len(values) == len(self) + 1 for values in self.observations.values())

    @property
    def digest(self) -> str:
        """SHA-256 of the data without pictures, which some formats change. It identifies a recording in a side file."""
        arrays = {name: values for name, values in self.observations.items() if not is_pictures(values)}
        arrays |= {"/actions": self.actions}
        arrays |= {f"/{name}": value for name in ("rewards", "timestamps") if (value := getattr(self, name)) is not None}
        arrays |= {f"/costs/{name}": value for name, value in self.costs.items()}
        content = hashlib.sha256(json.dumps([getattr(self, name) for name in FACTS]).encode())
        for name in sorted(arrays):
            content.update(f"\n{name} {arrays[name].dtype} {arrays[name].shape}\n".encode())
            content.update(np.ascontiguousarray(arrays[name]).tobytes())
        return content.hexdigest()


def single_cost(episode: Episode) -> Mapping[str, Array]:
    """Return the constraint costs of an episode if there is exactly one, else none, for formats that hold only one."""
    return episode.costs if len(episode.costs) == 1 else {}


def cost_name(spec: EnvironmentSpec | None) -> str:
    """Return the name of the only cost in a file: that of the spec if it has exactly one, else a default name."""
    return spec.costs[0].name if spec is not None and len(spec.costs) == 1 else PLAIN


@dataclass(frozen=True)
class Actions:
    """Number of elements, limits, names and units of the actions of foreign data, as far as their file tells."""

    size: int
    """Number of elements A of an action; for discrete actions the number of choices."""
    low: tuple[float, ...] | None = None
    """lowest value of each element that the file declares; None if the file declares none"""
    high: tuple[float, ...] | None = None
    """highest value of each element that the file declares; None if the file declares none"""
    least: tuple[float, ...] = ()
    """lowest value of each element that occurs in the data"""
    most: tuple[float, ...] = ()
    """highest value of each element that occurs in the data"""
    names: tuple[str, ...] = ()
    """Names of the elements of an action; empty if the file has none."""
    are_normalized: bool = True
    """True if actions are in [-1, 1] by the format's convention, should the file declare no limits"""
    are_choices: bool = False
    """True for discrete actions"""
    units: tuple[str, ...] = ()
    """unit of each element; empty if the file has none"""
    mode: ActionMode = "unknown"
    """what the actions command, such as joint_position"""


@dataclass(frozen=True)
class Foreign:
    """Foreign data that were opened: what they have, and a function that reads their episodes."""

    recordings: Callable[[], Iterator[Recording]]
    """function that reads the episodes one by one, from the first; it may be called again"""
    observation: ObservationSpec
    """specs of the observations in the data"""
    actions: Actions
    name: str = "imported"
    """name of the environment, if the data have one"""
    spec: EnvironmentSpec | None = None
    """spec of the environment, if the data have one because we exported them"""
    control_period: float | None = None
    """[s] period of the control; None if it is not known"""
    max_steps: int | None = None
    """time limit of an episode in steps; None if it is not known"""
    notes: tuple[str, ...] = ()
    """remarks for the user on data that are inferred or not read"""


@dataclass(frozen=True)
class About:
    """Facts about a whole dataset, which an export may need."""

    spec: EnvironmentSpec
    name: str
    """name of the exported dataset"""
    is_judged: bool = False
    """True if the success of every episode is known"""
    card: Mapping[str, Any] = field(default_factory=dict)
    """card of the dataset"""


class Reader(Protocol):
    """Protocol of foreign data that can be imported."""

    name: str

    def read(self, source: Path) -> Foreign:
        """Open a file or folder, which may be hostile; raises DatasetError if it cannot be read."""


@runtime_checkable
class DetectedReader(Reader, Protocol):
    """Protocol of a format that can be imported, and found by itself; its entry point is in the group `robo_rl.formats`."""

    def recognizes(self, source: Path) -> bool:
        """Return whether a file or folder looks like this format. It must read little, and raise nothing."""


@runtime_checkable
class MappedReader(DetectedReader, Protocol):
    """Protocol of a format whose files do not say which of their parts are observations and actions; a mapping says this."""

    def mapped(self, path: Path) -> Self:
        """Return a reader that uses the mapping in a YAML file; raises InvalidSetting or UnknownName, with the wrong key."""


@runtime_checkable
class Format(DetectedReader, Protocol):
    """Protocol of a format that can be imported and exported; its entry point is in the group `robo_rl.formats`."""

    suffix: str
    """suffix of the file, such as ".hdf5"; empty if the format is a folder"""

    def reduced(self, episode: Episode, spec: EnvironmentSpec) -> Recording:
        """Return the part of an episode that the format keeps, which is what `read` returns after `write`.

        Only pictures may differ, as `approximated` says. Raises DatasetError if the format cannot hold such an episode.
        """

    def approximated(self, spec: EnvironmentSpec) -> Mapping[str, str]:
        """Return observation -> lossy encoding, such as "lossy video", for the pictures that are not kept exactly."""
        return {}

    def write(self, recordings: Iterable[Recording], about: About, out: Path) -> None:
        """Write a new file or folder.

        Args:
            recordings: The episodes, as `reduced` returns them.
            about: Facts about the dataset.
            out: Path of the file or folder, which does not exist yet.
        """


def require_file(path: Path) -> None:
    """Raise DatasetError unless the path is a plain file, since to read a pipe or a device might not end."""
    if not path.is_file():
        raise DatasetError(f"{path} is not a file.", got="nothing there" if not path.exists() else "no plain file")


def is_pictures(values: Array) -> bool:
    """Return whether an array (T, H, W, C) holds pictures."""
    return values.ndim == 4 and values.dtype == np.uint8


def flat_name(name: str) -> str:
    """Return a foreign name in flat snake_case: "observation.images.Top" becomes "observation_images_top"."""
    words = re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()).strip("_")
    return words if words[:1].isalpha() else f"x_{words}".rstrip("_")


def foreign_array(name: str, shape: tuple[int, ...], dtype: Any, low: Limit = -np.inf, high: Limit = np.inf) -> ArraySpec:
    """Return the spec of an observation of unknown meaning.

    Type float64 becomes float32, and bool becomes uint8. A uint8 array of three axes counts as a picture.

    Args:
        name: Name in the foreign data.
        shape: Shape of a row.
        dtype: Type in the foreign data.
        low: Lowest value of each element of a vector.
        high: Highest value of each element of a vector.
    """
    kind = np.dtype(dtype)
    kept = np.dtype(np.float32) if kind.kind == "f" else np.dtype(np.uint8) if kind.kind == "b" else kind
    if kept == np.uint8 and len(shape) == 3:
        return ArraySpec(flat_name(name), shape, "uint8", 0, 255, role="image")
    low, high = (low, high) if len(shape) <= 1 else (-np.inf, np.inf)
    if kept.kind != "f":
        low, high = float(np.iinfo(kept).min), float(np.iinfo(kept).max)
    return ArraySpec(flat_name(name), shape, kept.name, low, high, unit="unknown")


def split_columns(values: Array, arrays: Sequence[ArraySpec]) -> dict[str, Array]:
    """Split joined vectors (T, D) into the arrays of which they consist; return name -> (T, ...)."""
    edges = np.cumsum([array.size for array in arrays])[:-1]
    parts = np.split(values, edges, axis=1)
    return {array.name: part.reshape(len(part), *array.shape) for array, part in zip(arrays, parts, strict=True)}


def vector_size(actions: Array) -> int:
    """Return A of actions (T, A); raises DatasetError for another shape."""
    if len(actions.shape) != 2:
        fix = "store actions as (steps, elements)"
        raise DatasetError("Actions are not a vector for each step.", got=list(actions.shape), allowed="[T, A]", fix=fix)
    return int(actions.shape[1])


def number_of_choices(parts: Iterable[tuple[str, Array]]) -> int:
    """Return the largest discrete action plus 1, over parts of actions (T,); raises DatasetError for a negative one.

    parts: name of a part of the file, for the error, and its actions.
    """
    most = -1
    for name, actions in parts:
        if not len(actions):
            continue
        if (least := int(actions.min())) < 0:
            raise DatasetError(
                "Discrete actions count from 0.",
                got=f"{least} in {name}",
                allowed="0, 1, 2, ...",
                fix="add a constant to them in the file, or store them as float if they are numbers and no choices",
            )
        most = max(most, int(actions.max()))
    return most + 1


def within(parts: Iterable[tuple[str, Array]]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the minimum and the maximum of each element, over parts of actions (T, A).

    Args:
        parts: Name of a part of the file, for the error, and its actions.

    Raises:
        DatasetError: An action is NaN or infinite.
    """
    low: Array | None = None
    high: Array | None = None
    for name, actions in parts:
        if len(actions) == 0:
            continue
        rows = np.asarray(actions, np.float64).reshape(len(actions), -1)
        if not np.isfinite(rows).all():
            place = int(np.flatnonzero(~np.isfinite(rows).all(axis=1))[0])
            raise DatasetError("An action holds NaN or infinity.", got=f"{name}, row {place}", fix="leave that episode out")
        low = rows.min(0) if low is None else np.minimum(low, rows.min(0))
        high = rows.max(0) if high is None else np.maximum(high, rows.max(0))
    return (() if low is None else tuple(low.tolist())), (() if high is None else tuple(high.tolist()))
