"""What a cluster of two nodes on loopback survives: killed workers, nodes, heads and commands, and who may not come in."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from commands import LONG, REACH, descendants, ended, hosts, is_alive, long, reached, recorded, returns, robo_rl, until

from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset
from robo_datasets.labels import LabelSet

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
NODES = Path(__file__).with_name("nodes.py")


class Nodes:
    """A head and another node, with one core each."""

    def __init__(self) -> None:
        words = [sys.executable, str(NODES), "1", "1"]
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        told = json.loads(self.process.stdout.readline())
        self.address, (self.head, self.other) = told["address"], told["nodes"]

    def end(self) -> None:
        ours = descendants(self.process.pid)
        try:
            self.process.communicate(timeout=60)
        finally:
            left = [pid for pid in ours if is_alive(pid)]
            for pid in left:
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def nodes(monkeypatch) -> Iterator[Nodes]:
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    found = Nodes()
    yield found
    found.end()


def test_a_wrong_token_and_none_are_errors_within_seconds(nodes):
    dispatch([*REACH, "--episodes", "2", "--out", "data"])
    words = ["label", "data", "--reward", "oracle", "--name", "mine", "--cache", "none", "--ray", nodes.address]
    for token, what in (("wrong" * 8, "the one of RAY_AUTH_TOKEN"), ("", "none in the environment")):
        started = time.monotonic()
        process = robo_rl(*words, RAY_AUTH_TOKEN=token, HOME=str(Path.cwd()))
        status, told = ended(process, 120)
        assert status == 1 and re.search(rf"does not take this token\.\n  got:     {what}", told), told
        assert "Traceback" not in told and time.monotonic() - started < 60
    status, told = ended(robo_rl(*words))
    assert status == 0, told


def test_trainings_move_after_worker_and_node_are_killed(nodes):
    process = robo_rl("train", *LONG, "--seeds", "0-1", "--out", "there", "--ray", nodes.address)
    until(lambda: reached("there", 0) and reached("there", 1), process)
    os.kill(nodes.other["raylet"], signal.SIGKILL)
    time.sleep(1)
    for pid in hosts(nodes.head["raylet"]):
        os.kill(pid, signal.SIGKILL)
    status, told = ended(process)
    assert status == 0 and len(re.findall(r"the worker of seed-\d .* and is replaced", told)) >= 2, told
    logs = "".join(path.read_text() for path in Path("there").rglob("logs/*.log"))
    assert re.search(r"resumed at step [1-9]\d*, exact", logs)
    for seed in "01":
        assert dispatch(["train", *LONG, "--seed", seed, "--out", "here"]) == 0
    assert returns("here") == returns("there")


@pytest.mark.parametrize("is_there", [True, False])
def test_ctrl_c_saves_trainings_and_brings_them_home(is_there, request):
    where = request.getfixturevalue("nodes").address if is_there else "auto"
    # long: none of the two is to be done before the other one has begun, whatever else the machine does
    words = ["train", *long(4000), "--seeds", "0-1", "--out", "there", "--ray", where]
    process = robo_rl(*words, group=0)
    until(lambda: reached("there", 0) and reached("there", 1), process)
    ours = descendants(process.pid)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: all that the command began
    status, told = ended(process)
    assert status == 130 and "stopping 2 jobs; trainings are saved first" in told and "Traceback" not in told, told
    until(lambda: not any(map(is_alive, ours)))
    steps = [reached("there", seed) for seed in (0, 1)]
    logs = [Path(f"there/arm-reach-sac-seeds/logs/seed-{seed}.log") for seed in (0, 1)]
    for step, log in zip(steps, logs, strict=True):
        assert f"interrupted at step {step}; go on with" in log.read_text(), "saved where it was, and brought home"
    status, told = ended(robo_rl(*words))
    assert status == 0 and {*returns("there")} == {"0", "1"}, told
    assert all(f"resumed at step {step}, exact" in log.read_text() for step, log in zip(steps, logs, strict=True))


class Work(NamedTuple):
    """A command that is to be stopped half-way."""

    words: list[str]
    kept: Callable[[], int]
    """How much of it lies here."""
    in_all: int
    again: str
    """What it says is to be done to go on."""
    go_on: Callable[[], list[str]]
    """Returns that, as a command."""


def seeds() -> Work:
    steps = 6000  # it must not be done before it is stopped
    words = ["train", *long(steps), "--seeds", "0-1", "--out", "runs"]
    return Work(
        words, lambda: min(reached("runs", seed) for seed in (0, 1)), steps, "give the same command again", lambda: words
    )


def collectors() -> Work:
    words = ["train", *LONG, "--collectors", "2", "--out", "runs"]
    go_on = ["resume", "latest", "--runs", "runs", "--ray", "here"]
    return Work(words, lambda: reached("runs", 0), 1500, "then robo-rl resume", lambda: go_on)


def labels() -> Work:
    dispatch([*REACH, "--episodes", "200", "--environment.arguments.max_steps", "3", "--out", "data"])
    words = ["label", "data", "--reward", "oracle", "--name", "mine", "--cache", "none"]
    return Work(words, labelled, 200, "give the same command again", lambda: words)


def labelled() -> int:
    return len(LabelSet(Dataset(Path("data")), "mine").labelled)


def episodes() -> Work:
    words = [*REACH, "--out", "data", "--episodes"]

    def go_on() -> list[str]:
        there = recorded("data")
        return [*words, str(200 - there), "--append", "--seed", str(there)]

    return Work([*words, "200"], lambda: recorded("data"), 200, "--append and --seed", go_on)


GONE = {"raylet": "Ray's node on this machine has ended.", "gcs_server": "The head of the cluster, {address}, is gone."}


@pytest.mark.parametrize("killed", GONE)
@pytest.mark.parametrize("work", [seeds, collectors, labels, episodes])
def test_command_without_node_or_head_fails_and_resumes(work, killed, nodes):
    words, kept, in_all, again, go_on = work()
    process = robo_rl(*words, "--ray", nodes.address)
    until(kept, process)
    with stopped(hosts(nodes.process.pid)):  # they are not to be done before
        before = kept()
        os.kill(nodes.head[killed], signal.SIGKILL)
        status, told = ended(process, 120)
    sentence = re.escape(GONE[killed].format(address=nodes.address))
    assert status == 1 and len(re.findall(r"^error: ", told, re.MULTILINE)) == 1 and "Traceback" not in told, (status, told)
    assert re.search(rf"^error: {sentence}\n  got: .*\n  allowed: .*\n  do: .*{again}", told, re.MULTILINE), told
    assert 0 < before <= kept() < in_all, "nothing that was kept is lost"
    status, told = ended(robo_rl(*go_on()))
    assert status == 0 and kept() == in_all, told


@contextmanager
def stopped(pids: list[int]) -> Iterator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in filter(is_alive, pids):
            os.kill(pid, signal.SIGCONT)


DIES = """
import os, signal, sys, time
from robo_rl.cluster.connection import connected
with connected(sys.argv[1]) as cluster:
    if int(sys.argv[2]):
        os.kill(int(sys.argv[2]), signal.SIGKILL)
        time.sleep(8)  # until somebody has looked
    os._exit(1)
