"""Run commands of the workbench concurrently in separate processes, with logs; for seeds, experiments and sweeps."""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Protocol

from robo_app.arguments.options import Words
from robo_app.display.job_display import Board
from robo_app.jobs.child_command import command_of
from robo_rl.errors import RunError
from robo_rl.system.supervised_process import SupervisedProcess

PERIOD = 0.2
"""Time between two checks for ended jobs [s]."""


@dataclass(frozen=True)
class Job:
    """A job: commands that run one after the other, each as the words after `robo-rl`."""

    name: str
    commands: Sequence[Words]


class UnderWay(Protocol):
    """A running job, on this machine or another."""

    @property
    def job(self) -> Job:
        """The job that is running."""

    def status(self) -> int | None:
        """Return None while the job runs, then 0, or the exit status of the command that failed."""

    def stop(self) -> None:
        """Request the end of the job; a second request ends it at once."""

    def wait(self) -> None:
        """Wait until the job has ended."""


Begin = Callable[[Job, Path, Callable[[str], None]], UnderWay]
"""Function that starts a job, given the log folder and the function to print with."""


def fitting(threads: int) -> int:
    """Return the number of concurrent trainings with that many threads for this machine's cores, at least one."""
    return max(1, len(os.sched_getaffinity(0)) // threads) if hasattr(os, "sched_getaffinity") else 1


class Running:
    """Running job in a local process."""

    def __init__(self, job: Job, logs: Path) -> None:
        self.job = job
        self._log = logs / f"{job.name}.log"
        self._left = deque(job.commands)
        self._process = self._next()

    def status(self) -> int | None:
        """Return None while the job runs, then 0 or the status of the failed command; also starts the next command."""
        if (status := self._process.status) is None:
            return None
        self._process.stop()
        if status == 0 and self._left:
            self._process = self._next()
            return None
        return status

    def stop(self) -> None:
        """Request the end of the job; a training saves a checkpoint first. A second request ends it at once."""
        self._left.clear()
        self._process.terminate()

    def wait(self) -> None:
        """Wait until the job has ended."""
        self._process.wait()
        self._process.stop()

    def _next(self) -> SupervisedProcess:
        return SupervisedProcess(command_of(self._left.popleft()), log=self._log)


class Crew:
    """Pool of concurrent jobs, a context manager; after an error, Ctrl-C or SIGTERM it terminates the running jobs."""

    def __init__(self, what: str, total: int, logs: Path, at_once: int, begin: Begin | None = None) -> None:
        """Make the pool.

        Args:
            what: Name of the whole, such as "study offline", for the display.
            total: Number of jobs.
            logs: Folder for the logs, JOB.log.
            at_once: Largest number of concurrent jobs.
            begin: Starts a job, such as on a cluster; None for a process on this machine.
        """
        logs.mkdir(parents=True, exist_ok=True)
        self.board = Board(what, total, logs)
        self._logs, self._at_once, self._begin = logs, at_once, begin
        self._running: dict[str, UnderWay] = {}

    def __enter__(self) -> Crew:
        self._usual = signal.signal(signal.SIGTERM, _interrupt)
        self.board.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None:
                self._wait_for_all()
            self._end_all()
        except KeyboardInterrupt:  # the second one acts at once
            self._end_all()
        finally:
            signal.signal(signal.SIGTERM, self._usual)
            self.board.__exit__(kind, error, trace)

    @property
    def has_room(self) -> bool:
        """True if another job may be started."""
        return len(self._running) < self._at_once

    @property
    def is_busy(self) -> bool:
        """True while a job runs."""
        return bool(self._running)

    def begin(self, job: Job) -> None:
        """Start a job."""
        self.board.begin(job.name)
        begin = self._begin
        self._running[job.name] = Running(job, self._logs) if begin is None else begin(job, self._logs, self.board.say)

    def ended(self) -> list[tuple[Job, int]]:
        """Return the jobs that have ended since the last call, with their status; waits a moment if there are none."""
        found = [(each.job, status) for each in self._running.values() if (status := each.status()) is not None]
        for job, status in found:
            del self._running[job.name]
            self.board.end(job.name, status)
        if not found:
            self.board.look()
            time.sleep(PERIOD)
        return found

    def stop(self, name: str) -> None:
        """End a job, if it runs, without counting it as failed; a training is saved first."""
        if (found := self._running.pop(name, None)) is not None:
            found.stop()
            found.wait()
            self.board.drop(name)

    def _wait_for_all(self) -> None:
        """Wait until all jobs have ended, because a training that counts as done may still be writing its report."""
        while self._running:
            self.ended()

    def _end_all(self) -> None:
        if count := len(self._running):
            self.board.say(f"stopping {count} job{'s' if count > 1 else ''}; trainings are saved first")
        for each in self._running.values():
            each.stop()
        for each in self._running.values():
            each.wait()


def run_jobs(what: str, jobs: Sequence[Job], logs: Path, *, at_once: int, begin: Begin | None = None) -> None:
    """Run jobs, at most `at_once` concurrently.

    Args:
        what: Name of the whole, such as "study offline", for the display and errors.
        jobs: The jobs, in the order in which they start.
        logs: Folder for the logs, JOB.log.
        at_once: Largest number of concurrent jobs.
        begin: Starts a job, such as on a cluster; None for a process on this machine.

    Raises:
        RunError: A job failed; raised after all jobs have ended.
    """
    waiting, failed = deque(jobs), []
    with Crew(what, len(jobs), logs, at_once, begin) as crew:
        while waiting or crew.is_busy:
            while waiting and crew.has_room:
                crew.begin(waiting.popleft())
            failed += [job.name for job, status in crew.ended() if status]
    if failed:
        raise failure(what, failed, len(jobs), logs)


def failure(what: str, failed: Sequence[str], of: int, logs: Path) -> RunError:
    """Return, without raising it, the error that says which jobs failed and where their logs are.

    Args:
        what: Name of the whole, such as "study offline".
        failed: Names of the failed jobs.
        of: Number of all jobs.
        logs: Folder of the logs.
    """
    fix = "read these logs, then give the same command again"
    return RunError(
        f"{what}: {len(failed)} of {of} jobs failed.", got=", ".join(str(logs / f"{n}.log") for n in failed), fix=fix
    )


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
