"""Run a sweep of stub trainings that is SIGKILLed again and again, until one life reaches its end; prints the number of lives.

usage: sweep_and_die.py FOLDER STUBS WORD ...      words of `robo-rl sweep`
"""

from __future__ import annotations

import os
import signal
import sys

import scipy.stats  # noqa: F401
import torch  # noqa: F401

import robo_rl.report  # noqa: F401  imported once instead of by every child

sys.path.insert(0, sys.argv[2])
from stub_training import StubTraining

from robo_app.jobs import jobs
from robo_app.recipes.recipe import read_recipe
from robo_app.sweeps import folder as sweep_folder
from robo_app.sweeps import search as sweep_search
from robo_cli.experiments import sweep


def counted(operation, left):
    """Returns an operation before which this process dies once it was called often enough."""

    def perform(*arguments, **more):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return operation(*arguments, **more)

    return perform


def live(operations: int) -> None:
    left = [operations]
    backend = sweep_search.optuna_library().storages.journal.JournalFileBackend
    backend.append_logs = counted(backend.append_logs, left)
    StubTraining.status = counted(StubTraining.status, left)
    StubTraining.__init__ = counted(StubTraining.__init__, left)
    sweep_folder.write_text = counted(sweep_folder.write_text, left)
    sweep.conclude_sweep = counted(sweep.conclude_sweep, left)
    sweep.main([*sys.argv[3:], "--out", sys.argv[1]])


def main() -> None:
    jobs.Running, jobs.PERIOD = StubTraining, 0.0
    sweep_search.optuna_library()
    read_recipe("arm-reach-sac")
    for lives in range(1, 100):
        if (child := os.fork()) == 0:
            with open(os.devnull, "w") as sys.stdout:
                live(2 + lives * 3)
            os._exit(0)
        if os.waitpid(child, 0)[1] == 0:
            print(lives)
            return


if __name__ == "__main__":
    main()
