"""Folders of `robo-rl reward fit`: written durably, read again, with clear errors if they are missing."""

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
"""Kind of fit -> required options of `robo-rl reward fit` besides --out."""


def fitted(folder: str | Path, part: str, *, kind: str = "", options: str = "") -> dict[str, Any]:
    """Return the state that a fit saved as `part`.

    kind: word after `robo-rl reward fit`, by default `part`. options: its required ones besides --out, for one that is none of
    NEEDED.

    Raises CheckpointCorrupt if nothing was saved or it is damaged, InvalidSetting for another kind of reward.
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
    """Raise InvalidSetting for a folder that holds anything."""
    if folder.exists() and any(folder.iterdir()):
        raise InvalidSetting(f"{folder} is not empty.", fix="name a new folder")


def save_fitted(folder: Path, part: str, state: Mapping[str, Any]) -> None:
    """Write a fitted state durably into a new folder; raise InvalidSetting for one that is not empty."""
    require_empty(folder)
    save_checkpoint(folder, Checkpoint(0, {part: dict(state)}))


def require_named(folder: str, kind: str) -> None:
    """Raise InvalidSetting if no folder is named; `kind` is the word after `robo-rl reward fit`."""
    if not folder:
        raise InvalidSetting(
            "Which fitted reward?", fix=f"--reward.settings.folder FOLDER, as `robo-rl reward fit {kind}` wrote it"
        )


def tensors_of(arrays: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Return copies of saved arrays, by name."""
    return {name: torch.as_tensor(np.array(array)) for name, array in arrays.items()}


def bytes_of(arrays: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield the contents of arrays in the order of their names, for an identity."""
    return (np.ascontiguousarray(arrays[name]).tobytes() for name in sorted(arrays))
