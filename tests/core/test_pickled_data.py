"""Pickles read as data: what plain ones hold, and that hostile or damaged ones are refused without running anything."""

import os
import pickle
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from robo_rl.system import pickled_data
from robo_rl.system.pickled_data import Instance, NotPlainData, arrays_in, read_pickled_data


class Counted:
    """Any class of somebody else's."""

    def __init__(self):
        self.mean = np.array([1.0, 2.0])


class Running:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", range(5))
def test_plain_values_and_arrays_are_read(protocol):
    value = [
        {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": [1, -(2**40), 2.5, None, True], "c": ("text", b"bytes")},
        np.float64(0.25),
        np.asfortranarray(np.arange(4).reshape(2, 2)),
        np.zeros((0, 3), ">i2"),
        OrderedDict([("x", 1)]),
    ]
    found = read_pickled_data(pickle.dumps(value, protocol=protocol))
    np.testing.assert_array_equal(found[0]["a"], value[0]["a"], strict=True)
    assert (found[0]["b"], found[0]["c"], found[1], found[4]) == (value[0]["b"], value[0]["c"], 0.25, {"x": 1})
    np.testing.assert_array_equal(found[2], value[2])
    assert found[3].shape == (0, 3) and found[3].dtype == np.int16


def test_an_instance_stays_inert():
    found = read_pickled_data(pickle.dumps(Counted()))
    assert isinstance(found, Instance) and found.symbol.endswith(".Counted")
    np.testing.assert_array_equal(found.state["mean"], [1.0, 2.0])


@pytest.mark.parametrize("protocol", range(6))
def test_nothing_of_a_hostile_pickle_runs(tmp_path, protocol):
    victim = tmp_path / "touched"
    content = pickle.dumps({"mean": Running(victim)}, protocol=protocol)
    found = read_pickled_data(content)
    assert isinstance(found["mean"], Instance) and not victim.exists()
    pickle.loads(content)  # noqa: S301 (the test's own)
    assert victim.exists()  # it would have run


CLAIMED = pickle.dumps(np.zeros(4, np.int64), protocol=2)
HOSTILE = {
    "empty": b"",
    "no end": b"\x80\x02]",
    "nothing on the stack": b"\x80\x02.",
    "no mark": b"\x80\x02t.",
    "an operating system's function by an old instruction": b"(S'true'\nios\nsystem\n.",
    "an extension": b"\x80\x02\x82\x01.",
    "a persistent object": b"\x80\x02Pname\n.",
    "an array larger than its bytes": CLAIMED.replace(b"K\x04\x85", b"J\xff\xff\xff\x7f\x85", 1),
    "a memo out of order": b"\x80\x02Nr\xff\xff\xff\x7f.",
    "a value that was never remembered": b"\x80\x02h\x05.",
    "a state without an object": b"\x80\x02N}b.",
    "a call of a number": b"\x80\x02K\x01)R.",
    "an array of objects": pickle.dumps(np.array([Counted()], object)),
    "elements of text": pickle.dumps(np.array(["a"])),
    "an array that never gets values": b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n)R.",
    "a list as key": b"\x80\x02}]K\x01s.",
    "nested too deeply": pickle.dumps(eval("[" * 60 + "]" * 60)),
    "itself": b"\x80\x02]q\x00h\x00a.",
    "cut": CLAIMED[:-30],
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_hostile_and_damaged_pickles_are_refused(content):
    with pytest.raises(NotPlainData):
        read_pickled_data(content)


def test_shared_values_do_not_grow(monkeypatch):
    value: list[object] = []
    for _ in range(40):
        value = [value, value]  # 2^40 lists if each place were made anew
    found = read_pickled_data(pickle.dumps(value))
    assert found[0] is found[1]


def test_a_large_pickle_is_refused(monkeypatch):
    monkeypatch.setattr(pickled_data, "MOST_BYTES", 10)
    with pytest.raises(NotPlainData, match="more than 10"):
        read_pickled_data(pickle.dumps(list(range(20))))


def test_every_byte_changed_is_refused_or_data():
    content = pickle.dumps({"mean": np.arange(3.0), "n": [1, 2]}, protocol=2)
    for place in range(len(content)):
        changed = content[:place] + bytes([content[place] ^ 0x11]) + content[place + 1 :]
        with suppress(NotPlainData):  # any other error fails
            read_pickled_data(changed)


def test_arrays_are_found_with_their_paths():
    found = dict(arrays_in([{"a": np.zeros(2), b"b": {"c": np.ones(1)}}, 3]))
    assert list(found) == ["0/a", "0/b/c"]
