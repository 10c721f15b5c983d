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
    """One file of a public set."""

    __pydantic_config__ = STRICT
    path: str
    """path in the set, which is appended to the base address"""
    size: int
    """[byte] size of the file; largest allowed size if `sha256` is not known"""
    sha256: str = ""
    """SHA-256 of the file; empty if it is not known"""
    content: str = ""
    """SHA-256 of the file's arrays as float32 (`demonstrations.digest_of`), if the hash of the file itself is not known"""
    also: str = ""
    """another name under which `--from` finds a file with the same content"""


@dataclass(frozen=True)
class PublicSet:
    """A public set of files, as sets.yaml describes it."""

    __pydantic_config__ = STRICT
    summary: str
    """what the set has, in a few words"""
    source: str
    """address of the set's page, with the commit"""
    base: str
    """address that is put before the path of each file"""
    licence: str
    becomes: str = "folder"
    """result of fetching the set: "folder" for the files as they are, or the name of a conversion (`fetching.CONVERSIONS`)"""
    files: tuple[PublicFile, ...] = ()
    """the files; empty if there is a manifest"""
    manifest: str = ""
    """file in this package with a line "sha256 size path" per file, which takes the place of `files`"""
    arrays: tuple[str, ...] = field(default=())
    """names of the arrays that each demonstration must have, for files whose own hash is not known"""

    @property
    def members(self) -> tuple[PublicFile, ...]:
        """All files of the set: those of the field `files`, or those that the manifest lists."""
        if not self.manifest:
            return self.files
        lines = (line.split(" ", 2) for line in (HERE / self.manifest).read_text().splitlines())
        return tuple(PublicFile(path, int(size), sha256) for sha256, size, path in lines)

    def lines(self, name: str) -> list[str]:
        """Return lines of text with source, licence, size and hashes; name: name of the set."""
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
    """Return name -> set, for all sets in sets.yaml."""
    found: dict[str, PublicSet] = pydantic.TypeAdapter(dict[str, PublicSet]).validate_python(read_yaml(HERE / "sets.yaml"))
    return found


def public_set(name: str) -> PublicSet:
    """Return the set of a name; raises UnknownName if there is none."""
    known = public_sets()
    if name not in known:
        raise UnknownName("public set", name, known, fix="`robo-rl data get` lists them")
    return known[name]
