"""Result of one check of `robo-rl doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """One fact about this machine, with a remedy if it is a warning or a problem."""

    level: Literal["ok", "warning", "problem"]
    """Severity: with "warning" something is slow or surprising, with "problem" something does not work."""
    text: str
    fix: str | None = None
    """Remedy: one line for a shell, or None."""
