"""Zarr replay buffers of diffusion policy (Chi et al. 2023) and UMI (Chi et al. 2024), as a folder or a .zarr.zip.

    data/action (N, A), data/<observation> (N, ...)     meta/episode_ends (E,)  row after the last row of each episode

All episodes are joined in each array. There is no observation after the last action. UMI's files have no actions; its policies
learn the next pose and width of each gripper.
"""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from typing_extensions import override

from robo_datasets.formats.recording import (
    About,
    Actions,
    Array,
    Foreign,
    Format,
    Recording,
    flat_name,
    foreign_array,
    number_of_choices,
    vector_size,
    within,
)
from robo_rl.errors import DatasetError, optional
from robo_rl.spec.environment import EnvironmentSpec, ObservationSpec
from robo_rl.types import Episode

ACTION, REWARD, ENDS, SPEC = "data/action", "data/reward", "meta/episode_ends", "robo_rl"
POSE = ("eef_pos", "eef_rot_axis_angle", "gripper_width")
"""names of the arrays of each gripper in UMI's files, robot0_eef_pos and so on, whose next row is the action"""
CODECS = {"blosc", "zlib", "gzip", "zstd", "lz4", "bz2", "lzma", "shuffle", "delta", "imagecodecs_jpegxl"}
"""compressors and filters that are allowed because they only unpack; numcodecs also has one that unpickles"""
ROWS = 256
"""number of rows of a chunk that is written"""
MOST_UNPACKED = 2_000
"""largest ratio of the bytes of all arrays to the bytes of the store"""
MOST_METADATA = 1 << 20
"""[byte] largest file of metadata"""
NEXT_POSE = "no data/action: the next pose and width of each gripper are the actions, as UMI's policies learn them"
ROUNDED = "{names}: pictures of floating point become uint8"


@dataclass(frozen=True)
class Stored:
    """Shape and type of an array of a store, from the metadata; its content is not read yet."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class ZarrBuffer(Format):
    """Format of a folder that diffusion policy's `ReplayBuffer.create_from_path` opens."""

    name = "zarr"
    suffix = ""

    @override
    def recognizes(self, source: Path) -> bool:
        if source.is_dir():
            return (source / ENDS / ".zarray").is_file()
        try:
            with zipfile.ZipFile(source) as packed:
                return f"{ENDS}/.zarray" in packed.namelist()
        except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError):
            return False

    @override
    def reduced(self, episode: Episode, spec: EnvironmentSpec) -> Recording:
        """Return what a replay buffer keeps: the observation before each action, the actions and the rewards."""
        seen = {name: episode.observations[name][:-1] for name in spec.observation}
        return Recording(seen, episode.actions, episode.rewards)

    @override
    def write(self, recordings: Iterable[Recording], about: About, out: Path) -> None:
        with _zarr() as zarr:
            root = zarr.open_group(str(out), mode="w", zarr_format=2)
            root.attrs[SPEC] = about.spec.to_json()
            data, ends, rows = root.create_group("data"), list[int](), 0
            for recording in recordings:
                parts = {f"observation_{name}": values for name, values in recording.observations.items()}
                for name, values in (parts | {"action": recording.actions, "reward": np.asarray(recording.rewards)}).items():
                    _append(data, name, values, rows)
                rows += len(recording)
                ends.append(rows)
            meta = root.create_group("meta")
            meta.create_array("episode_ends", data=np.asarray(ends, np.int64))

    @override
    def read(self, source: Path) -> Foreign:
        arrays, attributes = _described(source)
        if ENDS not in arrays:
            raise DatasetError(f"{source} is no replay buffer.", got=f"no {ENDS}", allowed=f"data/... and {ENDS}")
        own = EnvironmentSpec.from_json(attributes[SPEC]) if SPEC in attributes else None
        names = _names(arrays, is_own=own is not None)
        with _opened(source) as root:
            edges = _edges(root, arrays, names)
            actions = _actions(root, arrays)
            as_pictures = {
                name: _picture_scale(root[path])
                for name, path in names.items()
                if _is_float_picture(arrays[path]) and own is None
            }
            observation = own.observation if own is not None else _observation(arrays, names, as_pictures)
            is_choice = actions.ndim == 1 and actions.dtype.kind in "iu"
            parts = [("data/action", actions)]
            size = number_of_choices(parts) if is_choice else vector_size(actions)
            found = Actions(size, are_choices=True) if is_choice else Actions(size, None, None, *within(parts))
            found = found if own is not None or is_choice else _not_normalized(found, arrays)
        notes = [NEXT_POSE] if ACTION not in arrays else []
        notes += [ROUNDED.format(names=", ".join(as_pictures))] if as_pictures else []
        return Foreign(
            lambda: _recordings(source, arrays, names, edges, as_pictures),
            observation,
            found,
            name=source.name.removesuffix(".zip").removesuffix(".zarr"),
            spec=own,
            notes=tuple(notes),
        )


