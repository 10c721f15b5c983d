"""Folders that `robo-rl reward fit` writes: durable writing, and reading with clear errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from robo_rl.errors import CheckpointCorrupt, InvalidSetting
from robo_rl.runs.checkpoints import Checkpoint, has_checkpoint, load_checkpoint, save_checkpoint

NEEDED = {
    "classifier": "--dataset DATASET",
    "embedded": "--environment ENV",
    "preference": "--dataset DATASET --preferences NAME",
}
"""Kind of fit -> options of `robo-rl reward fit` that are required besides --out."""


def fitted(folder: str | Path, part: str, *, kind: str = "", options: str = "") -> dict[str, Any]:
    """Return the state that a fit saved as `part` of its folder.

    Args:
        folder: Folder of the fit.
        part: Name of the state.
        kind: Word after `robo-rl reward fit`, for messages; "" for `part`.
        options: Required options of that command besides --out, if `kind` is not in NEEDED.

    Raises:
        CheckpointCorrupt: Nothing was saved, or it is damaged.
        InvalidSetting: The folder holds another kind of reward.
    """
    path, kind = Path(folder), kind or part
    needed = options or NEEDED.get(kind, "")
    again = f"name the folder of one that was fitted, or make one: robo-rl reward fit {kind} {needed} --out NEW"
    if not has_checkpoint(path):
        got = "a folder without anything fitted" if path.is_dir() else f"no such folder in {Path.cwd()}"
        raise CheckpointCorrupt(f"There is no fitted reward in {folder}.", got=got, fix=again)
    try:
        saved = load_checkpoint(path).parts
    except CheckpointCorrupt as error:
        found = str(error).partition("got:")[2].splitlines()[0].strip()
        raise CheckpointCorrupt(f"The fitted reward in {folder} is damaged.", got=found, fix=again) from None
    if part not in saved:
        raise InvalidSetting(f"{folder} holds no reward of the kind {kind}.", got=", ".join(saved), fix=again)
    state: dict[str, Any] = saved[part]
    return state


def require_empty(folder: Path) -> None:
    """Raise InvalidSetting if the folder exists and is not empty."""
    if folder.exists() and any(folder.iterdir()):
        raise InvalidSetting(f"{folder} is not empty.", fix="name a new folder")


def save_fitted(folder: Path, part: str, state: Mapping[str, Any]) -> None:
    """Write a fitted state durably into a folder; raises InvalidSetting if the folder is not empty."""
    require_empty(folder)
    save_checkpoint(folder, Checkpoint(0, {part: dict(state)}))


def require_named(folder: str, kind: str) -> None:
    """Raise InvalidSetting if `folder` is empty text.

    kind: word after `robo-rl reward fit`, for the message.
    """
    if not folder:
        raise InvalidSetting(
            "Which fitted reward?", fix=f"--reward.settings.folder FOLDER, as `robo-rl reward fit {kind}` wrote it"
        )


def tensors_of(arrays: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Return name -> tensor with a copy of each saved array."""
    return {name: torch.as_tensor(np.array(array)) for name, array in arrays.items()}


def bytes_of(arrays: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield the bytes of the arrays in the order of their names, for a hash."""
    return (np.ascontiguousarray(arrays[name]).tobytes() for name in sorted(arrays))
