"""Zip archives of finished runs: one file instead of hundreds, which commands read like a folder."""

from __future__ import annotations

import atexit
import functools
import tempfile
import zipfile
import zlib
from pathlib import Path

from robo_rl.errors import RunError, is_of_disk

SUFFIX = ".zip"
LARGEST = 2**30
"""Largest unpacked size of an archive in bytes; a study without checkpoints is far smaller."""

_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, LookupError, RuntimeError)


def resolve_archive(name: str) -> str:
    """Return a path or pattern in which an archive is replaced by the folder of its unpacked files.

    `study.zip/*-sac-*` becomes `/tmp/.../*-sac-*`; names without an archive are returned unchanged. The folder is deleted when
    the process exits. Raises RunError if the archive is damaged or too large.
    """
    path = Path(name)
    archive = next((part for part in (path, *path.parents) if part.suffix == SUFFIX and part.is_file()), None)
    return name if archive is None else str(_unpack(archive.resolve()) / path.relative_to(archive))


@functools.cache
def _unpack(archive: Path) -> Path:
    try:
        with zipfile.ZipFile(archive) as opened:
            size = sum(entry.file_size for entry in opened.infolist())
            if size > LARGEST:
                raise RunError(f"{archive} is too large to unpack.", got=f"{size} bytes", allowed=f"at most {LARGEST} bytes")
            folder = tempfile.TemporaryDirectory(prefix="robo-rl-archive-")
            atexit.register(folder.cleanup)
            opened.extractall(folder.name)  # which keeps absolute paths and .. inside of the folder
    except (OSError, *_DAMAGE) as error:
        if isinstance(error, OSError) and is_of_disk(error):
            raise
        raise RunError(
            f"{archive} is damaged.", got=f"{type(error).__name__}: {error}", allowed="a zip archive", fix="take it from a copy"
        ) from None
    return Path(folder.name)
