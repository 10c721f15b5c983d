"""A twin in a process of its own, for commands that bring their robot along."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from robo_rl.errors import RobotUnavailable

PATIENCE = 10.0
"""[s] for it to leave the arm still"""


@contextmanager
def twin_beside(log: Path, *options: str) -> Iterator[str]:
    """Serves a twin meanwhile and gives its address; options: NAME=VALUE, of `robo-rl robot serve`. log: the audit log.

    In a session of its own, so that a Ctrl-C reaches the learner alone and the robot is there while it ends.
    """
    command = [sys.executable, "-m", "robo_cli.main", "robot", "serve", "--port", "0", "--log", str(log)]
    command += ["--options", *options] if options else []
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        found = re.search(r" at (http://[^,\s]+),", said)
        if found is None:
            raise RobotUnavailable("The twin could not be started.", got=said or f"status {process.wait(PATIENCE)}")
        yield found[1]
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
