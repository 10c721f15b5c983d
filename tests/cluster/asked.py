"""What the tests have workers do: tell who they are, fail, die once, hang once."""

import os
import signal
import time
from pathlib import Path

from robo_rl.errors import BudgetReached


class Asked:
    """A task is a word, and after a space a file whose absence means that it is done for the first time."""

    def __init__(self, setup: bytes) -> None:
        self._setup = setup

    def work(self, task: bytes) -> bytes:
        word, _, name = task.decode().partition(" ")
        if word == "refuse":
            raise BudgetReached("The budget is spent.", got=3)
        if word == "fail":
            raise ZeroDivisionError("of nothing")
        if name and not Path(name).exists():
            Path(name).touch()
            if word == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(1000 if word == "hang" else 0.5)
        return self._setup + word.encode()


class Fatal:
    """Dies while it is made."""

    def __init__(self, _: bytes) -> None:
        os.kill(os.getpid(), signal.SIGKILL)
