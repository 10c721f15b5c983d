"""Contestants take turns, and a ratio above 1 is always good news."""

import json
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from robo_bench.measurement import Effort, Measurement, confined, measurement, peak_memory, take_turns
from robo_rl.errors import InvalidSetting


def test_contestants_take_turns_in_alternating_order():
    called = []
    trial = {name: lambda seconds, name=name: called.append((name, seconds)) or 1.0 for name in "ab"}
    figures = take_turns(trial, Effort(seconds=3.0, repeats=3))
    assert [name for name, seconds in called if seconds == 3.0] == ["a", "b", "b", "a", "a", "b"]
    assert [name for name, seconds in called if seconds < 3.0] == ["a", "b"]  # the round that is not counted
    assert figures == {"a": [1.0] * 3, "b": [1.0] * 3}


def test_the_median_counts_and_a_limit_is_no_peer():
    ours, peer = iter([0.0, 10.0, 99.0, 30.0]), iter([0.0, 20.0, 20.0, 5.0])
    contestants = {"ours": lambda _: next(ours), "peer": lambda _: next(peer), "bound": lambda _: 60.0}
    row = measurement("env", "case", "steps/s", contestants, Effort(1.0, 3), bounds=["bound"])
    assert (row.ours, row.peers, row.limit, row.spread) == (30.0, {"peer": 20.0}, 60.0, (10.0, 99.0))
    assert row.ratio == 99.0 / 20.0  # the median of 0.5, 4.95 and 6: each round is a comparison of its own
    assert row.ratios == {"peer": 99.0 / 20.0, "bound": 30.0 / 60.0}


@pytest.mark.parametrize(("unit", "ratio"), [("steps/s", 2.0), ("s", 0.25), ("MB", 0.25)])
def test_the_best_peer_is_the_one_to_beat(unit, ratio):
    contestants = {"ours": lambda _: 4.0, "one": lambda _: 1.0, "two": lambda _: 2.0}
    assert measurement("b", "c", unit, contestants, Effort(1.0, 1)).ratio == ratio


def test_without_peers_there_is_no_ratio():
    assert measurement("b", "c", "s", {"ours": lambda _: 1.0}, Effort(1.0, 1)).ratio is None


def test_a_row_is_one_line_of_json():
    line = Measurement("env", "case", "steps/s", 12345.678, {"gymnasium": 1 / 3}, limit=2e4, ratio=1.23456).to_json()
    assert "\n" not in line
    assert json.loads(line) == {
        "bench": "env",
        "case": "case",
        "unit": "steps/s",
        "ours": 12350.0,
        "peers": {"gymnasium": 0.3333},
        "limit": 20000.0,
        "ratio": 1.235,
        "spread": None,
        "ratios": {},
    }


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system confines no process")
def test_threads_begun_meanwhile_stay_on_so_many_cores():
    before = os.sched_getaffinity(0)
    with pytest.raises(KeyError), confined(1):
        with ThreadPoolExecutor(1) as pool:
            assert len(pool.submit(os.sched_getaffinity, 0).result()) == 1
        raise KeyError
    assert os.sched_getaffinity(0) == before


def test_peak_memory_counts_what_was_held_and_freed():
    before = peak_memory("env").ours
    assert len(b"x" * int((before + 50) * 1e6))  # more than ever before, all of it written
    assert peak_memory("env").ours > before + 40


@pytest.mark.parametrize("wrong", [{"seconds": 0.0}, {"repeats": 0}, {"threads": 0}])
def test_effort_out_of_range_is_refused(wrong):
    with pytest.raises(InvalidSetting, match=f"'{next(iter(wrong))}' is out of range"):
        Effort(**wrong)
