"""Commands of the workbench that run side by side in processes of their own, with logs: for seeds, experiments and sweeps."""

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
"""[s] between two looks at what has ended."""


@dataclass(frozen=True)
class Job:
    """Commands that make one thing, one after the other."""

    name: str
    commands: Sequence[Words]


class UnderWay(Protocol):
    """A job under way, wherever that is."""

    @property
    def job(self) -> Job:
        """The job."""

    def status(self) -> int | None:
        """Returns None while it runs, then 0, or the status of what failed."""

    def stop(self) -> None:
        """Asks it to end; asked again, it ends at once."""

    def wait(self) -> None:
        """Returns once it has ended."""


Begin = Callable[[Job, Path, Callable[[str], None]], UnderWay]
"""Begins a job, given the folder of logs and what a person is to be told with."""


def fitting(threads: int) -> int:
    """Returns how many trainings of so many threads this machine has cores for, at least one."""
    return max(1, len(os.sched_getaffinity(0)) // threads) if hasattr(os, "sched_getaffinity") else 1


class Running:
    """A job under way in a process here."""

    def __init__(self, job: Job, logs: Path) -> None:
        self.job = job
        self._log = logs / f"{job.name}.log"
        self._left = deque(job.commands)
        self._process = self._next()

    def status(self) -> int | None:
        """Returns None while it runs, then 0, or the status of the command that failed; begins the next command."""
        if (status := self._process.status) is None:
            return None
        self._process.stop()
        if status == 0 and self._left:
            self._process = self._next()
            return None
        return status

    def stop(self) -> None:
        """Asks it to end; a training saves what it has learnt first. Asked again, it ends at once."""
        self._left.clear()
        self._process.terminate()

    def wait(self) -> None:
        """Returns once it has ended."""
        self._process.wait()
        self._process.stop()

    def _next(self) -> SupervisedProcess:
        return SupervisedProcess(command_of(self._left.popleft()), log=self._log)


class Crew:
    """Jobs side by side; those that still run after an error, Ctrl-C or SIGTERM are asked to end."""

    def __init__(self, what: str, total: int, logs: Path, at_once: int, begin: Begin | None = None) -> None:
        """begin: begins a job somewhere else than in a process here."""
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
        """Begins a job."""
        self.board.begin(job.name)
        begin = self._begin
        self._running[job.name] = Running(job, self._logs) if begin is None else begin(job, self._logs, self.board.say)

    def ended(self) -> list[tuple[Job, int]]:
        """Returns the jobs that have ended since the last call with their status; waits for a moment where none has."""
        found = [(each.job, status) for each in self._running.values() if (status := each.status()) is not None]
        for job, status in found:
            del self._running[job.name]
            self.board.end(job.name, status)
        if not found:
            self.board.look()
            time.sleep(PERIOD)
        return found

    def stop(self, name: str) -> None:
        """Ends a job, if it runs, whatever it has reached; a training is saved first."""
        if (found := self._running.pop(name, None)) is not None:
            found.stop()
            found.wait()
            self.board.drop(name)

    def _wait_for_all(self) -> None:
        """Returns once all jobs have ended by themselves: of a training that counts as done the report may be under way."""
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
    """Runs jobs, `at_once` of them side by side; raises RunError, after all others, where one failed.

    what: of which they are part, such as "study offline". logs: folder for what they print, JOB.log. begin: as of a Crew.
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
    """Returns the error about jobs that failed."""
    fix = "read these logs, then give the same command again"
    return RunError(
        f"{what}: {len(failed)} of {of} jobs failed.", got=", ".join(str(logs / f"{n}.log") for n in failed), fix=fix
    )


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
