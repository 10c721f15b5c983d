"""A cluster of three hosts, which network namespaces are: what one has and another lacks, and lines that are cut."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from commands import LONG, REACH, ended, reached, recorded, returns, robo_rl, until
from hosts import Host, NoHosts, Switch

from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
ADDRESS = "10.77.0.1:6379"


class Lan:
    """A head and a node with one core each, and the desk where commands are given, a node that does no work."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.switch = Switch()
        stack.callback(self.switch.end)
        self.environment = {
            **os.environ,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0",
            "TMPDIR": str(folder),
        }
        self.head, self.other, self.desk = (
            self._host(stack, name, f"10.77.0.{number}", [folder, *([] if name == "desk" else [Path.cwd()])])
            for number, name in enumerate(("head", "other", "desk"), 1)
        )
        head = ["--head", "--port", "6379", "--include-dashboard=false", "--temp-dir", str(folder)]
        self._begin(self.head, *head, "--num-cpus", "1")
        self._begin(self.other, "--address", ADDRESS, "--num-cpus", "1")
        self._begin(self.desk, "--address", ADDRESS, "--num-cpus", "0")

    def _host(self, stack: ExitStack, name: str, address: str, hidden: list[Path]) -> Host:
        host = Host(self.switch, name, address, hidden)
        stack.callback(host.end)
        return host

    def _begin(self, host: Host, *words: str) -> None:
        log = Path(f"{host.name}.log")
        process = host.begin_node(*words, environment=self.environment, log=log)
        until(lambda: "Ray runtime started" in log.read_text(), process)

    def robo_rl(self, *words: str):
        """Begins a command at the desk."""
        return robo_rl(*words, "--ray", ADDRESS, before=self.desk.words(), **self.environment)


@pytest.fixture
def lan() -> Iterator[Lan]:
    pytest.importorskip("ray")
    folder = Path(tempfile.mkdtemp(prefix="lan-", dir="/tmp"))  # a short path: sockets
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder)
        try:
            found = Lan(stack, folder)
        except NoHosts as error:
            pytest.skip(f"no network namespaces on this machine: {error}")
        yield found


def test_training_moves_after_its_host_is_cut_off(lan):
    process = lan.robo_rl("train", *LONG, "--seeds", "0-1", "--out", "there")
    until(lambda: reached("there", 0) and reached("there", 1), process)
    assert lan.other.workers() and lan.head.workers() and not lan.desk.workers()
    kept = min(reached("there", seed) for seed in (0, 1))
    lan.switch.cut("other")
    status, told = ended(process)
    assert status == 0 and re.search(r"the worker of seed-\d .* and is replaced", told), told
    logs = "".join(path.read_text() for path in Path("there").rglob("logs/*.log"))
    assert int(re.search(r"resumed at step (\d+), exact", logs)[1]) >= kept
    for seed in "01":
        assert dispatch(["train", *LONG, "--seed", seed, "--out", "here"]) == 0
    assert returns("here") == returns("there")
    until(lambda: not lan.other.workers())  # nobody goes on alone


@pytest.mark.parametrize("is_mended", [True, False])
def test_each_seed_is_recorded_once_though_a_host_is_cut_off(lan, is_mended):
    words = [*REACH, "--episodes", "40", "--out"]
    process = lan.robo_rl(*words, "there")
    until(lambda: recorded("there") >= 3, process)
    assert lan.other.workers() and lan.head.workers() and not lan.desk.workers()
    lan.switch.cut("other")
    if is_mended:
        time.sleep(10)
        lan.switch.mend("other")
    status, told = ended(process)
    assert status == 0 and is_mended == ("is replaced" not in told), told
    assert dispatch([*words, "here"]) == 0
    here, there = Dataset(Path("here")), Dataset(Path("there"))
    assert [entry.seed for entry in there.entries()] == [*range(40)]
    assert all(one.actions.tobytes() == other.actions.tobytes() for one, other in zip(here, there, strict=True))


SERVE = """
from carla_standin.server import Options, Server
server = Server(Options(host="0.0.0.0", port=2000))
print(flush=True)
server.run()
"""


def test_cut_off_driver_ends_before_its_replacement_starts(lan):
    pytest.importorskip("carla", reason="the carla wheel exists for Linux x86-64 and Windows, Python 3.10 to 3.12")
    lan.other.begin(sys.executable, "-c", SERVE)  # so that who is cut off has it still
    lan.other.begin(sys.executable, "-c", SERVE.replace("2000", "2004"))
    words = [
        "record",
        "carla/Town-v0",
        "--noise",
        "0.1",
        "--environment.arguments.birdseye",
        "0",
        "--episodes",
        "100",
        "--out",
        "there",
    ]
    process = lan.robo_rl(*words, "--carla-host", lan.other.address, "--carla-port", "2000", "2004")
    until(lambda: recorded("there") >= 2 and lan.other.workers(), process)
    lan.switch.cut("other")
    until(lambda: "is replaced" in Path("told").read_text(), process)
    assert not lan.other.workers()
    process.kill()
    process.wait()
