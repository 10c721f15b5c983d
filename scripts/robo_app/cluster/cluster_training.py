"""Trainings on a cluster; their logs and runs are copied to this machine, as if they had been trained here."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from robo_app.cluster.folder_copies import ChangingFolder, place
from robo_app.jobs.exit_status import status_of
from robo_app.jobs.interruption import gentle_interruption
from robo_app.jobs.jobs import Begin, Job, fitting
from robo_app.jobs.trainings import TrainingJob
from robo_rl.cluster.connection import Cluster, connected
from robo_rl.cluster.host import MADE
from robo_rl.cluster.over_ray import RayEngine
from robo_rl.cluster.workers import Timeouts, Workers
from robo_rl.errors import ClusterUnavailable, RoboRLError
from robo_rl.runs.checkpoints import packed, unpacked

TIMEOUTS = Timeouts(start=86_400.0, answer=120.0)
"""A training waits up to a day for free cores; a worker is lost if it sends no news for 120 s."""
STOPPED = 130
"""Exit status of a training that was stopped."""
PERIOD = 0.1
"""Time between two checks while waiting for the end of a training [s]."""


@contextmanager
def trainings_at(where: str, threads: int, at_once: int) -> Iterator[tuple[Begin | None, int]]:
    """Yield a function that starts a training on a cluster, and the number of concurrent trainings.

    Args:
        where: "auto" or the address of the cluster; "" for this machine, which yields None instead of a function.
        threads: Threads of each training.
        at_once: Number of concurrent trainings; 0 for as many as the cores allow.
    """
    if not where:
        yield None, at_once or fitting(threads)
        return
    with connected(where) as cluster:

        def begin(job: Job, logs: Path, say: Callable[[str], None]) -> TrainingElsewhere:
            assert isinstance(job, TrainingJob)
            return TrainingElsewhere(cluster, job, logs, threads, say)

        yield begin, at_once or max(1, int(cluster.cores // threads))


class TrainingElsewhere:
    """Training on a node of a cluster; after a loss of the node it is resumed on another, from the last checkpoint received."""

    def __init__(self, cluster: Cluster, job: TrainingJob, logs: Path, threads: int, say: Callable[[str], None]) -> None:
        self.job = job
        self._say, self._log = say, logs / f"{job.name}.log"
        self._losses, self._stops, self._has_begun = 0, 0, False
        self._ended: int | None = None
        """Exit status of the command on the node; None while it runs."""
        self._status: int | None = None
        """The same, set once all files have been received."""
        engine = RayEngine(lambda: nullcontext(cluster), "robo_app.cluster.node_training:NodeTraining", cores=float(threads))
        names = [f"the worker of {job.name}"]
        self._worker = Workers(engine, lambda _: b"", names, self._note, timeouts=TIMEOUTS)
        self._worker.ask(0)

    def status(self) -> int | None:
        """Process news, and return None while the training runs, then its exit status; raises ClusterUnavailable."""
        if self._status is None:
            interruptions: list[bool] = []
            with gentle_interruption(lambda: interruptions.append(True)):  # a reply that is taken is stored first
                self._look()
            if interruptions:
                raise KeyboardInterrupt
        return self._status

    def _look(self) -> None:
        try:
            if (reply := self._worker.next(0.0)) is None:
                return
            if reply.raw is None:
                self._go_on()
            elif reply.content == MADE:
                self._worker.ask(0, "begin", self._beginning())
            else:
                self._take(unpacked(reply.content))
        except ClusterUnavailable as error:  # of all trainings, not of this one
            self._write(f"error: {error}")
            self._end(status_of(error))
            if not self._stops:
                raise
            self._say(f"{self.job.name} stays where it was when its last checkpoint came: {str(error).splitlines()[0]}")
        except RoboRLError as error:
            self._note(f"error: {error}")
            self._end(status_of(error))

    def stop(self) -> None:
        """Request the end of the training, which saves a checkpoint first; a second request ends it at once."""
        self._stops += 1
        if self._status is None and (self._stops > 1 or not self._has_begun):
            self._end(STOPPED)

    def wait(self) -> None:
        """Wait until the training has ended and its files have been received."""
        while self.status() is None:
            time.sleep(PERIOD)

    def _beginning(self) -> bytes:
        """Return the message that starts a training on a node: a new one, or a resumed one with the files that are here."""
        training = self.job.training
        run = training.run
        files, _ = ChangingFolder(run).changes() if run else ({}, [])
        recipe = Path(training.words[0]).read_text()
        message = {"recipe": recipe, "seed": training.seed, "run": run.name if run else "", "files": files}
        return packed(message | {"threads": os.environ.get("OMP_NUM_THREADS", "")})

    def _take(self, news: dict[str, Any]) -> None:
        if not news:
            self._end(self._ended or 0)
            return
        self._has_begun = True
        with self._log.open("a") as log:
            log.write(news["log"])
        if news["run"]:
            place(self.job.training.runs / news["run"], news["files"], news["gone"])
            self._losses = 0
        if news["status"] is not None:
            self._ended = int(news["status"])
            self._worker.ask(0, "close", b"")
        else:
            self._worker.ask(0, "stop" if self._stops == 1 else "news", b"")
            self._stops += self._stops == 1

    def _go_on(self) -> None:
        """Resume on another node after a loss, unless the training was stopped or was lost too often."""
        self._losses += 1
        if self._ended is not None or self._stops:
            self._end(STOPPED if self._ended is None else self._ended)
        elif self._losses >= TIMEOUTS.losses:
            self._note(f"{self.job.name} lost {self._losses} workers without a checkpoint in between, and is given up")
            self._end(1)
        else:
            self._worker.ask(0)

    def _end(self, status: int) -> None:
        self._worker.close()
        self._status = status

    def _note(self, line: str) -> None:
        self._write(line)
        self._say(line)

    def _write(self, line: str) -> None:
        with self._log.open("a") as log:
            log.write(f"{line}\n")
