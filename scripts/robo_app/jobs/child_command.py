"""Commands of the workbench as child processes, which end with this process."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def command_of(words: Sequence[str]) -> list[str]:
    """Return the command line that starts a command of the workbench as a child of this process."""
    return [sys.executable, "-m", "robo_cli.job", str(os.getpid()), *words]
