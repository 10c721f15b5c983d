"""Work is done one ahead, in order; what fails does so when it is its turn."""

import threading
from contextlib import closing

import pytest

from robo_rl.system.prefetch import prefetched


def test_results_come_in_order_and_one_is_ahead():
    begun, second = [], threading.Event()

    def work(item: int) -> int:
        begun.append(item)
        if item == 1:
            second.set()
        return 10 * item

    results = prefetched(work, range(5))
    assert next(results) == 0
    assert second.wait(5), "the second is worked on while the first is used"
    assert 3 not in begun
    assert list(results) == [10, 20, 30, 40]
    assert list(prefetched(work, [])) == []


def test_a_failure_is_raised_when_it_is_its_turn():
    results = prefetched(lambda item: 1 // item, [1, 0, 1])
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_it_may_be_left_before_its_end():
    done, threads = [], threading.active_count()
    with closing(prefetched(done.append, range(100))) as results:
        next(results)
    assert len(done) <= 3 and threading.active_count() == threads


def test_several_are_worked_on_at_once_and_come_in_order():
    together = threading.Barrier(2, timeout=5)

    def work(item: int) -> int:
        together.wait()  # passes only where two are at work
        return item

    assert list(prefetched(work, range(6), at_once=2)) == [*range(6)]
