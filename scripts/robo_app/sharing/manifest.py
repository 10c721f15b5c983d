"""List of the files of a pushed run or dataset, with sizes and digests; it is written last, so it shows completeness."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, get_args

from robo_app.sharing.payload import SUFFIXES, Kind, Payload
from robo_rl.errors import RunError

NAME = "robo-rl.json"
VERSION = 1
MOST_BYTES = 1 << 26
"""Largest size of a manifest that is read [bytes]."""
PIECE = 1 << 24


@dataclass(frozen=True)
class Manifest:
    """Description of a pushed run or dataset: its kind, its name, and the size and digest of each file."""

    kind: Kind
    name: str
    files: Mapping[str, tuple[int, str]]
    """Path in the folder -> (size in bytes, SHA-256 in hex digits)."""

    @classmethod
    def of(cls, payload: Payload) -> Manifest:
        """Return the manifest of files on this machine; all of them are read."""
        return cls(payload.kind, payload.name, {name: digest_of(path) for name, path in payload.files.items()})

    @property
    def size(self) -> int:
        """Size of all files together [bytes]."""
        return sum(size for size, _ in self.files.values())

    def to_bytes(self) -> bytes:
        """Return the manifest as JSON."""
        files = {name: {"bytes": size, "sha256": digest} for name, (size, digest) in sorted(self.files.items())}
        return json.dumps({"format": VERSION, "kind": self.kind, "name": self.name, "files": files}, indent=1).encode()

    @classmethod
    def from_bytes(cls, content: bytes, source: str) -> Manifest:
        """Return the manifest in JSON from an untrusted place.

        Raises RunError if it is damaged or of another format, or if a path leads out of the folder or could be of a file with
        code.

        source: address of the place, for errors.
        """
        try:
            plain: Any = json.loads(content)
            files = {str(name): (int(each["bytes"]), str(each["sha256"])) for name, each in plain["files"].items()}
            found = cls(plain["kind"], str(plain["name"]), files)
            version = plain["format"]
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise RunError(
                f"{NAME} of {source} is damaged.", got=f"{type(error).__name__}: {error}", fix="push it again"
            ) from None
        if version != VERSION or found.kind not in get_args(Kind):
            got, allowed = f"format {version}, kind {found.kind}", f"format {VERSION}, kind run or dataset"
            raise RunError(f"{NAME} of {source} cannot be read.", got=got, allowed=allowed, fix="upgrade robo-rl")
        for name in files:
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or "\\" in name or name == NAME or path.suffix not in SUFFIXES:
                allowed = f"paths inside the folder, with {', '.join(SUFFIXES)}"
                raise RunError(f"{source} holds a file that is not taken.", got=name, allowed=allowed, fix="do not trust it")
        return found

    def require(self, name: str, path: Path) -> None:
        """Raise RunError unless the file `path` has the size and digest of the entry `name`."""
        if digest_of(path) != self.files[name]:
            raise RunError(
                f"{name} did not arrive as it was sent.", got="another size or digest", fix="pull again, or push again"
            )


def digest_of(path: Path) -> tuple[int, str]:
    """Return size and SHA-256 of a file."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            digest.update(piece)
            size += len(piece)
    return size, digest.hexdigest()
