"""A twin in a process of its own, for commands that bring their robot along."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from robo_cli.job import command_of
from robo_rl.errors import RobotUnavailable
from robo_rl.system.supervised_process import SupervisedProcess, ending

PATIENCE = 10.0
"""[s] for it to leave the arm still"""


@contextmanager
def twin_process(log: Path, *options: str) -> Iterator[str]:
    """Serves a twin meanwhile and gives its address; options: NAME=VALUE, of `robo-rl robot serve`. log: the audit log."""
    words = ["robot", "serve", "--port", "0", "--log", str(log), *(["--options", *options] if options else [])]
    process = SupervisedProcess(command_of(words), stdout=subprocess.PIPE)
    try:
        said = process.ready_line().decode()
        found = re.search(r" at (http://[^,\s]+),", said)
        if found is None:
            raise RobotUnavailable("The twin could not be started.", got=said or ending(process.wait(PATIENCE)))
        yield found[1]
    finally:
        process.stop(PATIENCE, terminate=True)
