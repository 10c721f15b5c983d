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
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import LONG, REACH, descendants, ended, hosts, is_alive, reached, returns, robo_rl, until

from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset

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


def test_trainings_go_on_elsewhere_when_a_worker_and_a_node_are_killed(nodes):
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
    words = ["train", *LONG, "--seeds", "0-1", "--out", "there", "--ray", where]
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


def test_without_its_head_a_command_says_so_ends_and_goes_on(nodes):
    steps_each = 6000  # it must not be done in the minute that Ray takes to end the command
    words = ["train", *(str(steps_each) if word == "1500" else word for word in LONG), "--seeds", "0-1", "--out", "runs"]
    process = robo_rl(*words, "--ray", nodes.address)
    until(lambda: reached("runs", 0) and reached("runs", 1), process)
    os.kill(nodes.head["gcs_server"], signal.SIGKILL)
    status, told = ended(process, 180)
    assert status != 0 and re.search(r"the head of the cluster at .* is gone .* the same command goes on", told), told
    steps = [reached("runs", seed) for seed in (0, 1)]
    assert 100 <= min(steps) < steps_each
    status, told = ended(robo_rl(*words))
    assert status == 0, told
    logs = "".join(path.read_text() for path in Path("runs").rglob("logs/*.log"))
    assert all(f"resumed at step {step}, exact" in logs for step in steps if step < steps_each)


@pytest.mark.parametrize("is_there", [True, False])
def test_without_the_node_of_its_machine_a_command_says_so_ends_and_goes_on(is_there, request):
    where = request.getfixturevalue("nodes").address if is_there else "auto"
    words = ["train", *LONG, "--seeds", "0", "--out", "runs"]
    process = robo_rl(*words, "--ray", where)
    until(lambda: reached("runs", 0), process)
    ours = request.getfixturevalue("nodes").process.pid if is_there else process.pid
    raylets = [pid for pid in descendants(ours) if Path(f"/proc/{pid}/comm").read_text() == "raylet\n"]
    for pid in raylets:
        os.kill(pid, signal.SIGKILL)
    status, told = ended(process, 120)
    assert status == 1 and re.search(r"Ray's node on this machine has ended\.(.|\n)*give the same command again", told), told
    assert "Traceback" not in told
    step = reached("runs", 0)
    status, told = ended(robo_rl(*words))
    assert status == 0, told
    assert f"resumed at step {step}, exact" in Path("runs/arm-reach-sac-seeds/logs/seed-0.log").read_text()


def test_when_the_command_is_killed_nothing_is_left_and_it_goes_on(tmp_path):
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
    until(lambda: Path("there/catalogue.sqlite").exists() and len(Dataset(Path("there"))) >= 3, process)
    os.kill(hosts(nodes.other["raylet"])[0], signal.SIGKILL)
    status, told = ended(process)
    assert status == 0 and "is replaced" in told, told
    assert dispatch([*words, "here"]) == 0
    here, there = Dataset(Path("here")), Dataset(Path("there"))
    assert [entry.seed for entry in there.entries()] == [*range(40)]
    assert all(one.actions.tobytes() == other.actions.tobytes() for one, other in zip(here, there, strict=True))
