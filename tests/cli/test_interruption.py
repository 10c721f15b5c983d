"""Signals that Python drops come again, until the block is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest

from robo_app.jobs.interruption import insistent_interruption


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interruption_that_is_dropped_comes_again(number):
    before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)]
    rounds = 0
    with pytest.raises(KeyboardInterrupt), insistent_interruption(0.1):
        with suppress(KeyboardInterrupt):  # as a destructor does
            os.kill(os.getpid(), number)
            time.sleep(5.0)
        rounds += 1
        with suppress(KeyboardInterrupt):
            time.sleep(5.0)
        rounds += 1
        time.sleep(5.0)
    assert rounds == 2
    assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)] == before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0.0


def test_without_a_signal_nothing_is_raised():
    with insistent_interruption(0.05):
        time.sleep(0.2)


INTERRUPTED = """
import sys
class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == "tyro":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
from {} import {} as command
command()
"""


def test_ctrl_c_during_the_imports_is_one_line():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    program = INTERRUPTED.format(*project["scripts"]["robo-rl"].split(":"))
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, "\ninterrupted\n")
