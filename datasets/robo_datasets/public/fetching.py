"""Fetch a public set from its source or from a folder, check every file, and convert the set."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from robo_datasets.atomic_write import atomic_write, require_free
from robo_datasets.conversion import import_dataset
from robo_datasets.dataset import Dataset
from robo_datasets.figures import figures_of
from robo_datasets.formats.adjustments import NONE, Adjustments
from robo_datasets.formats.recording import Reader
from robo_datasets.public import door_demonstrations, driving_tub, expert_episodes
from robo_datasets.public.demonstrations import digest_of, read_demonstrations
from robo_datasets.public.download import Check, download, require_content, sha256_of
from robo_datasets.public.sets import PublicFile, PublicSet
from robo_rl.environments.make import make_environment
from robo_rl.errors import DatasetError
from robo_rl.spec.environment import specification
from robo_rl.system.user_cache import user_cache

FOLDER = "folder"
Progress = Callable[[int, int], None]
"""function that gets the number of a file, and the number of its bytes that have arrived"""


def fetch(
    name: str, chosen: PublicSet, out: Path, folder: Path | None, progress: Progress = lambda file, done: None
) -> list[str]:
    """Fetch a public set and convert it, into a dataset or a folder of its files.

    Files that have arrived are kept until the set is complete, so that a later call resumes the download.

    Args:
        name: Name of the set.
        chosen: The set.
        out: Folder of the result, which must not exist.
        folder: Folder with the files; None to download them from their source.
        progress: Called while a file is downloaded.

    Returns:
        Remarks for the user.

    Raises:
        DatasetError: A file is missing, cannot be downloaded or has another content, or `out` exists.
        MissingExtra: The conversion needs a simulator that is not installed.
    """
    require_free(out.absolute())
    cache = user_cache() / "public" / name
    found = []
    for number, file in enumerate(chosen.members):
        check = _digest(chosen, file)
        if folder is None:
            path = cache / file.path
            if not path.exists():
                download(f"{chosen.base}{file.path}", path, file, check, partial(progress, number))
            else:
                require_content(path, file, check, str(path))
        else:
            path = _in_folder(folder, file, name)
            require_content(path, file, check, str(path))
        found.append(path)
    notes = (
        _placed(chosen, found, out)
        if chosen.becomes == FOLDER
        else CONVERSIONS[chosen.becomes](found[0], out, _card(chosen, name))
    )
    shutil.rmtree(cache, ignore_errors=True)
    return notes


def _digest(chosen: PublicSet, file: PublicFile) -> Check:
    return sha256_of if file.sha256 else lambda path: digest_of(read_demonstrations(path, chosen.arrays))


def _in_folder(folder: Path, file: PublicFile, name: str) -> Path:
    tried = [folder / each for each in (file.path, Path(file.path).name, file.also) if each]
    for path in tried:
        if path.is_file():
            return path
    raise DatasetError(
        f"{folder} lacks a file of {name}.", got="none of these", allowed=", ".join(map(str, tried)), fix="name their folder"
    )


def _placed(chosen: PublicSet, files: list[Path], out: Path) -> list[str]:
    """Copy the files unchanged to their places below `out`; there are no remarks to return."""
    with atomic_write(out) as draft:
        for file, path in zip(chosen.members, files, strict=True):
            target = draft / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    return []


def _card(chosen: PublicSet, name: str) -> dict[str, Any]:
    return {"public_set": name, "source": chosen.source, "licence": chosen.licence}


def _imported(form: Reader, source: Path, out: Path, card: dict[str, Any], **how: Any) -> list[str]:
    notes = import_dataset(form, source, out, card=card, **how)
    dataset = Dataset(out)
    dataset.describe(dataset.card | {"imported_from": source.name} | figures_of(dataset.entries()))
    return notes


def _halfcheetah(source: Path, out: Path, card: dict[str, Any]) -> list[str]:
    """Import the expert's episodes as those of HalfCheetah-v5, which has the same observations, actions and rewards."""
    name = "gymnasium/HalfCheetah-v5"
    environment = make_environment(name)
    spec = specification(environment)
    environment.close()
    of = {"environment": name, "arguments": {}, **card}
    notes = _imported(expert_episodes.FORMAT, source, out, of, spec=spec, adjustments=Adjustments(clip=True))
    unlike = "recorded in HalfCheetah-v4, which clips actions, too, but counts the control cost of those that were proposed"
    return [*notes, unlike]


def _car(source: Path, out: Path, card: dict[str, Any]) -> list[str]:
    return _imported(driving_tub.FORMAT, source, out, card, spec=driving_tub.spec_of(120, 160), adjustments=NONE)


CONVERSIONS: dict[str, Callable[[Path, Path, dict[str, Any]], list[str]]] = {
    "adroit": door_demonstrations.convert,
    "cs285": _halfcheetah,
    "donkeycar": _car,
}
