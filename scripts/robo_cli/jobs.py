"""Commands of the workbench that run side by side in processes of their own, each with a log: for seeds, studies and races."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from robo_cli.board import Board
from robo_cli.study_options import Words
from robo_rl.errors import RunError

PYTHON = [sys.executable, "-m", "robo_cli.main"]


@dataclass(frozen=True)
class Job:
    """Commands that make one thing, one after the other."""

    name: str
    commands: Sequence[Words]


def run_jobs(what: str, jobs: Sequence[Job], logs: Path, *, at_once: int) -> None:
    """Runs jobs, `at_once` of them side by side; raises RunError, after all others, where one failed.

    what: of which they are part, such as "study offline". logs: folder for what they print, JOB.log.
    """
    logs.mkdir(parents=True, exist_ok=True)
    with Board(what, len(jobs), logs) as board, ThreadPoolExecutor(at_once) as pool:
        ended = {pool.submit(_status, job, logs, board): job for job in jobs}
        running = {*ended}
        while running:
            _, running = wait(running, timeout=1.0)
            board.look()
    if failed := [str(logs / f"{job.name}.log") for future, job in ended.items() if future.result()]:
        fix = "read these logs, then give the same command again"
        raise RunError(f"{what}: {len(failed)} of {len(jobs)} jobs failed.", got=", ".join(failed), fix=fix)


def _status(job: Job, logs: Path, board: Board) -> int:
    """Runs the commands of a job until one fails, and returns its status."""
    board.begin(job.name)
    status = 0
    with (logs / f"{job.name}.log").open("a") as log:
        for command in job.commands:
            done = subprocess.run([*PYTHON, *command], stdout=log, stderr=log, stdin=subprocess.DEVNULL, check=False)
            status = done.returncode
            if status:
                break
    board.end(job.name, status)
    return status
