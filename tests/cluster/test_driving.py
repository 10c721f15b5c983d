"""Driving is recorded on a cluster: a server for each worker, a stand-in of its own or one that is named; any may die."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from commands import descendants, ended, hosts, is_alive, recorded, robo_rl, until

from robo_app.recording.cluster_record import arguments_of_workers
from robo_datasets.dataset import Dataset
from robo_rl.errors import InvalidSetting

pytest.importorskip("carla", reason="the carla wheel exists for Linux x86-64 and Windows, Python 3.10 to 3.12")
DRIVE = ["record", "carla/Town-v0", "--episodes", "6", "--noise", "0.1"]
DRIVE += [
    "--environment.arguments.route_length",
    "40.0",
    "--environment.arguments.birdseye",
    "0",
    "--environment.arguments.traffic",
    "2",
    "--out",
]
STAND_IN, SERVER = b"carla_standin.server", b"carla-server"


def below(pid: int, what: bytes) -> list[int]:
    found = []
    for child in descendants(pid):
        try:
            found += [child] if what in Path(f"/proc/{child}/cmdline").read_bytes() else []
        except OSError:  # it has ended
            continue
    return found


def begun_with(mark: str) -> list[int]:
    """Returns the processes that have a mark in their environment, whoever has them now."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            found += [int(path.parent.name)] if mark.encode() in path.read_bytes() else []
        except OSError:  # it has ended
            continue
    return [pid for pid in found if is_alive(pid)]


def require_alike(one: str, other: str) -> None:
    here, there = Dataset(Path(one)), Dataset(Path(other))
    assert [entry.seed for entry in there.entries()] == [entry.seed for entry in here.entries()] == [*range(6)]
    for first, second in zip(here, there, strict=True):
        assert first.stop_reason == second.stop_reason != "link_lost"
        assert first.actions.tobytes() == second.actions.tobytes() and first.rewards.tobytes() == second.rewards.tobytes()


@contextmanager
def server(port: int = 0) -> Iterator[tuple[subprocess.Popen[str], int]]:
    words = [sys.executable, "-m", "robo_cli.main", "carla-server", "--map", "grid", "--port", str(port)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        yield process, int(re.search(r"carla.Client\('127.0.0.1', (\d+)\)", process.stdout.readline())[1])
    finally:
        process.kill()
        process.communicate()


def test_a_named_server_is_one_workers_alone():
    one, two = (SimpleNamespace(addresses={f"10.0.0.{number}" for number in range(count)}) for count in (1, 2))
    given = {"host": "127.0.0.1", "port": [2000, 2004, 2008], "traffic": 2}
    assert [each["port"] for each in arguments_of_workers(given, 2, one)] == [2000, 2004]
    assert [each["port"] for each in arguments_of_workers(given, 9, one)] == [2000, 2004, 2008]
    assert arguments_of_workers({"host": "10.0.0.9", "port": 2000}, 9, two) == [{"host": "10.0.0.9", "port": 2000}]
    assert arguments_of_workers({"traffic": 2}, 2, two) == [{"traffic": 2}] * 2
    with pytest.raises(InvalidSetting, match=r"(?s)look for the server on itself.*127\.0\.0\.1.*10\.0\.0\.0, 10\.0\.0\.1"):
        arguments_of_workers(given, 2, two)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_stand_in_ends_with_worker_and_dead_one_is_replaced():
    pytest.importorskip("ray")
    mark = secrets.token_hex(16)
    process = robo_rl(*DRIVE, "there", "--ray", "auto", "--jobs", "2", MARK=mark)
    until(lambda: recorded("there") >= 1, process)
    worker, *_ = hosts(process.pid)
    (its,) = below(worker, STAND_IN)
    os.kill(worker, signal.SIGKILL)
    until(lambda: not is_alive(its), process)
    until(lambda: recorded("there") >= 2 and below(process.pid, STAND_IN), process)
    os.kill(below(process.pid, STAND_IN)[0], signal.SIGKILL)
    status, told = ended(process)
    assert status == 0 and len(re.findall("worker . died .* and is replaced", told)) == 1, told
    until(lambda: not begun_with(mark))
    assert ended(robo_rl(*DRIVE, "here"))[0] == 0
    require_alike("here", "there")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_named_server_has_one_worker_and_resumes_after_return():
    pytest.importorskip("ray")
    with server() as (first, port), server() as (_, other):
        ports = ["--carla-port", str(port), str(other)]
        process = robo_rl(*DRIVE, "there", "--ray", "auto", "--jobs", "4", *ports)
        until(lambda: recorded("there") >= 2, process)
        assert not below(process.pid, STAND_IN) and len(hosts(process.pid)) == 2
        first.kill()
        first.wait()
        with server(port):
            status, told = ended(process)
    assert status == 0 and "replaced" not in told, told
    assert ended(robo_rl(*DRIVE, "here"))[0] == 0
    require_alike("here", "there")
