"""Finding of a check of `robo-rl doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """One fact about this machine, and the remedy if it is a problem."""

    level: Literal["ok", "warning", "problem"]
    """A warning slows down or surprises; a problem breaks."""
    text: str
    fix: str | None = None
    """One line for a shell."""
