"""A lock has one holder, and goes with it; a file that is replaced is the old or the new one at any moment."""

import resource
import signal
import subprocess
import sys

import numpy as np
import pytest

from robo_rl.errors import RunError
from robo_rl.evaluation.video import write_mp4
from robo_rl.system import durable_files
from robo_rl.system.durable_files import exclusive_lock, write_durably

HOLD = """
import sys, time
from pathlib import Path
from robo_rl.system.durable_files import exclusive_lock
lock = exclusive_lock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(600)
"""
REPLACE = """
import itertools, sys
from pathlib import Path
from robo_rl.system.durable_files import write_durably
print("ready", flush=True)
for number in itertools.count():
    write_durably(Path(sys.argv[1]), bytes([number % 256]) * (1 << 16))
"""


def test_exclusive_lock_is_freed_by_a_kill_of_its_holder(tmp_path):
    path = tmp_path / "lock"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(RunError, match="busy"):
            exclusive_lock(path, RunError("busy"))
        holder.send_signal(signal.SIGKILL)
    with exclusive_lock(path, RunError("busy")):
        pass


def test_exclusive_lock_without_a_file_is_an_error_of_the_disk(tmp_path):
    with pytest.raises(FileNotFoundError):
        exclusive_lock(tmp_path / "nowhere" / "lock", RunError("busy"))


def test_write_durably_is_whole_whenever_it_is_killed(tmp_path):
    path = tmp_path / "file"
    write_durably(path, b"first")
    with subprocess.Popen([sys.executable, "-c", REPLACE, str(path)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout.readline() == b"ready\n"
        while path.read_bytes() == b"first":
            pass
        for _ in range(200):
            content = path.read_bytes()
            assert len(content) == 1 << 16 and len(set(content)) == 1
        writer.send_signal(signal.SIGKILL)
    assert len(set(path.read_bytes())) == 1


def test_write_durably_leaves_the_old_file_if_it_fails(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_durably(path, b"old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable_files.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_durably(path, b"new")
    assert path.read_bytes() == b"old" and [each.name for each in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("most", [0, 1_000, 20_000])
def test_a_film_that_does_not_fit_on_the_disk_has_no_name(tmp_path, most):
    """Of a film that was there before, the old one is kept."""
    random = np.random.default_rng(0)
    film, frames = tmp_path / "film.mp4", [random.integers(0, 255, (64, 64, 3), np.uint8) for _ in range(20)]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for old in ([], frames[:1]):
        if old:
            write_mp4(film, iter(old), 20.0)
        kept = {path: path.read_bytes() for path in tmp_path.iterdir()}
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))  # a write beyond it fails as on a full disk
        try:
            with pytest.raises(OSError, match="File too large"):
                write_mp4(film, iter(frames), 20.0)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == kept