FORMAT = ZarrBuffer()


@contextmanager
def _zarr() -> Iterator[Any]:
    with optional("The format zarr", "zarr", "zarr"):
        import zarr
    with zarr.config.set({"async.concurrency": 1, "threading.max_workers": 1}):
        yield zarr


@contextmanager
def _opened(source: Path) -> Iterator[Any]:
    """Open a store, which `_described` has checked, and yield its root group; raises DatasetError if it is damaged."""
    with _zarr() as zarr:
        store = zarr.storage.LocalStore(source, read_only=True) if source.is_dir() else zarr.storage.ZipStore(source, mode="r")
        try:
            yield zarr.open_group(store, mode="r", zarr_format=2)
        except (RuntimeError, ValueError, LookupError, TypeError, OSError, zipfile.BadZipFile) as error:
            said = " ".join(str(error).split())[:200]
            raise DatasetError(
                f"{source} cannot be read.", got=f"{type(error).__name__}: {said}", fix="make it again"
            ) from error
        finally:
            store.close()


def _append(data: Any, name: str, values: Array, rows: int) -> None:
    if name not in data:
        chunks = (ROWS if values[0].nbytes < 1 << 14 else 1, *values.shape[1:])
        data.create_array(name, shape=(0, *values.shape[1:]), chunks=chunks, dtype=values.dtype)
    array = data[name]
    array.resize((rows + len(values), *values.shape[1:]))
    array[rows:] = values


def _described(source: Path) -> tuple[dict[str, Stored], dict[str, Any]]:
    """Return path -> array of a store, and its attributes.

    Raises DatasetError if the metadata are damaged, a codec could run code, or more data is declared than the store can hold.
    """
    texts, stored = _metadata(source)
    found = {path.removesuffix("/.zarray"): _array_of(path, text) for path, text in texts.items() if path.endswith("/.zarray")}
    declared = sum(math.prod(each.shape) * each.dtype.itemsize for each in found.values())
    if declared > MOST_UNPACKED * stored:
        allowed = f"at most {MOST_UNPACKED} times the size of the store"
        raise DatasetError(f"{source} declares more than it can hold.", got=f"{declared} bytes in {stored}", allowed=allowed)
    attributes = _plain(texts.get(".zattrs", b"{}"), ".zattrs")
    return found, attributes


def _metadata(source: Path) -> tuple[dict[str, bytes], int]:
    """Return path -> content of a store's JSON files of metadata, and the number of bytes of all its files."""
    if source.is_dir():
        paths = [*source.rglob("*")]
        if links := [path for path in paths if path.is_symlink()]:
            raise DatasetError(f"{links[0]} is a link.", allowed="files of the store itself", fix="do not open this store")
        files = [path for path in paths if path.is_file()]
        known = {path.relative_to(source).as_posix(): path for path in files if path.name in (".zarray", ".zattrs")}
        return {name: _short(path.read_bytes(), name) for name, path in known.items()}, sum(p.stat().st_size for p in files)
    try:
        with zipfile.ZipFile(source) as packed:
            entries = packed.infolist()
            if sum(each.file_size for each in entries) > MOST_UNPACKED * source.stat().st_size:
                raise DatasetError(f"{source} unpacks to more than it can hold.", fix="do not open this store")
            names = [each.filename for each in entries if PurePosixPath(each.filename).name in (".zarray", ".zattrs")]
            return {name: _short(packed.read(name), name) for name in names}, source.stat().st_size
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError, RuntimeError) as error:
        raise DatasetError(f"{source} is no zip file that can be read.", got=str(error)[:200]) from error


def _short(content: bytes, name: str) -> bytes:
    if len(content) > MOST_METADATA:
        raise DatasetError(f"{name} is too large.", got=len(content), allowed=f"{MOST_METADATA} bytes")
    return content


def _plain(content: bytes, name: str) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise DatasetError(f"{name} is damaged.", got=content[:80], allowed="a JSON object")
    return found


def _array_of(path: str, content: bytes) -> Stored:
    """Return shape and type of an array from its metadata.

    Raises DatasetError unless it has plain numbers, and codecs of CODECS alone.
    """
    described = _plain(content, path)
    codecs = [described.get("compressor"), *(described.get("filters") or [])]
    names = {str(each.get("id")) for each in codecs if isinstance(each, dict)}
    if names - CODECS:
        raise DatasetError(f"{path} has a codec that is not taken.", got=names - CODECS, allowed=sorted(CODECS))
    try:
        stored = Stored(tuple(int(size) for size in described["shape"]), np.dtype(described["dtype"]))
    except (LookupError, TypeError, ValueError) as error:
        raise DatasetError(f"{path} is damaged.", got=error, allowed="shape and a plain type") from None
    if stored.dtype.kind not in "biuf" or min(stored.shape, default=0) < 0:
        raise DatasetError(f"{path} does not hold plain numbers.", got=stored.dtype, allowed="bool, integers, floating point")
    if "imagecodecs_jpegxl" in names:
        with optional("Pictures in JPEG XL", "imagecodecs", "zarr"):
            from imagecodecs.numcodecs import register_codecs
        register_codecs(("imagecodecs_jpegxl",), verbose=False)
    return stored


