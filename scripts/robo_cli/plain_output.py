"""Output filter that keeps names in files, and words of servers and environments, from controlling the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, TextIO

from robo_rl.errors import printable_lines


class PlainText:
    """Text stream that escapes control characters. Rich, which draws on purpose, finds the stream below and writes to that."""

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream  # the name that rich looks for

    def write(self, text: str) -> int:
        """Write text, escaped, and return its own length."""
        self.rich_proxied_file.write(printable_lines(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


def use_plain_output() -> None:
    """Put a PlainText in place of standard output and error."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, PlainText):
            setattr(sys, name, PlainText(stream))
