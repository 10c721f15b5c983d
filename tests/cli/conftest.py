"""Jobs of studies and races without a process for each: that costs seconds, and signals want the main thread."""

from concurrent.futures import Future

import pytest

from robo_cli import jobs
from robo_cli.main import dispatch
from robo_rl.errors import RoboRLError
from robo_rl.rewards.programs.judging import end_workers


class InTurn:
    """Stands for the threads that wait for processes."""

    def __init__(self, at_once):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def submit(self, function, *arguments):
        future = Future()
        future.set_result(function(*arguments))
        return future


@pytest.fixture
def in_this_process(monkeypatch):
    """Has jobs dispatched here, in turn; gives the list of those that ran."""
    ran = []

    def status(job, logs, board):
        ran.append(job)
        try:
            return next((status for command in job.commands if (status := dispatch([*command]))), 0)
        except RoboRLError as error:
            (logs / f"{job.name}.log").write_text(str(error))
            return 1

    monkeypatch.setattr(jobs, "_status", status)
    monkeypatch.setattr(jobs, "ThreadPoolExecutor", InTurn)
    yield ran
    end_workers()
