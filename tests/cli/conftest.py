"""Jobs of studies and races without a process for each, which costs seconds; trainings that are interrupted."""

import signal
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from robo_app.jobs import jobs
from robo_cli.main import dispatch, status_of
from robo_rl.errors import RoboRLError
from robo_rl.rewards.programs.runner import end_workers
from robo_rl.runs.observer import RunRecord

sys.path.append(str(Path(__file__).parent))  # for what the tests share


@pytest.fixture
def in_this_process(monkeypatch):
    """Has jobs dispatched here, in turn; gives the list of those that ran."""
    ran = []

    class InThisProcess:
        """Stands for a process; it has ended once it is made."""

        def __init__(self, job, logs):
            self.job = job
            ran.append(job)
            try:
                self._status = next((status for command in job.commands if (status := dispatch([*command]))), 0)
            except RoboRLError as error:
                (logs / f"{job.name}.log").write_text(str(error))
                self._status = status_of(error)

        def status(self):
            return self._status

        def stop(self):
            pass

        wait = stop

    monkeypatch.setattr(jobs, "Running", InThisProcess)
    yield ran
    end_workers()


@pytest.fixture
def interrupted_at(monkeypatch):
    """Returns a context in which a training gets Ctrl-C at a step, and must end by it."""

    @contextmanager
    def at(stop):
        original = RunRecord.on_step

        def on_step(self, step, training):
            if step == stop:
                signal.raise_signal(signal.SIGINT)
            original(self, step, training)

        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(RunRecord, "on_step", on_step)
            yield

    return at
