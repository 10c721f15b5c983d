"""Commands of the workbench that run side by side in processes of their own, each with a log; for studies and races."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from robo_cli.display import display
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
    failed: list[str] = []
    with display(what, len(jobs), "jobs") as shown, ThreadPoolExecutor(at_once) as pool:
        for done, (job, status) in enumerate(zip(jobs, pool.map(partial(_status, logs), jobs), strict=True), 1):
            failed += [str(logs / f"{job.name}.log")] if status else []
            shown.say(f"{job.name}: {'failed' if status else 'done'}")
            shown.update(done, {})
    if failed:
        fix = "read these logs, then give the same command again"
        raise RunError(f"{what}: {len(failed)} of {len(jobs)} jobs failed.", got=", ".join(failed), fix=fix)


def _status(logs: Path, job: Job) -> int:
    """Runs the commands of a job until one fails, and returns its status."""
    with (logs / f"{job.name}.log").open("a") as log:
        for command in job.commands:
            done = subprocess.run([*PYTHON, *command], stdout=log, stderr=log, stdin=subprocess.DEVNULL, check=False)
            if done.returncode:
                return done.returncode
    return 0
