"""Collectors in processes of their own: killed, hung, or left by a learner that was killed."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from robo_rl.cluster.workers import Timeouts
from robo_rl.collectors.segment_log import SegmentLog
from robo_rl.errors import RunError
from robo_rl.replay.rows import columns_of

SCRIPT = Path(__file__).with_name("toys.py")


def loaded() -> Any:
    spec = importlib.util.spec_from_file_location("collecting_toys_here", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


toys = loaded()


class Clock:
    """Stands still unless a test moves it, so that a slow machine makes nobody late."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Any]:
    """None of its collectors outlives the test."""
    made = toys.local(tmp_path)
    yield made
    for link in made.links:
        link.stop()


def steps_of(training: Any) -> Counter[Any]:
    rows = training.step_learner.replay.state_dict()["rows"]
    starts, columns = rows["starts"].astype(bool), columns_of(toys.SPEC)
    birth, count = (rows["vectors"][starts][:, columns[name]].ravel().tolist() for name in ("birth", "count"))
    return Counter(zip(birth, count, strict=True))


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 100
    while not all(map(is_gone, pids)):
        assert time.monotonic() < deadline, f"{pids} are left behind"
        time.sleep(0.01)


@pytest.mark.slow
def test_killed_and_hung_collectors_are_replaced(tmp_path: Path, engine: Any) -> None:
    clock = Clock()
    pool = toys.crew_of(engine, timeouts=Timeouts(start=1e9, answer=50), clock=clock)
    told: list[str] = []
    pool.tell = told.append
    training = toys.training_of(tmp_path, pool, 400)
    pids: list[int] = []

    def kill_one_and_stop_the_other() -> None:
        first, second = engine.links
        pids.extend((first.pid, second.pid))
        os.kill(first.pid, signal.SIGKILL)
        os.kill(second.pid, signal.SIGSTOP)
        hear, begun = pool.next, time.monotonic()

        def later(timeout: float) -> Any:
            """The clock moves while the learner waits, until the stopped one is replaced; a death has 5 s to be seen."""
            reply = hear(timeout)
            noticed = [any(words.startswith(f"collector {number}") for words in told) for number in range(2)]
            has_waited = noticed[0] or time.monotonic() - begun > 5.0
            if reply is None and timeout and has_waited and not noticed[1]:
                clock.now += 51
            return reply

        pool.next = later

    training.run(toys.Observer(at=100, deed=kill_one_and_stop_the_other))
    pool.close()
    assert training.step == 400 and max(steps_of(training).values()) == 1 and sum(steps_of(training).values()) == 400
    assert any(words.startswith("collector 0 died") for words in told)
    assert any(words.startswith("collector 1 was silent for 50 s") for words in told)
    assert all(map(is_gone, pids)) and engine.links[-1].status is not None


def test_killed_learner_leaves_no_process_and_loses_no_data(tmp_path: Path, engine: Any) -> None:
    died = subprocess.run([sys.executable, SCRIPT, "train", tmp_path, "137"], timeout=250, check=False)
    assert died.returncode == -signal.SIGKILL
    until_gone([int(pid) for pid in (tmp_path / "pids.txt").read_text().split()])
    taken = [
        (float(step.observation["birth"][0]), float(step.observation["count"][0]))
        for _, segment in SegmentLog(tmp_path / "collected").since(0)
        for step in segment.transitions()
    ]
    pool = toys.crew_of(engine)
    training = toys.training_of(tmp_path, pool, 300)
    assert training.step == 100 and training.resumed == "warm"
    training.run(toys.Observer())
    pool.close()
    assert len(taken) >= 137 and set(taken) <= set(steps_of(training)) and sum(steps_of(training).values()) == 300
    assert training.learner.updates == 300 - toys.SAMPLING.learning_starts + 1


def test_a_collector_that_cannot_start_says_why(tmp_path: Path, engine: Any) -> None:
    engine._command = [sys.executable, "-c", "import sys; sys.exit('no such simulator')"]
    pool = toys.crew_of(engine, 1, timeouts=Timeouts(losses=2))
    pool.ask(0, {})
    with pytest.raises(RunError, match=r"lost 2 times in a row.\n.*no such simulator"):
        while True:
            if (reply := pool.next(1.0)) is not None and reply.content is None:
                pool.ask(0, {})
    pool.close()
