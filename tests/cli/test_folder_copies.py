"""Copies of a folder that somebody else writes: only what is new, nothing half-way, and nothing outside."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from robo_app.cluster import folder_copies
from robo_app.cluster.folder_copies import ChangingFolder, place
from robo_rl.errors import WorkerFailed
from robo_rl.runs.checkpoints import checkpoint_steps, has_checkpoint


@pytest.fixture
def written() -> Path:
    files = ("evaluation.json", "lock", "checkpoints/0000000020/MANIFEST.json", "checkpoints/0000000020/learner.json")
    for name in (*files, "checkpoints/0000000040.tmp-7/learner.json", "episodes/catalogue.sqlite", "metrics.jsonl"):
        path = Path("run", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return Path("run")


def test_a_copy_follows_its_folder(written):
    folder, copy = ChangingFolder(written), Path("copy")
    place(copy, *folder.changes(is_over=False))
    assert not (copy / "episodes").exists() and not (copy / "lock").exists() and len([*copy.glob("checkpoints/*")]) == 1
    with (written / "metrics.jsonl").open("a") as file:
        file.write("more")
    (written / "checkpoints/0000000020").rename(written / "checkpoints/0000000060")
    files, gone = folder.changes()
    assert {*files} == {"metrics.jsonl", "episodes/catalogue.sqlite"} | {
        f"checkpoints/0000000060/{name}" for name in ("MANIFEST.json", "learner.json")
    }
    place(copy, files, gone)
    assert (copy / "metrics.jsonl").read_text() == "metrics.jsonlmore"
    assert [path.name for path in copy.glob("checkpoints/*")] == ["0000000060"]
    assert folder.changes() == ({}, [])


def test_checkpoint_removed_during_listing_is_skipped(written, monkeypatch):
    old, scandir = written / "checkpoints/0000000020", os.scandir

    def removed(path):
        if not isinstance(path, int) and Path(path) == old and old.exists():
            shutil.rmtree(old)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", removed)
    files, _ = ChangingFolder(written).changes(is_over=False)
    assert {*files} == {"evaluation.json", "metrics.jsonl"} and not old.exists()


def test_what_says_that_something_is_whole_comes_last(written, monkeypatch):
    files, _ = ChangingFolder(written).changes()
    placed, rename = [], Path.rename
    monkeypatch.setattr(Path, "rename", lambda path, to: placed.append(to.name) or rename(path, to))
    place(Path("copy"), files, [])
    assert placed[-3:] == ["MANIFEST.json", "0000000020", "evaluation.json"] and len(placed) == 6


def test_place_that_is_killed_leaves_no_half_checkpoint(written, monkeypatch):
    files, _ = ChangingFolder(written).changes()
    write = folder_copies.write_durably

    def killed(path, content):
        if path.name == "MANIFEST.json":
            raise KeyboardInterrupt
        write(path, content)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(folder_copies, "write_durably", killed)
        place(Path("copy"), files, [])
    assert not has_checkpoint(Path("copy/checkpoints")) and checkpoint_steps(Path("copy/checkpoints")) == []
    place(Path("copy"), files, [])
    assert checkpoint_steps(Path("copy/checkpoints")) == [20]


@pytest.mark.parametrize("name", ["../run.json", "/run.json", "a/../../b", ""])
def test_a_file_that_leads_out_is_refused(name):
    for files, gone in (({name: np.zeros(1, np.uint8)}, []), ({}, [name])):
        with pytest.raises(WorkerFailed, match="leads out of its folder"):
            place(Path("copy"), files, gone)
    assert not Path("copy").exists()
