"""Where a replay memory lies: RAM and mapped files are alike, what cannot fit is refused in time, a kill leaves nothing."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factories import axes, make_spec, picture_spec
from robo_rl.errors import InvalidSetting
from robo_rl.replay import storage as memory
from robo_rl.replay.buffer import ReplayBuffer
from robo_rl.replay.storage import InMemory, Mapped, available_memory, storage_in
from robo_rl.runs.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from robo_rl.spec.environment import ArraySpec
from robo_rl.types import Transition

PIXELS = make_spec("pixels", picture_spec("camera_front", (84, 84, 3)), ArraySpec("x", (3,)), action=axes("a", "b"))
ROW = 84 * 84 * 3 + 3 * 4 + 2 * 4 + 4 + 3
"""[byte] picture, vector, action, reward, three flags"""


def observation(number):
    return {"camera_front": np.full((84, 84, 3), number % 251, np.uint8), "x": np.full(3, number, np.float32)}


def step(number, end=""):
    action = np.full(2, number / 1000, np.float32)
    after = observation(number + 1)
    return Transition(observation(number), action, float(number), after, end == "terminated", end == "truncated", action)


def same(one, other):
    for name in ("actions", "rewards", "masks", "discounts"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    for name in one.observations:
        np.testing.assert_array_equal(one.observations[name], other.observations[name])
        np.testing.assert_array_equal(one.next_observations[name], other.next_observations[name])


def put(replay: ReplayBuffer, transition: Transition) -> None:
    if not replay.is_running():
        replay.begin(transition.observation)
    replay.add(transition)


OPERATIONS = st.lists(st.sampled_from(["step", "terminated", "truncated", "cut", "sample", "save"]), min_size=1, max_size=40)


@given(operations=OPERATIONS, capacity=st.integers(2, 12))
@pytest.mark.slow
def test_mapped_and_ram_give_the_same_samples(tmp_path_factory, operations, capacity):
    folder = tmp_path_factory.mktemp("rows")
    pair = [ReplayBuffer(PIXELS, capacity, 3, storage) for storage in (InMemory(), Mapped(folder))]
    for number, operation in enumerate(operations):
        for index, replay in enumerate(pair):
            if operation == "cut":
                replay.cut()
            elif operation == "save":
                save_checkpoint(folder / str(index), Checkpoint(number, {"replay": replay.state_dict()}))
                fresh = ReplayBuffer(PIXELS, capacity, 9, (Mapped(folder), InMemory())[index])  # the other one goes on
                fresh.load_state_dict(load_checkpoint(folder / str(index)).parts["replay"])
                pair[index] = fresh
            elif operation != "sample":
                put(replay, step(number, operation))
        assert len(pair[0]) == len(pair[1])
        if len(pair[0]):
            same(pair[0].sample(5, 3, 0.9), pair[1].sample(5, 3, 0.9))


def test_the_size_is_known_before_and_frames_are_stored_once():
    assert ReplayBuffer.bytes_at_capacity(PIXELS, 1_000_000) == 1_000_000 * ROW
    assert sum(rows.nbytes for rows in ReplayBuffer(PIXELS, 50, 0)._stored.values()) == 50 * ROW
    plain = ReplayBuffer(PIXELS, 100_000, 0).statement(10_000)
    assert plain == "replay memory: 0.21 GB for 10000 steps, at most 2.12 GB in RAM (100000 rows of 21195 bytes)"


def test_the_size_in_files_is_that_of_the_capacity(tmp_path):
    said = ReplayBuffer(PIXELS, 10, 0, Mapped(tmp_path)).statement(3)
    assert said == f"replay memory: 0.00 GB in files mapped from {tmp_path} (10 rows of 21195 bytes)"


def test_buffer_larger_than_ram_is_refused_before_allocation(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 10 * 10**9)
    numpy = SimpleNamespace(dtype=np.dtype, zeros=lambda *arguments: pytest.fail("something was reserved"))
    monkeypatch.setattr(memory, "np", numpy)
    with pytest.raises(InvalidSetting) as caught:
        ReplayBuffer(PIXELS, 1_000_000, 0)
    assert str(caught.value) == (
        "The replay memory does not fit.\n"
        "  got:     21.2 GB for 1000000 rows of 21195 bytes\n"
        "  allowed: 10.0 GB, the free memory of this machine: 471809 rows\n"
        "  do:      lower learner.replay.capacity, or set learner.replay.folder to a folder on a disk with room"
    )


def test_what_no_machine_can_hold_is_refused_here_too(tmp_path):
    for storage, words in ((InMemory(), "free memory of this machine"), (Mapped(tmp_path), "space on the disk of")):
        with pytest.raises(InvalidSetting, match=words):
            ReplayBuffer(PIXELS, 10**12, 0, storage)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(InvalidSetting, match=r"cannot be mapped there(.|\n)*nowhere\n(.|\n)*learner.replay.folder"):
        ReplayBuffer(PIXELS, 10, 0, storage_in(str(tmp_path / "nowhere")))


def test_a_name_of_a_folder_becomes_a_storage(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert storage_in(None) == InMemory()
    assert storage_in("~/rows") == Mapped(tmp_path / "rows")


def test_mapped_files_have_no_name_but_take_their_blocks(tmp_path):
    before = os.statvfs(tmp_path).f_bfree
    replay = ReplayBuffer(PIXELS, 2_000, 0, Mapped(tmp_path))
    assert list(tmp_path.iterdir()) == []
    taken = (before - os.statvfs(tmp_path).f_bfree) * os.statvfs(tmp_path).f_frsize
    assert taken > 1_000 * ROW  # others write here too: no exact number
    put(replay, step(0))
    assert len(replay) == 1


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = {tests!r}
from test_memory import *
replay = ReplayBuffer(PIXELS, 40, 3, Mapped(Path({folder!r})))
for number in range(60):
    put(replay, step(number, "truncated" if number % 7 == 6 else ""))
    if number == 50:
        save_checkpoint(Path({folder!r}) / "checkpoints", Checkpoint(number, {{"replay": replay.state_dict()}}))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_a_kill_leaves_nothing_and_the_checkpoint_goes_on(tmp_path):
    code = KILLED.format(tests=[str(folder) for folder in Path(__file__).parents[:2]], folder=str(tmp_path))
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoints"]
    expected = ReplayBuffer(PIXELS, 40, 3)
    for number in range(51):
        put(expected, step(number, "truncated" if number % 7 == 6 else ""))
    resumed = ReplayBuffer(PIXELS, 40, 99, Mapped(tmp_path))
    resumed.load_state_dict(load_checkpoint(tmp_path / "checkpoints").parts["replay"])
    for number in range(51, 70):
        for replay in (expected, resumed):
            put(replay, step(number))
        same(expected.sample(8, 3), resumed.sample(8, 3))


def test_free_memory_is_a_plausible_number():
    assert 10**8 < available_memory() < 10**14


@pytest.mark.parametrize(("limit", "expected"), [("max", 2**63 - 1), ("5000", 5000 - (4000 - 1500)), ("1000", 0)])
def test_a_container_may_take_what_its_limit_leaves(tmp_path, limit, expected):
    (tmp_path / "memory.max").write_text(f"{limit}\n")
    (tmp_path / "memory.current").write_text("4000\n")
    (tmp_path / "memory.stat").write_text("anon 2500\ninactive_file 1500\n")
    assert memory._free_of_container(tmp_path) == expected
    assert memory._free_of_container(tmp_path / "none") == 2**63 - 1
