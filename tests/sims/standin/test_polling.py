"""A server that is asked often looks for the next call; one that is not sleeps."""

import pytest

pytest.importorskip("msgpack")

from carla_standin import polling
from carla_standin.errors import InvalidOption
from carla_standin.polling import Poller
from carla_standin.server import Options

LINGER = 0.001


class Calls:
    """Stands for a selector: calls come after given pauses [s]; time passes only here."""

    def __init__(self, pauses, monkeypatch):
        self.now, self.pauses, self.next = 0.0, iter(pauses), None
        self.slept = []
        monkeypatch.setattr(polling.time, "perf_counter", lambda: self.now)

    def select(self, patience):
        if self.next is None:
            self.next = self.now + next(self.pauses)
        if patience == 0:
            self.now += 1e-5
            return self._come() if self.next <= self.now else []
        self.slept.append(self.next - self.now)
        end = self.next if patience is None else min(self.next, self.now + patience)
        self.now = max(self.now, end)
        return self._come() if self.next <= self.now else []

    def _come(self):
        self.next = None
        return ["call"]


def slept(pauses, monkeypatch, linger=LINGER, patience=None):
    """Returns for how long [s] it slept in each pause, 0 where it did not."""
    calls = Calls(pauses, monkeypatch)
    waits = Poller(calls, linger)
    found = []
    for _ in pauses:
        calls.slept = []
        assert waits.ready(patience) == ["call"]
        found.append(round(sum(calls.slept), 5))
    return found


def test_after_two_short_pauses_it_looks_until_one_was_long(monkeypatch):
    short, long = 0.0004, 0.005
    pauses = [short] * 4 + [long] + [short] * 4
    looks = long - LINGER  # what is left of a long pause when it has looked in vain
    assert slept(pauses, monkeypatch) == pytest.approx([short, short, 0, 0, looks, short, short, 0, 0], abs=3e-5)


def test_steps_of_two_calls_never_poll_in_vain(monkeypatch):
    between, within = 0.003, 0.0001
    assert slept([between, within] * 5, monkeypatch) == pytest.approx([between, within] * 5)


@pytest.mark.parametrize(("linger", "patience"), [(0.0, None), (LINGER, 1.0)], ids=["told not to", "its own clock"])
def test_it_sleeps_at_once(linger, patience, monkeypatch):
    assert slept([0.0004] * 6, monkeypatch, linger, patience) == pytest.approx([0.0004] * 6)


@pytest.mark.parametrize("linger", [-1e-3, 0.2, float("nan")])
def test_lingering_has_bounds(linger):
    with pytest.raises(InvalidOption, match=r"0 to 0\.1"):
        Options(linger=linger)


PROGRAM = """
import os, time
def used():
    fields = open(f"/proc/{sys.argv[2]}/stat").read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
for _ in range(50):
    world.tick()
time.sleep(0.2)
before = used()
time.sleep(1.0)
result["used"] = used() - before
"""


@pytest.mark.slow
def test_idle_server_uses_no_processor_time(client):
    assert client(PROGRAM)["used"] < 0.05


def test_a_busy_core_ends_polling_for_a_while(monkeypatch):
    """Red before: it went on polling and took the core from the client that it waited for."""
    calls = Calls([0.0002] * 400, monkeypatch)
    waits = Poller(calls, LINGER)
    for _ in range(10):
        waits.ready(None)
    calls.slept = []
    waits.ready(None)
    assert calls.slept == []  # it polls

    def others_run() -> None:
        calls.now += 2 * polling.CROWDED

    monkeypatch.setattr(polling, "GIVE_WAY", others_run)
    waits.ready(None)
    monkeypatch.setattr(polling, "GIVE_WAY", lambda: None)
    calls.slept = []
    for _ in range(polling.REST):
        waits.ready(None)
    assert len(calls.slept) == polling.REST
    calls.slept = []
    waits.ready(None)
    assert calls.slept == []