"""


@pytest.mark.parametrize("killed", ["raylet", "gcs_server", ""])
def test_where_ray_ends_a_command_from_within_somebody_says_why(killed, nodes):
    words = [sys.executable, "-c", DIES, nodes.address, str(nodes.head.get(killed, 0))]
    told = subprocess.run(words, stderr=subprocess.PIPE, text=True, check=False, timeout=120).stderr  # till all have closed it
    found = re.findall(r"^error: (.*)", told, re.MULTILINE)
    assert found == ([GONE[killed].format(address=nodes.address)] if killed else []), told


def test_a_cluster_of_its_own_without_its_node_is_told_of_too():
    pytest.importorskip("ray")
    process = robo_rl("train", *LONG, "--seeds", "0", "--out", "runs", "--ray", "auto")
    until(lambda: reached("runs", 0), process)
    raylets = [pid for pid in descendants(process.pid) if Path(f"/proc/{pid}/comm").read_text() == "raylet\n"]
    for pid in raylets:
        os.kill(pid, signal.SIGKILL)
    status, told = ended(process, 120)
    assert status == 1 and GONE["raylet"] in told and "Traceback" not in told, told


def test_killed_command_leaves_nothing_and_resumes(tmp_path):
    words = ["train", *LONG, "--seeds", "0-1", "--out", "runs", "--ray", "auto"]
    process = robo_rl(*words)
    until(lambda: reached("runs", 0) and reached("runs", 1), process)
    ours = descendants(process.pid)
    assert len(ours) > 4
    process.kill()
    process.wait()
    until(lambda: not any(map(is_alive, ours)), limit=240)  # agents of a lost node take their time
    status, told = ended(robo_rl(*words))
    assert status == 0, told
    assert {*returns("runs")} == {"0", "1"} and len([*Path("runs").rglob("evaluation.json")]) == 2


def test_each_seed_is_recorded_once_though_workers_are_killed(nodes):
    words = [*REACH, "--episodes", "40", "--out"]
    process = robo_rl(*words, "there", "--ray", nodes.address)
    until(lambda: recorded("there") >= 3, process)
    os.kill(hosts(nodes.other["raylet"])[0], signal.SIGKILL)
    status, told = ended(process)
    assert status == 0 and "is replaced" in told, told
    assert dispatch([*words, "here"]) == 0
    here, there = Dataset(Path("here")), Dataset(Path("there"))
    assert [entry.seed for entry in there.entries()] == [*range(40)]
    assert all(one.actions.tobytes() == other.actions.tobytes() for one, other in zip(here, there, strict=True))
