"""Quarantine of a dataset: damaged files, and their rows of the catalogue. They are kept for ever and can be restored.

quarantine/<name>, <name>.1, ...   files, by the names that they had
quarantine/entries.jsonl           rows of the catalogue, with their places in its order
"""

from __future__ import annotations

import errno
import json
import os
import re
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from robo_datasets.catalogue import Entry
from robo_rl.errors import DatasetError, fix_of
from robo_rl.system.plain_files import content_of

FOLDER = "quarantine"
LIST = "entries.jsonl"
_NUMBER = re.compile(r"\.[0-9]+$")


class Quarantine:
    """Folder of the files and catalogue rows that were taken out of a dataset."""

    def __init__(self, dataset: Path) -> None:
        """Name the folder; dataset: folder of the dataset."""
        self._folder = dataset / FOLDER

    def move(self, path: Path) -> None:
        """Move a file into quarantine; if there is a file of its name already, it gets a number behind its name."""
        target, number = self._folder / path.name, 1
        while target.exists() or target.is_symlink():
            target, number = target.with_name(f"{path.name}.{number}"), number + 1
        path.rename(target)

    def note(self, entry: Entry, place: int | None) -> None:
        """Store the row of an episode durably, the whole line or nothing; raises DatasetError if that fails.

        place: number of the row in the catalogue's order; None if the catalogue had no such row.
        """
        line = (json.dumps({**asdict(entry), "place": place}) + "\n").encode()
        path = self._folder / LIST
        try:
            with path.open("ab", buffering=0) as file:
                size = file.tell()
                try:
                    if file.write(line) != len(line):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
                    os.fsync(file.fileno())
                except OSError:
                    file.truncate(size)
                    raise
        except OSError as error:
            raise DatasetError(
                f"{path} cannot be written; the episode stays where it is.", got=error, fix=fix_of(error)
            ) from error

    def places(self) -> dict[str, int | None]:
        """Return identity -> former place in the catalogue, or None, of all stored rows.

        Raises DatasetError if the list cannot be read.
        """
        try:
            lines = content_of(self._folder / LIST).decode(errors="replace").splitlines()
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            fix = fix_of(error) if isinstance(error, OSError) else "move it away"
            raise DatasetError(f"{self._folder / LIST} cannot be read.", got=error, fix=fix) from error
        found: dict[str, int | None] = {}
        for line in lines:
            with suppress(ValueError, LookupError, TypeError, RecursionError):  # a line may be torn
                row: dict[str, Any] = json.loads(line)
                found[str(row["identity"])] = row["place"] if isinstance(row.get("place"), int) else None
        return found

    def files(self) -> dict[Path, str]:
        """Return path -> former name of all files in quarantine, the oldest first."""
        paths = [path for path in self._folder.iterdir() if path.name != LIST]
        return {
            path: _NUMBER.sub("", path.name) for path in sorted(paths, key=lambda path: (path.lstat().st_mtime_ns, path.name))
        }
