"""A supervised child is stopped in order or killed, says how it ended, and never outlives the process that started it."""

import os
import queue
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from robo_rl.system.supervised_process import SupervisedProcess, ending

ECHO = """
import sys
from robo_rl.system.supervised_process import inherited
connection = inherited(int(sys.argv[-1]))
print("ready", flush=True)
try:
    while True:
        connection.send_bytes(connection.recv_bytes())
except EOFError:
    pass
"""
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"


@pytest.fixture
def start():
    """No child of a test outlives it."""
    made = []

    def start(script, **settings):
        made.append(SupervisedProcess([sys.executable, "-c", script], **settings))
        return made[-1]

    yield start
    for process in made:
        process.stop()


def is_gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def until_gone(pid):
    deadline = time.monotonic() + 60
    while not is_gone(pid):
        assert time.monotonic() < deadline, f"{pid} is left behind"
        time.sleep(0.01)


def test_messages_flood_both_ways_without_deadlock(start):
    received = queue.SimpleQueue()
    process = start(ECHO, on_message=received.put)
    sent = [bytes([number]) * (1 << 20) for number in range(32)]  # far more than a socket holds
    for message in sent:
        process.send(message)
    assert [received.get(timeout=60) for _ in sent] == sent


def test_end_of_a_killed_child_comes_after_its_messages(start):
    received = queue.SimpleQueue()
    process = start(ECHO, on_message=received.put)
    process.send(b"hello")
    assert received.get(timeout=60) == b"hello"
    os.kill(process.pid, signal.SIGKILL)
    assert received.get(timeout=60) is None
    process.send(b"lost")
    assert process.stop() == -signal.SIGKILL and ending(-9) == "signal 9, Killed"


def test_message_that_is_cut_off_is_none_at_all(start):
    received = queue.SimpleQueue()
    torn = "import os, sys; os.write(int(sys.argv[-1]), (1000).to_bytes(4, 'big') + b'half')"
    start(torn, on_message=received.put)
    assert received.get(timeout=60) is None


def test_child_ends_by_itself_when_its_input_does(start):
    process = start("import sys; sys.stdin.read(); sys.exit(3)", stdin=subprocess.PIPE)
    assert process.status is None
    assert process.stop(60) == 3 and process.stop(60) == 3


def test_child_that_ignores_sigterm_is_killed(start):
    process = start(STUBBORN, stdout=subprocess.PIPE)
    assert process.ready_line(60) == b"ready\n"
    assert process.stop(0.1, terminate=True) == -signal.SIGKILL


def test_child_that_is_stopped_at_once_does_nothing_more(start, tmp_path):
    process = start(f"import sys; sys.stdin.read(); open({str(tmp_path / 'done')!r}, 'w')", stdin=subprocess.PIPE)
    assert process.stop() == -signal.SIGKILL and not (tmp_path / "done").exists()


@pytest.mark.parametrize(("script", "status"), [("raise SystemExit(2)", 2), ("import time; time.sleep(600)", None)])
def test_ready_line_is_empty_without_a_ready_child(start, script, status):
    process = start(script, stdout=subprocess.PIPE)
    assert process.ready_line(60 if status else 0.2) == b"" and process.wait(60 if status else 0.1) == status


def test_output_is_the_end_of_the_log_also_after_stop(start, tmp_path):
    (tmp_path / "log").write_bytes(b"before\n")
    script = "import sys; sys.stdout.buffer.write(b'x' * 5000 + bytes([255]) + b'last words'); sys.exit(1)"
    logs = [tmp_path / "log", tempfile.TemporaryFile()]  # noqa: SIM115 - closed by stop()
    for log in logs:
        process = start(script, log=log)
        assert process.wait(60) == 1
        for _ in range(2):
            assert process.output().endswith("x\ufffdlast words") and len(process.output()) == 2000
            process.stop()
    assert (tmp_path / "log").read_bytes().startswith(b"before\nx")


PARENTS = {"messages": "on_message=print, {}", "input": "stdin=subprocess.PIPE, {}"}
CHILDREN = {"messages": ECHO, "input": "import sys; print('ready', flush=True); sys.stdin.read()"}


@pytest.mark.parametrize("line", PARENTS)
def test_child_does_not_outlive_a_killed_parent(line):
    arguments = PARENTS[line].format("stdout=subprocess.PIPE")
    parent = f"""
import os, signal, subprocess, sys
from robo_rl.system.supervised_process import SupervisedProcess
child = SupervisedProcess([sys.executable, "-c", {CHILDREN[line]!r}], {arguments})
child.ready_line()
print(child.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    died = subprocess.run([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True, check=False, timeout=120)
    assert died.returncode == -signal.SIGKILL
    until_gone(int(died.stdout))


def test_forked_copy_does_not_end_the_child(start):
    process = start("import sys; sys.stdin.read(); sys.exit(5)", stdin=subprocess.PIPE)
    if (copy := os.fork()) == 0:
        process.stop()
        os._exit(0)
    os.waitpid(copy, 0)
    assert process.status is None and process.stop(60) == 5


def test_input_larger_than_a_pipe_is_written_whole(start, tmp_path):
    process = start("import sys; print(len(sys.stdin.buffer.read()))", stdin=subprocess.PIPE, log=tmp_path / "log")
    process.write(b"x" * (1 << 21))
    assert process.wait(60) == 0 and process.output() == str(1 << 21)
