"""Threads that carry calls out: each call once, errors surface once, nothing is left."""

import functools
import threading
import time

import pytest

from robo_rl.errors import InvalidSetting
from robo_sims.batched.thread_pool import ThreadPool, choose_threads


@pytest.fixture
def workers():
    made = ThreadPool(3)
    yield made
    made.close()


def test_every_call_is_carried_out_once(workers):
    for size in (0, 1, 2, 50):
        done = []
        workers.run([functools.partial(done.append, index) for index in range(size)])
        assert sorted(done) == list(range(size))


def test_several_threads_take_part(workers):
    together = threading.Barrier(3, timeout=10)
    workers.run([together.wait] * 3)


def test_an_error_surfaces_after_all_threads_have_come_to_rest(workers):
    done = []

    def slow():
        time.sleep(0.05)
        done.append(True)

    def broken():
        raise ZeroDivisionError("in a simulation")

    with pytest.raises(ZeroDivisionError, match="in a simulation"):
        workers.run([slow, broken, slow])
    assert done == [True, True]
    workers.run([slow])
    assert len(done) == 3, "and the threads work on"


def test_no_thread_is_left():
    before = threading.active_count()
    workers = ThreadPool(4)
    assert threading.active_count() == before + 3
    workers.run([lambda: None])
    workers.close()
    workers.close()
    assert threading.active_count() == before


def test_threads_by_default_are_the_cores_at_hand(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    assert [choose_threads(None, count) for count in (1, 4, 64)] == [1, 4, 8]
    assert choose_threads(3, 64) == 3
    with pytest.raises(InvalidSetting, match="threads is out of range"):
        choose_threads(0, 4)
