"""Jobs end with what began them: by Ctrl-C, by SIGTERM, and by a kill that nothing survives."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from robo_app.jobs import jobs
from robo_app.jobs.jobs import Crew, Job


class Endless:
    """Stands for a process that runs until it is asked to end."""

    def __init__(self, job, logs):
        self.job, self.asked = job, 0

    def status(self):
        return None

    def stop(self):
        self.asked += 1

    def wait(self):
        assert self.asked


@pytest.fixture
def begun(monkeypatch):
    made = []
    monkeypatch.setattr(jobs, "Running", lambda job, logs: made.append(Endless(job, logs)) or made[-1])
    return made


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_asks_each_job_once_and_begins_no_other(begun, tmp_path, number, capsys):
    usual = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), Crew("seeds", 3, tmp_path, 2) as crew:
        crew.begin(Job("one", []))
        crew.begin(Job("two", []))
        assert not crew.has_room
        signal.raise_signal(number)
        crew.ended()
    assert [each.asked for each in begun] == [1, 1]
    assert "stopping 2 jobs" in capsys.readouterr().out and signal.getsignal(signal.SIGTERM) is usual


def test_a_job_that_is_stopped_makes_room(begun, tmp_path):
    with Crew("sweep", 1, tmp_path, 1) as crew:
        crew.begin(Job("one", []))
        crew.stop("one")
        assert crew.has_room and not crew.is_busy
    assert begun[0].asked == 1


@pytest.mark.skipif(sys.platform != "linux", reason="needs prctl")
def test_a_process_is_asked_to_end_when_its_parent_is_killed():
    child = "from robo_cli.job import end_with; end_with(int(sys.argv[1])); print(os.getpid(), flush=True); time.sleep(100)"
    parent = (
        f"subprocess.Popen([sys.executable, '-c', {f'import os, sys, time; {child}'!r}, str(os.getpid())]); time.sleep(100)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", f"import os, subprocess, sys, time; {parent}"], stdout=subprocess.PIPE, text=True
    ) as killed:
        pid = int(killed.stdout.readline())
        killed.kill()
    deadline = time.monotonic() + 60
    while _runs(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _runs(pid)


def _runs(pid: int) -> bool:
    """Returns whether a process runs; one that nobody has waited for is a zombie."""
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.slow
def test_a_job_runs_its_commands_until_one_fails(tmp_path):
    job = Job("two", [["--help"], ["recipes", "no-such-recipe"], ["--help"]])
    with pytest.raises(jobs.RunError, match=r"1 of 1 jobs failed(.|\n)*two\.log"):
        jobs.run_jobs("study", [job], tmp_path, at_once=1)
    log = (tmp_path / "two.log").read_text()
    assert log.count("usage: robo-rl COMMAND") == 1 and "no-such-recipe" in log
