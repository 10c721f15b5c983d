"""Checkpoints: what is saved comes back bit for bit, and no kill, tear or flip is mistaken for a sound one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from robo_rl.errors import CheckpointCorrupt, InvalidSetting
from robo_rl.runs.checkpoints import PIECE, Checkpoint, checkpoint_steps, load_checkpoint, save_checkpoint

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**130), 2**130)  # states of PCG64 generators have 128 bits
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8"), max_size=8)
    | arrays.arrays(st.sampled_from(["f4", "f8", "i8", "u1", "?"]), arrays.array_shapes(min_dims=0, min_side=0, max_side=3))
)
STATES = st.dictionaries(
    st.text("abc_.", min_size=1, max_size=4),
    st.recursive(LEAVES, lambda inner: st.dictionaries(st.text("xyz", max_size=3), inner) | st.lists(inner, max_size=3)),
    max_size=4,
)


def same(a: object, b: object) -> bool:
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return type(a) is type(b) and a == b


@given(state=STATES)
@settings(max_examples=60, deadline=None)
@pytest.mark.slow
def test_any_state_comes_back_bit_for_bit(tmp_path_factory: pytest.TempPathFactory, state: dict[str, object]) -> None:
    folder = tmp_path_factory.mktemp("checkpoints")
    save_checkpoint(folder, Checkpoint(7, {"part": state}))
    loaded = load_checkpoint(folder)
    assert loaded.step == 7
    assert same(state, loaded.parts["part"])


def test_tensors_come_back_as_equal_arrays(tmp_path: Path) -> None:
    tensor = torch.arange(6.0).reshape(2, 3).T  # not contiguous
    save_checkpoint(tmp_path, Checkpoint(1, {"learner": {"w": tensor, "scalar": torch.tensor(3)}}))
    learner = load_checkpoint(tmp_path).parts["learner"]
    assert np.array_equal(learner["w"], tensor.numpy())
    assert learner["scalar"].shape == () and learner["scalar"] == 3


def test_the_last_two_are_kept_and_the_newest_is_loaded(tmp_path: Path) -> None:
    for step in (1, 2, 10):
        save_checkpoint(tmp_path, Checkpoint(step, {"part": {"step": step}}))
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["0000000002", "0000000010"]
    assert load_checkpoint(tmp_path).parts["part"]["step"] == 10


def test_keep_all_removes_none_and_finds_each_by_step(tmp_path: Path) -> None:
    for step in (5, 10, 15):
        save_checkpoint(tmp_path, Checkpoint(step, {"part": {"value": step}}), kept=0)
    assert checkpoint_steps(tmp_path) == [5, 10, 15]
    assert load_checkpoint(tmp_path, 10) == Checkpoint(10, {"part": {"value": 10}})
    with pytest.raises(CheckpointCorrupt, match="No checkpoint"):
        load_checkpoint(tmp_path, 11)


@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "manifest"])
def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path, damage: str) -> None:
    for step in (1, 2):
        save_checkpoint(tmp_path, Checkpoint(step, {"part": {"x": np.arange(100.0) + step}}))
    victim = tmp_path / "0000000002" / ("MANIFEST.json" if damage == "manifest" else "part.safetensors")
    content = bytearray(victim.read_bytes())
    if damage == "remove":
        victim.unlink()
    elif damage == "flip":
        content[-1] ^= 1
        victim.write_bytes(content)
    else:
        victim.write_bytes(content[: len(content) // 2])
    assert load_checkpoint(tmp_path).step == 1


def test_no_sound_checkpoint_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointCorrupt, match=r"No checkpoint in .* can be loaded(.|\n)*got: +no checkpoint"):
        load_checkpoint(tmp_path)
    save_checkpoint(tmp_path, Checkpoint(5, {"part": {"x": 1}}))
    (tmp_path / "0000000005" / "part.json").write_text("{}")
    with pytest.raises(CheckpointCorrupt, match=r"0000000005: part.json does not match its hash"):
        load_checkpoint(tmp_path)


def test_keys_that_json_would_change_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"State '/optimizer' has keys that JSON cannot hold(.|\n)*\[0\]"):
        save_checkpoint(tmp_path, Checkpoint(1, {"part": {"optimizer": {0: 1.0}}}))


def test_a_hundred_kills_leave_a_loadable_checkpoint_each_time(tmp_path: Path) -> None:
    script = Path(__file__).with_name("kill_checkpoint_writer.py")
    done = subprocess.run([sys.executable, script, tmp_path, "100"], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    kills, hits = map(int, done.stdout.split())
    assert kills == 100
    assert hits > 10, "hardly any kill hit a write: the test would prove nothing"


def test_other_readers_of_the_format_can_read_arrays(tmp_path: Path) -> None:
    arrays = {"flags": np.array([True, False, True]), "wide": np.arange(5.0), "none": np.zeros((0, 3), np.int8)}
    path = save_checkpoint(tmp_path, Checkpoint(1, {"part": arrays}))
    read = safetensors.numpy.load_file(path / "part.safetensors")
    assert {name.removeprefix("/"): value.tolist() for name, value in read.items()} == {
        name: value.tolist() for name, value in arrays.items()
    }


def test_large_arrays_load_aligned_and_detached_from_file(tmp_path: Path) -> None:
    arrays = {"odd": np.ones(3, np.uint8), "large": np.random.default_rng(0).random(PIECE // 8 + 5), "flag": np.array(True)}
    path = save_checkpoint(tmp_path, Checkpoint(1, {"part": arrays}))
    loaded = load_checkpoint(tmp_path).parts["part"]
    assert all(np.array_equal(loaded[name], value) and loaded[name].flags.aligned for name, value in arrays.items())
    loaded["large"][:] = 0
    assert load_checkpoint(tmp_path).parts["part"]["large"].any()
    shutil.rmtree(path)
    assert loaded["odd"].tolist() == [1, 1, 1]
