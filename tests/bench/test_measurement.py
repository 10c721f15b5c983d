"""Contestants take turns, and a ratio above 1 is always good news."""

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from robo_bench.measurement import Bound, Case, Effort, Figures, confined, peak_memory, take_turns, timed
from robo_rl.errors import InvalidSetting


def test_contestants_take_turns_in_alternating_order():
    called = []
    trial = {name: lambda seconds, name=name: called.append((name, seconds)) or 1.0 for name in "ab"}
    figures = take_turns(trial, Effort(seconds=3.0, repeats=3))
    assert [name for name, seconds in called if seconds == 3.0] == ["a", "b", "b", "a", "a", "b"]
    assert [name for name, seconds in called if seconds < 3.0] == ["a", "b"]  # the round that is not counted
    assert figures == {"a": [1.0] * 3, "b": [1.0] * 3}


def measured(contestants, unit="steps/s", repeats=1):
    return Case("case", unit, lambda effort, stack: contestants).measure(Effort(seconds=1.0, repeats=repeats))


def test_the_median_counts_and_a_limit_is_no_peer():
    ours, peer = iter([0.0, 10.0, 99.0, 30.0]), iter([0.0, 20.0, 20.0, 5.0])
    contestants = {"ours": lambda _: next(ours), "peer": lambda _: next(peer), "bound": Bound(lambda _: 60.0)}
    row = measured(contestants, repeats=3)
    assert (row.ours, row.peers, row.limit, row.spread) == (30.0, {"peer": 20.0}, 60.0, (10.0, 99.0))
    assert row.ratio == 99.0 / 20.0  # the median of 0.5, 4.95 and 6: each round is a comparison of its own
    assert row.ratios == {"peer": 99.0 / 20.0, "bound": 30.0 / 60.0}


@pytest.mark.parametrize(("unit", "ratio"), [("steps/s", 2.0), ("s", 0.25), ("MB", 0.25)])
def test_the_best_peer_is_the_one_to_beat(unit, ratio):
    contestants = {"ours": lambda _: 4.0, "one": lambda _: 1.0, "two": lambda _: 2.0}
    assert measured(contestants, unit).ratio == ratio


def test_without_peers_there_is_no_ratio():
    assert measured({"ours": lambda _: 1.0}, "s").ratio is None


def test_figures_measured_already_stay_as_they_are():
    assert measured(Figures(2.0, limit=3.0)) == Figures(2.0, limit=3.0)


def test_a_case_closes_what_it_opened_when_a_trial_fails():
    closed = []

    def prepare(effort, stack):
        stack.callback(closed.append, True)
        return {"ours": lambda seconds: 1 / 0}

    with pytest.raises(ZeroDivisionError):
        Case("case", "s", prepare).measure(Effort())
    assert closed == [True]


def test_figures_are_json_of_four_digits():
    assert json.loads(json.dumps(Figures(12345.678, {"gymnasium": 1 / 3}, limit=2e4, ratio=1.23456).to_json())) == {
        "ours": 12350.0,
        "peers": {"gymnasium": 0.3333},
        "limit": 20000.0,
        "ratio": 1.235,
        "spread": None,
        "ratios": {},
    }


@pytest.mark.real_time
def test_timed_counts_work_and_not_what_comes_before():
    calls = []

    def work():
        calls.append("work")
        time.sleep(0.02)
        return 5

    found = timed(work, 0.03, before=lambda: (calls.append("before"), time.sleep(0.1)))
    assert calls == ["before", "work"] * 2 and found.units == 10
    assert 0.04 <= found.wall < 0.1 and found.busy < 0.04
    assert timed(work, 0.0).units == 5, "once at least"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system confines no process")
def test_threads_begun_meanwhile_stay_on_so_many_cores():
    before = os.sched_getaffinity(0)
    with pytest.raises(KeyError), confined(1):
        with ThreadPoolExecutor(1) as pool:
            assert len(pool.submit(os.sched_getaffinity, 0).result()) == 1
        raise KeyError
    assert os.sched_getaffinity(0) == before


@pytest.mark.slow
def test_peak_memory_counts_what_was_held_and_freed():
    before = peak_memory()
    assert len(b"x" * int((before + 50) * 1e6))  # more than ever before, all of it written
    assert peak_memory() > before + 40


@pytest.mark.parametrize("wrong", [{"seconds": 0.0}, {"repeats": 0}, {"threads": 0}])
def test_effort_out_of_range_is_refused(wrong):
    with pytest.raises(InvalidSetting, match=f"'{next(iter(wrong))}' is out of range"):
        Effort(**wrong)
