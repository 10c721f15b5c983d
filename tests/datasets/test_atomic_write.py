"""What is made under another name is whole under its own, or is not there."""

import os
import signal
import subprocess
import sys

import h5py
import pytest

from robo_datasets.atomic_write import atomic_write
from robo_datasets.hdf5_arrays import created_hdf5
from robo_rl.errors import DatasetBusy, DatasetError

DIE = """
import os, signal, sys
from pathlib import Path
from robo_datasets.atomic_write import atomic_write
with atomic_write(Path(sys.argv[1])) as draft:
    draft.mkdir()
    (draft / "half").write_text("of it")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_file_and_what_belongs_to_it(tmp_path):
    out = tmp_path / "deep" / "one.hdf5"
    with atomic_write(out, tmp_path / "deep" / "one.side") as draft:
        draft.write_text("content")
        draft.with_name("one.side").write_text("more")
        assert not out.exists()
    assert {path.name: path.read_text() for path in out.parent.iterdir()} == {"one.hdf5": "content", "one.side": "more"}


def test_a_failure_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError), atomic_write(tmp_path / "x") as draft:
        draft.mkdir()
        raise ZeroDivisionError
    assert [*tmp_path.iterdir()] == []


def test_kill_leaves_no_file_and_next_writer_cleans_up(tmp_path):
    out = tmp_path / "made"
    assert subprocess.run([sys.executable, "-c", DIE, str(out)], check=False).returncode == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir()] == [".made.partial"]
    with atomic_write(out) as draft:
        assert not draft.exists()
        draft.mkdir()
    assert [path.name for path in tmp_path.iterdir()] == ["made"] and [*out.iterdir()] == []


@pytest.mark.parametrize("name", [".", "/", "", "there", "link"])
def test_a_name_that_is_taken(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").write_text("mine")
    (tmp_path / "link").symlink_to("nowhere")
    with (
        pytest.raises(DatasetError, match="is there already"),
        atomic_write(tmp_path / name if name != "/" else tmp_path.parent),
    ):
        pass
    assert (tmp_path / "there").read_text() == "mine"


def test_two_at_once(tmp_path):
    with atomic_write(tmp_path / "x") as draft:
        draft.write_text("first")
        with pytest.raises(DatasetBusy, match=r"Another process is making (.|\n)*/x"), atomic_write(tmp_path / "x"):
            pass
    assert (tmp_path / "x").read_text() == "first"


@pytest.mark.slow
@pytest.mark.parametrize("room", [0, 5_000, 40_000])
def test_a_disk_that_is_full_is_one_error_of_hdf5(tmp_path, room):
    """In a process of its own: HDF5 that was told of it crashes at a later file."""
    script = f"""
import resource, signal, numpy as np
from pathlib import Path
from robo_datasets.hdf5_arrays import created_hdf5, write_array
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, resource.RLIM_INFINITY))
for turn in range(3):
    try:
        with created_hdf5(Path({str(tmp_path)!r}) / f"{{turn}}.h5") as file:
            for number in range(20):
                write_array(file.create_group(str(number)), "x", np.random.default_rng(number).random(1000))
            assert len(file["3/x"]) == 1000
    except OSError as error:
        print(error.errno)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["27"] * 3, "")


def test_hdf5_that_fits_is_whole(tmp_path):
    with created_hdf5(tmp_path / "x.h5") as file:
        file["x"] = [1, 2, 3]
    with h5py.File(tmp_path / "x.h5") as file:
        assert file["x"][()].tolist() == [1, 2, 3]
    assert os.listdir(tmp_path) == ["x.h5"]
