"""A damaged or hostile checkpoint is one clear error, and the older sound one is taken instead."""

import errno
import hashlib
import io
import json
import os
from pathlib import Path

import numpy as np
import pytest

from robo_rl.errors import CheckpointCorrupt, RunError
from robo_rl.runs import checkpoints
from robo_rl.runs.checkpoints import Checkpoint, load_checkpoint, save_checkpoint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for step in (1, 2):
        save_checkpoint(tmp_path, Checkpoint(step, {"part": {"x": np.arange(8.0) + step}}))
    return tmp_path


def newest(folder: Path) -> Path:
    return folder / "0000000002"


def manifest(folder: Path, text: str) -> None:
    (newest(folder) / "MANIFEST.json").write_text(text)


def changed(folder: Path, **changes: object) -> None:
    found = json.loads((newest(folder) / "MANIFEST.json").read_text())
    manifest(folder, json.dumps(found | changes))


def files(folder: Path, **entries: object) -> None:
    found = json.loads((newest(folder) / "MANIFEST.json").read_text())
    changed(folder, files={**found["files"], **entries})


def content(folder: Path, name: str, data: bytes) -> None:
    """Puts another content in the place of a file, and its hash into the manifest."""
    (newest(folder) / name).write_bytes(data)
    files(folder, **{name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}})


def tensors(header: object, data: bytes = bytes(64)) -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(**changes: object) -> dict[str, object]:
    return {"/x": {"dtype": "F64", "shape": [8], "data_offsets": [0, 64]} | changes}


def pipe(folder: Path, name: str) -> None:
    (newest(folder) / name).unlink()
    os.mkfifo(newest(folder) / name)


def link(folder: Path, name: str, target: str) -> None:
    (newest(folder) / name).unlink()
    (newest(folder) / name).symlink_to(target)


DEEP = "[" * 100_000 + "]" * 100_000
ENTRY = {"size": 1, "sha256": "0" * 64}
DAMAGES = {
    "null": lambda f: manifest(f, "null"),
    "a list": lambda f: manifest(f, "[1]"),
    "deep": lambda f: manifest(f, DEEP),
    "no text": lambda f: (newest(f) / "MANIFEST.json").write_bytes(b"\xff\xfe"),
    "files are a list": lambda f: changed(f, files=["part.json"]),
    "files are none": lambda f: changed(f, files=None),
    "an entry is a number": lambda f: files(f, **{"part.json": 1}),
    "an entry is nothing": lambda f: files(f, **{"part.json": None}),
    "an absolute name": lambda f: files(f, **{"/etc/passwd": ENTRY}),
    "a name that leads out": lambda f: files(f, **{"../0000000001/part.json": ENTRY}),
    "a step that leads out": lambda f: changed(f, step="../../x"),
    "another step": lambda f: changed(f, step=7),
    "a step that is true": lambda f: changed(f, step=True),
    "no arrays": lambda f: changed(
        f, files={"part.json": json.loads((newest(f) / "MANIFEST.json").read_text())["files"]["part.json"]}
    ),
    "deep state": lambda f: content(f, "part.json", DEEP.encode()),
    "an array that is no name": lambda f: content(f, "part.json", b'{"x": {"$array": [1], "shape": [8]}}'),
    "a shape that is a word": lambda f: content(f, "part.json", b'{"x": {"$array": "/x", "shape": "abc"}}'),
    "a header that is null": lambda f: content(f, "part.safetensors", tensors(None)),
    "a header beyond the file": lambda f: content(f, "part.safetensors", (1 << 62).to_bytes(8, "little") + bytes(8)),
    "odd offsets": lambda f: content(f, "part.safetensors", tensors(entry(data_offsets=[1, 4]))),
    "offsets from the end": lambda f: content(f, "part.safetensors", tensors(entry(data_offsets=[-64, 64]))),
    "one offset": lambda f: content(f, "part.safetensors", tensors(entry(data_offsets=[0]))),
    "an unknown type": lambda f: content(f, "part.safetensors", tensors(entry(dtype="BF16"))),
    "a shape of words": lambda f: content(f, "part.safetensors", tensors(entry(shape=["a"]))),
    "an absurd shape": lambda f: content(f, "part.safetensors", tensors(entry(shape=[1 << 60, 1 << 60]))),
    "nothing": lambda f: content(f, "part.safetensors", b""),
    "a pipe": lambda f: pipe(f, "part.json"),
    "a pipe as manifest": lambda f: pipe(f, "MANIFEST.json"),
    "zeros without end": lambda f: link(f, "part.safetensors", "/dev/zero"),
    "a manifest without end": lambda f: link(f, "MANIFEST.json", "/dev/zero"),
    "a link": lambda f: link(f, "part.json", "../0000000001/part.json"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_the_older_checkpoint_is_taken(folder: Path, damage) -> None:
    damage(folder)
    found = load_checkpoint(folder)
    assert found.step == 1 and found.parts["part"]["x"].tolist() == (np.arange(8.0) + 1).tolist()
    with pytest.raises(CheckpointCorrupt, match=r"No checkpoint in .* can be loaded(.|\n)*0000000002: "):
        load_checkpoint(folder, 2)


@pytest.mark.parametrize("number", ["EIO", "EACCES", "EMFILE", "ESTALE", "ENOMEM"])
@pytest.mark.parametrize("name", ["MANIFEST.json", "part.json", "part.safetensors"])
def test_no_older_one_is_taken_if_the_newest_cannot_be_read_now(folder: Path, monkeypatch, name: str, number: str) -> None:
    """Training would go on from it, and lose what was learnt since."""
    opened, failing = io.open, newest(folder) / name

    def open_(file, *arguments, **options):
        if os.fspath(file) == str(failing):
            raise OSError(getattr(errno, number), number) if number != "ENOMEM" else MemoryError
        return opened(file, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(io, "open", open_)
        with pytest.raises(RunError, match=r"0000000002 cannot be read now; nothing says(.|\n)*do: ") as told:
            load_checkpoint(folder)
    assert not isinstance(told.value, CheckpointCorrupt) and load_checkpoint(folder).step == 2


@pytest.mark.parametrize("name", ["²", "0x10", "12.tmp-1"])
def test_other_folders_are_no_checkpoints(folder: Path, name: str) -> None:
    (folder / name).mkdir()
    (folder / "0000000009").write_text("a file")
    assert load_checkpoint(folder).step == 2


def test_a_checkpoint_that_fails_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(folder, Checkpoint(3, {"part": {"x": np.zeros(1000)}}))
    assert sorted(path.name for path in folder.iterdir()) == ["0000000001", "0000000002"]
