"""Train a recipe with two collectors and SIGKILL the learner after a step.

usage: collect_and_die.py RECIPE FOLDER STEP
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from robo_cli.main import dispatch
from robo_rl.runs.observer import RunRecord


def main(recipe: str, folder: str, last: str) -> None:
    original = RunRecord.on_step

    def on_step(self: RunRecord, step: int, training: Any) -> None:
        original(self, step, training)
        if step == int(last):
            os.kill(os.getpid(), signal.SIGKILL)

    RunRecord.on_step = on_step  # type: ignore[method-assign]
    dispatch(["train", recipe, "--collectors", "2", "--out", folder])


if __name__ == "__main__":
    main(*sys.argv[1:])
