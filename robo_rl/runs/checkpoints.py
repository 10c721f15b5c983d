"""Checkpoints that survive a kill at any moment: a folder per step, with hashes in a manifest, renamed when complete.

    checkpoints/0000012000/  learner.safetensors  learner.json  replay.safetensors  MANIFEST.json

Arrays are stored as safetensors, everything else as JSON; nothing is pickled. A reader takes the newest folder that verifies.
Arrays are written in pieces and read by mapping the file, so that a replay memory of pictures is never twice in RAM.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from robo_rl.errors import CheckpointCorrupt, InvalidSetting, RunError, fix_of, is_passing
from robo_rl.system.durable_files import sync_folder
from robo_rl.system.plain_files import content_of
from robo_rl.types import StateDict

MANIFEST = "MANIFEST.json"
KEPT = 2  # the newest, and one to fall back on if the disk damages it
PIECE = 1 << 24  # bytes written at once

_DTYPES = {"bool": "BOOL", "float16": "F16", "float32": "F32", "float64": "F64"} | {
    f"{sign}int{bits}": f"{sign.upper() or 'I'}{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}
"""NumPy's name of a type -> its name in the format (https://huggingface.co/docs/safetensors)."""
_JSON = "$json"
_STEP = re.compile(r"[0-9]{1,18}")
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.(json|safetensors)")
_DAMAGE = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, MemoryError)
"""Errors that reading a damaged or hostile folder may raise."""


class Checkpoint(NamedTuple):
    """States of all parts of a training at one step, by name, as a checkpoint holds them."""

    step: int
    parts: dict[str, StateDict]


def save_checkpoint(folder: Path, checkpoint: Checkpoint, *, kept: int = KEPT) -> Path:
    """Write a checkpoint under `folder` and return its path.

    Under the final name nothing exists until the last rename, so that a kill leaves the previous checkpoint in place. All but
    the newest `kept` checkpoints are then deleted, none if `kept` is 0.
    """
    final = folder / f"{checkpoint.step:010d}"
    temporary = folder / f"{final.name}.tmp-{os.getpid()}"
    remove_leftovers(folder)
    try:
        temporary.mkdir(parents=True)
        manifest = {name: _write(temporary / name, pieces) for name, pieces in _files(checkpoint.parts)}
        _write(temporary / MANIFEST, [json.dumps({"step": checkpoint.step, "files": manifest}, indent=1).encode()])
        sync_folder(temporary)
    except BaseException:  # half a checkpoint must not keep a full disk full
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    if final.exists():
        shutil.rmtree(final)
    temporary.rename(final)
    sync_folder(folder)
    for old in _complete_folders(folder)[:-kept] if kept else ():
        shutil.rmtree(old)
    return final


def load_checkpoint(folder: Path, step: int | None = None) -> Checkpoint:
    """Return the newest checkpoint that verifies, or that of step `step`.

    Arrays are returned as numpy arrays that map the file. Writing to them does not change the file, and they stay valid after
    it is deleted.

    Raises:
        CheckpointCorrupt: There is no sound checkpoint.
        RunError: Disk, permissions or memory prevent reading. An older checkpoint is not used then, since it would undo
            learning.
    """
    problems = []
    for path in reversed([path for path in _complete_folders(folder) if step in (None, int(path.name))]):
        try:
            return _read(path)
        except _DAMAGE as error:
            if isinstance(error, OSError | MemoryError) and is_passing(error):
                what = f"The checkpoint {path} cannot be read now; nothing says that it is damaged."
                raise RunError(what, got=error or "no memory", fix=f"{fix_of(error)}; then the same command again") from error
            kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
            problems.append(f"{path.name}: {kind}{' '.join(str(error).split())[:200]}")
    raise CheckpointCorrupt(
        f"No checkpoint in {folder} can be loaded.",
        got="; ".join(problems) or "no checkpoint",
        allowed="a folder whose MANIFEST.json agrees with its files",
        fix="train again; a checkpoint appears every `checkpoint_every` steps",
    )


def packed(state: StateDict) -> bytes:
    """Serialise a state as the bytes of one safetensors file, with all values that are not arrays as JSON.

    The inverse of `unpacked`.
    """
    arrays: dict[str, npt.NDArray[Any]] = {}
    text = json.dumps(_split(state, "", arrays)).encode()
    return b"".join(_safetensors(arrays | {_JSON: np.frombuffer(text, np.uint8)}))


def unpacked(content: bytes) -> StateDict:
    """Return the state that `packed` serialised; its arrays are writable."""
    arrays = _arrays_of(np.frombuffer(bytearray(content), np.uint8))
    state: StateDict = _join(json.loads(arrays[_JSON].tobytes()), arrays)
    return state


def has_checkpoint(folder: Path) -> bool:
    """Return True if a checkpoint was ever completed under `folder`, even if it is damaged now."""
    return bool(_complete_folders(folder))


def checkpoint_steps(folder: Path) -> list[int]:
    """Return the steps of all completed checkpoints under `folder`, ascending, including damaged ones."""
    return [int(path.name) for path in _complete_folders(folder)]


def remove_leftovers(folder: Path) -> None:
    """Delete incomplete folders of killed processes."""
    for path in folder.glob("*.tmp-*"):
        shutil.rmtree(path, ignore_errors=True)


