"""Train a recipe and SIGKILL this process at a given moment, as a power cut would.

usage: train_and_die.py RECIPE FOLDER step N          after step N is complete
       train_and_die.py RECIPE FOLDER resume step N   the same of the newest run there, which is resumed
       train_and_die.py RECIPE FOLDER writing N CALL  in the checkpoint of step N, before its CALL-th file operation
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import robo_rl
from robo_cli.main import dispatch
from robo_rl.runs import checkpoints
from robo_rl.runs.observer import RunRecord


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_after_step(last: int) -> None:
    original = RunRecord.on_step

    def on_step(self: RunRecord, step: int, training: Any) -> None:
        original(self, step, training)
        if step == last:
            die()

    RunRecord.on_step = on_step  # type: ignore[method-assign]


def die_while_writing(step: int, call: int) -> None:
    counted = 0
    saving = False
    save, write, sync = RunRecord.save, checkpoints._write, checkpoints.sync_folder

    def watched_save(self: RunRecord, at: int, training: Any) -> None:
        nonlocal saving
        saving = at == step
        save(self, at, training)

    def watched(operation: Any) -> Any:
        def perform(*arguments: Any) -> Any:
            nonlocal counted
            counted += saving
            if saving and counted == call:
                die()
            return operation(*arguments)

        return perform

    RunRecord.save = watched_save  # type: ignore[method-assign]
    checkpoints._write = watched(write)
    checkpoints.sync_folder = watched(sync)


def main(recipe: str, folder: str, moment: str, *numbers: str) -> None:
    if moment == "resume":
        die_after_step(int(numbers[1]))
        dispatch(["resume", "latest", "--runs", folder])
        return
    (die_after_step if moment == "step" else die_while_writing)(*map(int, numbers))  # type: ignore[operator]
    robo_rl.train(recipe, out=folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
