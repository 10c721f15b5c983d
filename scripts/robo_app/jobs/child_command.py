"""Start commands of the workbench as child processes, which end when this process ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def command_of(words: Sequence[str]) -> list[str]:
    """Return the command line that starts `robo-rl WORDS` as a child of this process."""
    return [sys.executable, "-m", "robo_cli.job", str(os.getpid()), *words]
