"""Push runs and datasets to a place, and pull them; they arrive complete and unchanged, or not at all."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from robo_app.sharing.cards import card_of
from robo_app.sharing.manifest import NAME, Manifest
from robo_app.sharing.payload import kind_of, payload_of, require_harmless
from robo_app.sharing.places import README, place_of
from robo_rl.errors import InvalidSetting


def push(folder: Path, url: str, *, resumable: bool = False) -> Manifest:
    """Push a run or a dataset to a place, with a README.md made from its report.

    Args:
        folder: Folder of the run or dataset.
        url: Address of the place.
        resumable: True to include the replay memory of a run.

    Returns:
        Manifest of the files that were sent.

    Raises:
        InvalidSetting: The place is taken, or a file must not be sent.
        RunError: The place does not work.
    """
    place = place_of(url)
    if place.exists():
        raise InvalidSetting(f"{url} is taken; nothing is written over.", got=url, allowed="a new address")
    with payload_of(folder, resumable=resumable) as payload:
        manifest = Manifest.of(payload)
        card = card_of(folder, manifest).replace("ADDRESS", url)
        place.write(payload.files, {README: card.encode(), NAME: manifest.to_bytes()}, payload.kind)
    return manifest


def pull(url: str, out: Path) -> Manifest:
    """Fetch a run or a dataset into a new folder; returns its manifest.

    Raises InvalidSetting if the folder exists, RunError if a file is missing, was changed, or could run code.
    """
    if out.exists():
        raise InvalidSetting("The folder exists.", got=out, allowed="a folder to make", fix="name another one with --out")
    place = place_of(url)
    manifest = Manifest.from_bytes(place.text(NAME), url)
    draft = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        for name in manifest.files:
            target = draft / name
            target.parent.mkdir(parents=True, exist_ok=True)
            place.fetch(name, target)
            manifest.require(name, target)
            require_harmless(name, target)
        kind_of(draft)
        draft.rename(out)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return manifest
