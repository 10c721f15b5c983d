"""Workers without a cluster: replaced if they die, hang or fail, and never mistaken for the ones before them."""

import json
import os
import signal
import sys
from collections import deque

import pytest

from robo_rl.cluster.host import ERROR, MADE, Host, content_of
from robo_rl.cluster.local import InProcessEngine, LocalEngine
from robo_rl.cluster.workers import Kind, Timeouts, Workers
from robo_rl.errors import BudgetReached, RunError, WorkerFailed

CHILD = """
import os, signal, sys
from robo_rl.cluster.host import serve
from robo_rl.system.supervised_process import inherited

class Echo:
    def __init__(self, setup):
        self.setup = setup
    def join(self, *contents):
        return b" ".join([self.setup, *contents])
    def print_and_die(self):
        print("out of memory", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    def fail(self):
        raise ZeroDivisionError("of nothing")

serve(inherited(int(sys.argv[-1])), Echo)
"""


class Scripted:
    """An engine whose replies the test writes."""

    def __init__(self):
        self.links, self.replies = [], deque()

    def start(self, setup):
        self.links.append(Link())
        return self.links[-1]

    def next(self, timeout):
        return self.replies.popleft() if self.replies else None

    def close(self): ...


class Link:
    def __init__(self):
        self.asked, self.is_stopped = [], False

    def ask(self, method, *contents):
        self.asked.append((method, *contents))

    def stop(self):
        self.is_stopped = True

    def output(self):
        return "its output"


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def local(tmp_path):
    """Two local workers, and what was said of them; none outlives the test."""
    said = []
    engine = LocalEngine([sys.executable, "-c", CHILD], tmp_path / "log")
    timeouts = Timeouts(losses=2)
    workers = Workers(engine, lambda index: f"setup {index}".encode(), ["first", "second"], said.append, timeouts=timeouts)
    start, links = engine.start, []
    engine.start = lambda setup: links.append(start(setup)) or links[-1]
    yield workers, links, said
    workers.close()
    assert all(link.status is not None for link in links)


def reply_of(workers):
    while (reply := workers.next(1.0)) is None:
        pass
    return reply


@pytest.mark.slow
def test_local_worker_gets_setup_method_and_contents(local):
    workers, _, _ = local
    workers.ask(1, "join", b"a", b"", b"c" * (1 << 20))
    assert reply_of(workers).content == b"setup 1 a  " + b"c" * (1 << 20)
    workers.ask(0)
    assert reply_of(workers).content == MADE and sorted(workers.idle) == [0, 1]


def test_local_worker_that_dies_is_replaced_and_shows_its_output(local):
    workers, _, said = local
    for losses in (1, 2):
        workers.ask(0, "print_and_die")
        if losses == 2:
            with pytest.raises(WorkerFailed, match=r"First was lost 2 times in a row.\n.*it died; its output: out of memory"):
                reply_of(workers)
        else:
            assert reply_of(workers).raw is None and said == ["first died and is replaced"]
            assert workers.idle == [] and workers.open(0) == 0


@pytest.mark.slow
def test_local_worker_that_is_stopped_by_a_signal_is_replaced(local):
    workers, links, _ = local
    workers.ask(0)
    assert reply_of(workers).content == MADE
    os.kill(links[0].pid, signal.SIGKILL)
    workers.ask(0, "join")
    assert reply_of(workers).raw is None
    workers.ask(0, "join", b"again")
    assert reply_of(workers).content == b"setup 0 again"


def test_error_of_a_worker_is_raised_by_its_name(local):
    workers, _, _ = local
    workers.ask(0, "fail")
    with pytest.raises(WorkerFailed, match=r"(?s)first failed.*ZeroDivisionError: of nothing"):
        _ = reply_of(workers).content
    workers.ask(0, "join", b"goes on")
    assert reply_of(workers).content == b"setup 0 goes on"


USUAL = Kind()


def scripted(timeouts, kind=USUAL):
    engine, clock = Scripted(), Clock()
    return Workers(engine, lambda _: b"", ["it"], lambda _: None, timeouts=timeouts, kind=kind, clock=clock), engine, clock


@pytest.mark.parametrize("counts", [False, True])
def test_silent_start_is_a_loss_only_if_it_counts(counts):
    workers, engine, clock = scripted(Timeouts(start=10, answer=1, losses=3, counts_start=counts))
    for replaced in range(1, 6):
        workers.ask(0)
        clock.now += 11
        if counts and replaced == 3:
            with pytest.raises(WorkerFailed, match="was lost 3 times"):
                workers.next(0.0)
            return
        assert workers.next(0.0).raw is None and len(engine.links) == replaced + 1 and engine.links[-2].is_stopped


def test_reply_resets_the_count_of_losses():
    workers, engine, _ = scripted(Timeouts(losses=2))
    for _ in range(5):
        workers.ask(0)
        engine.replies.append((engine.links[-1], None))
        assert workers.next(0.0).raw is None
        workers.ask(0)
        engine.replies.append((engine.links[-1], MADE))
        assert workers.next(0.0).content == MADE
    assert workers.losses == 5


def test_retried_error_costs_the_worker_and_is_told_in_the_end():
    kind = Kind(error=RunError, fix="look", retried=("ServerUnavailable",))
    workers, engine, _ = scripted(Timeouts(losses=2), kind)
    for losses in (1, 2):
        workers.ask(0)
        engine.replies.append((engine.links[-1], ERROR + json.dumps(["ServerUnavailable", "no simulator"]).encode()))
        if losses == 2:
            with pytest.raises(RunError, match=r"It was lost 2 times in a row.\n.*it failed; its output: no simulator\n.*look"):
                workers.next(0.0)
        else:
            assert workers.next(0.0).raw is None


class Budget:
    def __init__(self, setup):
        if setup == b"spent":
            raise BudgetReached("The budget is spent.", got=3)


def test_error_while_an_object_is_made_is_that_of_the_call():
    engine = InProcessEngine(Budget)
    engine.start(b"spent").ask("work")
    _, reply = engine.next(0.0)
    with pytest.raises(BudgetReached, match=r"The budget is spent\.\n  got:     3"):
        content_of("it", reply)
    assert Host(Budget, b"").call("") == MADE
