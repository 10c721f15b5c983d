"""Read what `robo-rl reward fit` left in a folder, and say what to do where it is not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from robo_rl.checkpoints import has_checkpoint, load_checkpoint
from robo_rl.errors import CheckpointCorrupt, InvalidSetting

NEEDED = {
    "classifier": "--dataset DATASET",
    "embedded": "--environment ENV",
    "preference": "--dataset DATASET --preferences NAME",
}
"""Kind of fit -> the options, beside --out, that `robo-rl reward fit` cannot do without."""


def fitted(folder: str | Path, part: str, *, kind: str = "") -> dict[str, Any]:
    """Returns what a fit saved as `part`; `kind` is the word after `robo-rl reward fit`, that of the part unless it is named.

    Raises CheckpointCorrupt where nothing was saved or it is damaged, InvalidSetting where another kind of reward was.
    """
    path, kind = Path(folder), kind or part
    again = f"name the folder of one that was fitted, or make one: robo-rl reward fit {kind} {NEEDED.get(kind, '')} --out NEW"
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