def _complete_folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*") if _STEP.fullmatch(path.name) and path.is_dir())


def _write(path: Path, pieces: Iterable[bytes | memoryview]) -> dict[str, Any]:
    """Write a file durably and return its entry in the manifest."""
    digest, size = hashlib.sha256(), 0
    with path.open("wb") as file:
        for piece in pieces:
            file.write(piece)
            digest.update(piece)
            size += len(piece)
        file.flush()
        os.fsync(file.fileno())
    return {"size": size, "sha256": digest.hexdigest()}


def _files(parts: Mapping[str, StateDict]) -> Iterator[tuple[str, Iterable[bytes | memoryview]]]:
    for name, state in parts.items():
        arrays: dict[str, npt.NDArray[Any]] = {}
        yield f"{name}.json", [json.dumps(_split(state, "", arrays)).encode()]
        yield f"{name}.safetensors", _safetensors(arrays)


def _safetensors(arrays: Mapping[str, npt.NDArray[Any]]) -> Iterator[bytes | memoryview]:
    """Yield the pieces of a file: length of the header (8 bytes), header in JSON, arrays end to end."""
    ordered = sorted(arrays.items(), key=lambda item: -item[1].itemsize)  # the largest elements first: all are aligned
    header, end = {}, 0
    for path, array in ordered:
        start, end = end, end + array.nbytes
        header[path] = {"dtype": _DTYPES[array.dtype.name], "shape": list(array.shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for _, array in ordered:
        content = array.reshape(-1).view(np.uint8).data
        yield from (content[start : start + PIECE] for start in range(0, len(content), PIECE))


def _mapped_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of a file by mapping it: pages are read at first use, and writing changes a copy."""
    return _arrays_of(np.memmap(path, np.uint8, mode="c").view(np.ndarray))


def _arrays_of(content: npt.NDArray[np.uint8]) -> dict[str, npt.NDArray[Any]]:
    length = int.from_bytes(content[:8].tobytes(), "little")
    if length > content.size - 8:
        raise ValueError(f"a header of {length} bytes in {content.size}")
    header, data = json.loads(content[8 : 8 + length].tobytes()), content[8 + length :]
    return {name: _array_in(data, entry) for name, entry in header.items()}


def _array_in(data: npt.NDArray[np.uint8], entry: Mapping[str, Any]) -> npt.NDArray[Any]:
    """Return the array of a header entry; raises ValueError unless it lies within the file and has the size of its shape."""
    dtype = np.dtype({code: name for name, code in _DTYPES.items()}[entry["dtype"]])
    (start, end), shape = entry["data_offsets"], entry["shape"]
    are_whole = all(type(number) is int and number >= 0 for number in (start, end, *shape))
    if not are_whole or end > data.size or end - start != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"an array {shape} of {dtype} at {start} to {end} of {data.size} bytes")
    return data[start:end].view(dtype).reshape(shape)


def _split(node: Any, path: str, arrays: dict[str, npt.NDArray[Any]]) -> Any:
    """Return `node` as JSON; arrays are moved to `arrays`, and replaced by {"$array": path}."""
    if isinstance(node, Mapping):
        if wrong := [key for key in node if not isinstance(key, str)]:
            raise InvalidSetting(f"State {path or 'root'!r} has keys that JSON cannot hold.", got=wrong, allowed="strings")
        return {key: _split(value, f"{path}/{key}", arrays) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [_split(value, f"{path}/{index}", arrays) for index, value in enumerate(node)]
    if isinstance(node, np.generic):
        return node.item()
    if hasattr(node, "__array__"):
        arrays[path] = np.ascontiguousarray(node)
        return {"$array": path, "shape": list(np.shape(node))}
    return node


def _join(node: Any, arrays: Mapping[str, npt.NDArray[Any]]) -> Any:
    if isinstance(node, dict):
        if "$array" in node:
            return arrays[node["$array"]].reshape(node["shape"])
        return {key: _join(value, arrays) for key, value in node.items()}
    return [_join(value, arrays) for value in node] if isinstance(node, list) else node


def _read(path: Path) -> Checkpoint:
    """Return the checkpoint in a folder; raises one of _DAMAGE unless the manifest agrees with every file."""
    manifest = json.loads(content_of(path / MANIFEST))
    step, files = manifest["step"], manifest["files"]
    if type(step) is not int or step != int(path.name):
        raise ValueError(f"the manifest is of step {step!r}")
    for name, entry in files.items():
        _require_same(path / name, name, entry)
    parts = {}
    for name in (name for name in files if name.endswith(".json")):
        arrays = name.replace(".json", ".safetensors")
        if arrays not in files:
            raise ValueError(f"the manifest lacks {arrays}")
        parts[name.removesuffix(".json")] = _join(json.loads((path / name).read_bytes()), _mapped_arrays(path / arrays))
    return Checkpoint(step, parts)


def _require_same(file: Path, name: str, entry: Mapping[str, Any]) -> None:
    """Raise ValueError unless a file lies directly in the folder and agrees with its entry in the manifest."""
    if not _PART.fullmatch(name) or file.is_symlink() or not file.is_file():
        raise ValueError(f"{name!r} is not a plain file of the checkpoint")
    with file.open("rb") as content:
        if hashlib.file_digest(content, "sha256").hexdigest() != entry["sha256"]:
            raise ValueError(f"{name} does not match its hash")
