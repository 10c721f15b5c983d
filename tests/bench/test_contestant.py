"""Contestants of a benchmark run in processes of their own, as their users start them."""

import os

import pytest

from robo_bench.contestant import THREAD_VARIABLES, contestant
from robo_bench.measurement import Effort
from robo_rl.errors import RoboRLError

MODULE = """
import os, sys, time

def trial(**settings):
    print("a library that prints")
    return lambda seconds: float(os.environ.get(settings["variable"], -1.0)) + seconds

def pid():
    return lambda seconds: float(os.getpid())

def waits():
    def trial(seconds):
        time.sleep(seconds)
        end = time.process_time() + 0.05
        while time.process_time() < end:
            pass
        return 1.0
    return trial

def dies():
    return lambda seconds: os._exit(7)
"""


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    (tmp_path / "contestants_of_a_test.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)


def test_contestant_runs_in_another_process_until_closed():
    with contestant("contestants_of_a_test:pid") as trial:
        child = int(trial(0.1))
        assert child != os.getpid() and int(trial(0.1)) == child
        os.kill(child, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [None, 3])
def test_threads_are_set_only_if_asked_for(threads, monkeypatch):
    for variable in THREAD_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    for variable in THREAD_VARIABLES:
        with contestant("contestants_of_a_test:trial", {"variable": variable}, Effort(threads=threads)) as trial:
            assert trial(0.5) == (threads or -1.0) + 0.5


@pytest.mark.slow
def test_processor_time_leaves_out_waiting():
    with contestant("contestants_of_a_test:waits", effort=Effort(processor_time=True)) as trial:
        assert trial(1.0) > 5, "1 in more than a second by the clock, and in 0.05 s of a processor"


def test_contestant_that_ends_is_an_error():
    with (
        contestant("contestants_of_a_test:dies") as trial,
        pytest.raises(RoboRLError, match="ended before its trial") as error,
    ):
        trial(0.1)
    assert "exit status 7" in str(error.value)


def test_command_line_sets_no_variable_of_other_libraries(monkeypatch):
    from robo_cli import main

    before = dict(os.environ)
    monkeypatch.setattr("sys.argv", ["robo-rl", "recipes"])
    with pytest.raises(SystemExit):
        main.main()
    assert dict(os.environ) == before
