"""Errors of the stand-in, each with the problem, the value, the allowed values and a fix."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


class StandInError(Exception):
    """Base of all errors of the stand-in."""

    def __init__(self, what: str, *, got: object = None, allowed: object = None, fix: str | None = None) -> None:
        rows = {"got:     ": got, "allowed: ": allowed, "do:      ": fix}
        super().__init__("\n".join([what, *(f"  {title}{text}" for title, text in rows.items() if text is not None)]))
        self.what, self.got, self.allowed, self.fix = what, got, allowed, fix


class Refused(StandInError):
    """A remote call is refused although it is well-formed; CARLA's client raises the message as RuntimeError."""


class InvalidOption(StandInError):
    """An option of the server is out of range."""


class InvalidMap(StandInError):
    """A road map is broken, or uses features that the stand-in does not support."""


class UnknownMap(StandInError):
    """A map's name is unknown."""

    def __init__(self, name: str, names: Sequence[str], fix: str) -> None:
        close = difflib.get_close_matches(name, names)
        near = f"did you mean {' or '.join(map(repr, close))}?; " if close else ""
        super().__init__(f"Unknown map {name!r}.", got=name, allowed=", ".join(names[:20]), fix=f"{near}{fix}")


class PortsTaken(StandInError):
    """The port for calls, or the next one for streams, is in use by another program."""