def _names(arrays: Mapping[str, Stored], *, is_own: bool) -> dict[str, str]:
    """Return name of an observation -> path of its array; is_own: True for a store that we exported."""
    paths = [path for path in arrays if path.startswith("data/") and path not in (ACTION, REWARD)]
    if is_own:
        return {path.removeprefix("data/observation_"): path for path in paths}
    named = {flat_name(path.removeprefix("data/")): path for path in sorted(paths)}
    if len(named) < len(paths):
        raise DatasetError("Two observations have the same flat name.", got=sorted(paths))
    return named


def _edges(root: Any, arrays: Mapping[str, Stored], names: Mapping[str, str]) -> list[int]:
    """Return the first row of each episode, and the row after the last episode; raises DatasetError if they do not fit."""
    rows = {len_of(arrays[path]) for path in (*names.values(), *(each for each in (ACTION, REWARD) if each in arrays))}
    ends = np.asarray(root[ENDS][:])
    is_rising = ends.ndim == 1 and ends.dtype.kind in "iu" and len(ends) > 0 and bool((np.diff(ends, prepend=0) > 0).all())
    if len(rows) != 1 or not is_rising or int(ends[-1]) > min(rows):
        got = f"ends {ends[:8].tolist()}, arrays of {sorted(rows)} rows"
        raise DatasetError("The episodes do not fit the arrays.", got=got, allowed="rising ends, arrays of one length")
    return [0, *(int(end) for end in ends)]


def len_of(stored: Stored) -> int:
    """Return the number of rows of an array, 0 for a single number."""
    return stored.shape[0] if stored.shape else 0


def _actions(root: Any, arrays: Mapping[str, Stored], start: int = 0, stop: int | None = None) -> Array:
    """Return the actions (T, A), or discrete ones (T,), of the rows from `start` to before `stop`.

    Raises DatasetError if the store has neither actions nor poses of grippers.
    """
    if ACTION in arrays:
        return np.asarray(root[ACTION][start:stop])
    grippers = sorted({path.split("_")[0] for path in arrays if path.startswith("data/robot") and path.endswith(POSE[0])})
    paths = [f"{gripper}_{part}" for gripper in grippers for part in POSE]
    if not paths or any(path not in arrays for path in paths):
        fix = "an action of each step, or UMI's robot0_eef_pos, robot0_eef_rot_axis_angle and robot0_gripper_width"
        raise DatasetError("The store has no actions.", got=sorted(arrays), allowed=fix)
    poses = np.concatenate([np.asarray(root[path][start:stop], np.float32) for path in paths], axis=1)
    return np.concatenate([poses[1:], poses[-1:]])


def _not_normalized(found: Actions, arrays: Mapping[str, Stored]) -> Actions:
    """Return the actions marked as not in [-1, 1]. The least and largest values that occur are then taken as their limits."""
    return Actions(found.size, None, None, found.least, found.most, are_normalized=False)


def _is_float_picture(stored: Stored) -> bool:
    return stored.dtype.kind == "f" and len(stored.shape) == 4 and stored.shape[-1] in (1, 3) and min(stored.shape[1:3]) >= 16


def _picture_scale(array: Any) -> float:
    """Return the factor that scales pictures of type float to 0 to 255: 255 for pictures in [0, 1], else 1."""
    return 1.0 if float(np.max(array[:8], initial=0.0)) > 1.0 else 255.0


def _observation(arrays: Mapping[str, Stored], names: Mapping[str, str], pictures: Mapping[str, float]) -> ObservationSpec:
    kinds = {name: np.dtype(np.uint8) if name in pictures else arrays[path].dtype for name, path in names.items()}
    return ObservationSpec(tuple(foreign_array(name, arrays[path].shape[1:], kinds[name]) for name, path in names.items()))


def _recordings(
    source: Path, arrays: Mapping[str, Stored], names: Mapping[str, str], edges: list[int], pictures: Mapping[str, float]
) -> Iterator[Recording]:
    with _opened(source) as root:
        for number, (start, stop) in enumerate(pairwise(edges)):
            seen = {name: np.asarray(root[path][start:stop]) for name, path in names.items()}
            for name, scale in pictures.items():
                seen[name] = np.clip(np.round(seen[name] * scale), 0, 255).astype(np.uint8)
            rewards = np.asarray(root[REWARD][start:stop]).reshape(-1) if REWARD in arrays else None
            yield Recording(seen, _actions(root, arrays, start, stop), rewards, name=f"episode {number}")
