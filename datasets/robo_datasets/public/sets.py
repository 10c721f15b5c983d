"""Public sets that `robo-rl data get` knows: sources, licences, sizes and hashes, from sets.yaml beside this file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pydantic

from robo_rl.errors import UnknownName
from robo_rl.system.plain_files import read_yaml

HERE = Path(__file__).parent
STRICT = pydantic.ConfigDict(extra="forbid")


@dataclass(frozen=True)
class PublicFile:
    """One file of a set."""

    __pydantic_config__ = STRICT
    path: str
    """Inside the set, and behind its base address."""
    size: int
    """[bytes]; of a file that is known by its content the most that it may have."""
    sha256: str = ""
    """Of the file, or ""."""
    content: str = ""
    """SHA-256 of its arrays as float32 (`demonstrations.digest_of`), if the hash of the file itself is not known."""
    also: str = ""
    """Another name under which `--from` finds the same content."""


@dataclass(frozen=True)
class PublicSet:
    """A set of files of others."""

    __pydantic_config__ = STRICT
    summary: str
    source: str
    """Page of the set, with the commit."""
    base: str
    """Address before each path."""
    licence: str
    becomes: str = "folder"
    """"folder", or the name of a conversion (`conversions.CONVERSIONS`)."""
    files: tuple[PublicFile, ...] = ()
    manifest: str = ""
    """File beside this one with a line "sha256 size path" for each file, in the place of `files`."""
    arrays: tuple[str, ...] = field(default=())
    """Of demonstrations: names of the arrays of each."""

    @property
    def members(self) -> tuple[PublicFile, ...]:
        """Files of the set."""
        if not self.manifest:
            return self.files
        lines = (line.split(" ", 2) for line in (HERE / self.manifest).read_text().splitlines())
        return tuple(PublicFile(path, int(size), sha256) for sha256, size, path in lines)

    def lines(self, name: str) -> list[str]:
        """Return source, licence, size and hashes in words."""
        members = self.members
        size = sum(member.size for member in members) / 1e6
        exact = all(member.sha256 for member in members)
        one = members[0].sha256 or f"not known; that of its arrays as float32 is {members[0].content}"
        return [
            f"{name}: {self.summary}",
            f"source   {self.source}",
            f"licence  {self.licence}",
            f"size     {'' if exact else 'at most '}{size:.1f} MB in {len(members)} file{'s' * (len(members) != 1)}",
            f"sha256   {one if len(members) == 1 else f'of each file in {HERE / self.manifest}'}",
        ]


def public_sets() -> dict[str, PublicSet]:
    """Return name -> set."""
    found: dict[str, PublicSet] = pydantic.TypeAdapter(dict[str, PublicSet]).validate_python(read_yaml(HERE / "sets.yaml"))
    return found


def public_set(name: str) -> PublicSet:
    """Return a set; raises UnknownName."""
    known = public_sets()
    if name not in known:
        raise UnknownName("public set", name, known, fix="`robo-rl data get` lists them")
    return known[name]
