"""Checkpoints that survive a kill at any moment: a folder per step, hashed by a manifest, renamed into place.

    checkpoints/0000012000/  learner.safetensors  learner.json  replay.safetensors  MANIFEST.json

Arrays lie in safetensors, everything else in JSON; nothing is pickled. A reader takes the newest folder that verifies.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load, save

from robo_rl.errors import CheckpointCorrupt, InvalidSetting
from robo_rl.types import StateDict

MANIFEST = "MANIFEST.json"
KEPT = 2  # the newest, and one to fall back on if the disk damages it


class Checkpoint(NamedTuple):
    """The state of every part at one step."""

    step: int
    parts: dict[str, StateDict]


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Writes a checkpoint under `folder` and returns its path; older ones beyond the last two are removed.

    Until the final rename nothing under the visible name exists, so that a kill leaves the previous checkpoint in place.
    """
    final = folder / f"{checkpoint.step:010d}"
    temporary = folder / f"{final.name}.tmp-{os.getpid()}"
    remove_leftovers(folder)
    temporary.mkdir(parents=True)
    manifest = {}
    for name, content in _files(checkpoint.parts).items():
        _write(temporary / name, content)
        manifest[name] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    _write(temporary / MANIFEST, json.dumps({"step": checkpoint.step, "files": manifest}, indent=1).encode())
    sync_folder(temporary)
    if final.exists():
        shutil.rmtree(final)
    temporary.rename(final)
    sync_folder(folder)
    for old in _finished(folder)[:-KEPT]:
        shutil.rmtree(old)
    return final


def load_checkpoint(folder: Path) -> Checkpoint:
    """Returns the newest checkpoint that verifies; raises CheckpointCorrupt when there is none.

    Arrays come back as numpy, whatever they were when saved.
    """
    problems = []
    for path in reversed(_finished(folder)):
        try:
            return _read(path)
        except (OSError, ValueError, KeyError) as error:
            problems.append(f"{path.name}: {error}")
    raise CheckpointCorrupt(
        f"No checkpoint in {folder} can be loaded.",
        got="; ".join(problems) or "no checkpoint",
        allowed="a folder whose MANIFEST.json agrees with its files",
        fix="train again; a checkpoint appears every `checkpoint_every` steps",
    )


def has_checkpoint(folder: Path) -> bool:
    """Returns whether a checkpoint was ever completed under `folder`, sound or not."""
    return bool(_finished(folder))


def remove_leftovers(folder: Path) -> None:
    """Removes half-written folders of processes that were killed."""
    for path in folder.glob("*.tmp-*"):
        shutil.rmtree(path, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Makes renames in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _finished(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*") if path.name.isdigit())


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _files(parts: Mapping[str, StateDict]) -> dict[str, bytes]:
    files = {}
    for name, state in parts.items():
        arrays: dict[str, npt.NDArray[Any]] = {}
        files[f"{name}.json"] = json.dumps(_split(state, "", arrays)).encode()
        files[f"{name}.safetensors"] = save(arrays)
    return files


def _split(node: Any, path: str, arrays: dict[str, npt.NDArray[Any]]) -> Any:
    """Returns `node` as JSON with every array moved to `arrays` and replaced by {"$array": its path}."""
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
    manifest = json.loads((path / MANIFEST).read_bytes())
    contents = {}
    for name, entry in manifest["files"].items():
        contents[name] = (path / name).read_bytes()
        if hashlib.sha256(contents[name]).hexdigest() != entry["sha256"]:
            raise ValueError(f"{name} does not match its hash")
    parts = {
        name.removesuffix(".json"): _join(json.loads(content), load(contents[name.replace(".json", ".safetensors")]))
        for name, content in contents.items()
        if name.endswith(".json")
    }
    return Checkpoint(manifest["step"], parts)
