"""Serve a twin in a separate process, for commands that need a robot of their own."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from robo_app.arguments.free_settings import option_words
from robo_app.jobs.child_command import command_of
from robo_rl.errors import RobotUnavailable
from robo_rl.system.supervised_process import SupervisedProcess, ending

PATIENCE = 10.0
"""Time that the process has to stop the arm and end [s]."""


@contextmanager
def twin_process(log: Path, **settings: Any) -> Iterator[str]:
    """Serve a twin inside the block, and yield its address.

    log: file of the audit log. settings: options of the twin, such as speed. Raises RobotUnavailable if it does not start.
    """
    words = ["robot", "serve", "--port", "0", "--log", str(log), *option_words("driver.settings", settings)]
    process = SupervisedProcess(command_of(words), stdout=subprocess.PIPE)
    try:
        said = process.ready_line().decode()
        found = re.search(r" at (http://[^,\s]+),", said)
        if found is None:
            raise RobotUnavailable("The twin could not be started.", got=said or ending(process.wait(PATIENCE)))
        yield found[1]
    finally:
        process.stop(PATIENCE, terminate=True)
