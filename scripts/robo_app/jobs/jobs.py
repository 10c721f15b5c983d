"""Concurrent workbench commands in separate processes, with logs: for seeds, experiments and sweeps."""

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
"""[s] between two checks for ended jobs."""


@dataclass(frozen=True)
class Job:
    """Commands that make one thing, one after the other."""

    name: str
    commands: Sequence[Words]


class UnderWay(Protocol):
    """Running job, local or remote."""

    @property
    def job(self) -> Job:
        """The job."""

    def status(self) -> int | None:
        """Return None while it runs, then 0 or the exit status of the failed command."""

    def stop(self) -> None:
        """Request an end; a second request ends it at once."""

    def wait(self) -> None:
        """Wait until it has ended."""


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
        """Return None while it runs, then 0 or the status of the failed command; starts the next command."""
        if (status := self._process.status) is None:
            return None
        self._process.stop()
        if status == 0 and self._left:
            self._process = self._next()
            return None
        return status

    def stop(self) -> None:
        """Request an end: a training saves first. A second request ends it at once."""
        self._left.clear()
        self._process.terminate()

    def wait(self) -> None:
        """Wait until it has ended."""
        self._process.wait()
        self._process.stop()

    def _next(self) -> SupervisedProcess:
        return SupervisedProcess(command_of(self._left.popleft()), log=self._log)


class Crew:
    """Pool of concurrent jobs; those still running after an error, Ctrl-C or SIGTERM are terminated."""

    def __init__(self, what: str, total: int, logs: Path, at_once: int, begin: Begin | None = None) -> None:
        """begin: starts a job elsewhere than in a local process."""
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
        """True if another job fits."""
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
        """End a job, if it runs, whatever it has reached; a training is saved first."""
        if (found := self._running.pop(name, None)) is not None:
            found.stop()
            found.wait()
            self.board.drop(name)

    def _wait_for_all(self) -> None:
        """Wait until all jobs have ended: a training that counts as done may still be writing its report."""
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
    """Run jobs, at most `at_once` concurrently; raises RunError at the end if one failed.

    what: name of the whole, such as "study offline". logs: folder of their output, JOB.log. begin: as of a Crew.
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
    """Return the error of failed jobs."""
    fix = "read these logs, then give the same command again"
    return RunError(
        f"{what}: {len(failed)} of {of} jobs failed.", got=", ".join(str(logs / f"{n}.log") for n in failed), fix=fix
    )


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
