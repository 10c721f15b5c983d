"""Repair under errors that pass: what no checksum and no format refutes stays in place, and the command ends with an error."""

import errno
import io
import os
import resource
import shutil
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from factories import axes, make_dataset, make_spec, picture_spec, rich_episode
from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset
from robo_datasets.labels import LabelSet
from robo_datasets.preference_collection import _require_as_seen
from robo_datasets.repair import repair, verify
from robo_rl.errors import DatasetBusy, DatasetError, EpisodeCorrupt, is_passing
from robo_rl.rollout.journal import Journal
from robo_rl.spec.environment import ArraySpec
from robo_rl.system import database
from robo_rl.types import RewardLabels, Transition

SPEC = make_spec(
    "test/Cell-v0",
    ArraySpec("joint_position", (3,), unit="rad"),
    picture_spec("camera_wrist", (8, 6, 3)),
    action=axes("x", "y"),
)
PASSING = {
    name: OSError(getattr(errno, name), os.strerror(getattr(errno, name))) for name in ("EIO", "EACCES", "EMFILE", "ESTALE")
}
PASSING |= {"ENOSPC": OSError(errno.ENOSPC, "No space left on device"), "memory": MemoryError()}
errors = pytest.mark.parametrize("error", PASSING.values(), ids=PASSING)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Dataset:
    """Four episodes, each with a note; the last two are not in the catalogue, as after a crash."""
    dataset = make_dataset(tmp_path_factory.mktemp("made") / "data", SPEC, [rich_episode(SPEC, 5, seed) for seed in range(4)])
    for number, entry in enumerate(dataset.entries()):
        dataset.catalogue.note(entry.identity, "schön")
        os.utime(dataset.path / "episodes" / entry.file, (1_000 + number, 1_000 + number))
    for entry in dataset.entries()[2:]:
        dataset.catalogue.remove(entry.identity)
    return dataset


@pytest.fixture
def filled(made, tmp_path) -> Dataset:
    return Dataset(Path(shutil.copytree(made.path, tmp_path / "data")))


def state_of(dataset):
    """Returns path -> content of all files, and the rows of the catalogue."""
    files = {path: path.read_bytes() for path in dataset.path.rglob("*") if path.is_file() and ".sqlite" not in path.name}
    del files[dataset.path / "lock"]
    return files, dataset.entries(), dataset.catalogue.all_notes()


@contextmanager
def failing(path, error, monkeypatch):
    """Makes every attempt to open a file fail."""
    opened = io.open

    def open_(file, *arguments, **options):
        if os.fspath(file) == str(path):
            raise error
        return opened(file, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(io, "open", open_)
        yield


def orphan(dataset):
    listed = {entry.file for entry in dataset.entries()}
    return next(path for path in sorted((dataset.path / "episodes").iterdir()) if path.name not in listed)


@errors
@pytest.mark.parametrize("kind", ["listed", "orphan"])
def test_an_episode_that_cannot_be_read_now_stays(filled, monkeypatch, capsys, error, kind):
    os.truncate(filled.path / "episodes" / filled.entries()[1].file, 100)  # which the next repair will move
    path = filled.path / "episodes" / filled.entries()[0].file if kind == "listed" else orphan(filled)
    before = state_of(filled)
    with failing(path, error, monkeypatch), pytest.raises(DatasetError, match=r"(?s)cannot be read now.*do: ") as told:
        dispatch(["data", "repair", str(filled.path)])
    assert not isinstance(told.value, EpisodeCorrupt) and path.name in str(told.value)
    assert state_of(filled) == before and capsys.readouterr().out == ""
    assert dispatch(["data", "repair", str(filled.path)]) == 0
    assert "3 problems mended; 3 episodes" in capsys.readouterr().out
    assert [path.name for path in (filled.path / "quarantine").iterdir()].count("entries.jsonl") == 1


@errors
def test_recording_on_adopts_nothing_that_it_cannot_read(filled, monkeypatch, error):
    before = state_of(filled)
    with filled.writer() as writer:
        with failing(orphan(filled), error, monkeypatch), pytest.raises(DatasetError, match="cannot be read now"):
            repair(writer, thorough=False)
        assert state_of(filled) == before
        assert [found.action for found in repair(writer, thorough=False)] == ["adopted", "adopted"]
    assert len(filled) == 4


@errors
def test_verify_calls_nothing_damaged_that_it_cannot_read(filled, monkeypatch, error):
    path = filled.path / "episodes" / filled.entries()[0].file
    with failing(path, error, monkeypatch), pytest.raises(DatasetError, match="cannot be read now"):
        verify(filled)


@errors
def test_a_journal_that_cannot_be_read_now_stays(filled, monkeypatch, error):
    path = journal_of(filled, rich_episode(SPEC, 5, 9))
    before = state_of(filled)
    with filled.writer() as writer:
        with failing(path, error, monkeypatch), pytest.raises(DatasetError, match="cannot be read now"):
            repair(writer)
        assert state_of(filled) == before
        repair(writer)
    assert len(filled) == 5 and verify(filled) == []


def journal_of(dataset, episode):
    """Writes the journal of a recorder that was killed, and returns its path."""
    at = [{name: values[step] for name, values in episode.observations.items()} for step in range(len(episode) + 1)]
    with Journal(dataset.path / "journal", "a" * 32, dataset.spec) as journal:
        journal.begin(at[0], seed=episode.seed, instruction=None, source="test")
        for step, action in enumerate(episode.actions):
            journal.step(Transition(at[step], action, 0.0, at[step + 1], False, False, policy_action=action))
    return journal.path


HOLDER = """import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()"""


@pytest.mark.slow
def test_a_catalogue_that_another_process_holds(filled, monkeypatch):
    monkeypatch.setattr(database, "WAIT", 0.05)
    journal_of(filled, rich_episode(SPEC, 5, 9))
    before = state_of(filled)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-Sc", HOLDER, str(filled.catalogue.path)], **pipes) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(DatasetBusy, match="wait for the program that holds it"):
            dispatch(["data", "repair", str(filled.path)])
        with filled.writer() as writer, pytest.raises(DatasetBusy):
            repair(writer, thorough=False)
        holder.stdin.close()
    assert state_of(filled) == before
    assert dispatch(["data", "repair", str(filled.path)]) == 0
    assert len(filled) == 5 and verify(filled) == []


@contextmanager
def limited(kind, limit):
    """Sets a limit on what this process may use."""
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)


def test_a_full_disk(filled):
    """Files can be read and renamed, and none can grow, as on a full disk."""
    os.truncate(filled.path / "episodes" / filled.entries()[1].file, 100)
    journal_of(filled, rich_episode(SPEC, 5, 9))
    before = state_of(filled)
    with limited(resource.RLIMIT_FSIZE, 0), pytest.raises(DatasetError, match=r"(?s)do: .*(make room|disk)"):
        dispatch(["data", "repair", str(filled.path)])
    assert state_of(filled) == before
    assert dispatch(["data", "repair", str(filled.path)]) == 0
    assert len(filled) == 4 and verify(filled) == []


def test_no_file_may_be_opened(filled):
    """As of a program that leaks open files: the real error, of whichever file comes first."""
    before = state_of(filled)
    taken = {int(name) for name in os.listdir("/proc/self/fd")}
    free = [number for number in range(len(taken) + 9) if number not in taken]
    refused = 0
    for limit in free:  # the limit is one of numbers, not of files: below it, as many are free as were refused
        with limited(resource.RLIMIT_NOFILE, limit), suppress(DatasetError, OSError):
            dispatch(["data", "repair", str(filled.path)])
            break
        assert state_of(filled) == before
        refused += 1
    assert refused > 1 and len(filled) == 4 and not [*(filled.path / "quarantine").iterdir()]


SHORT_OF_MEMORY = """
import os, pathlib, resource, sys
import numpy as np
from robo_datasets.dataset import Dataset
from robo_datasets.repair import repair
from robo_rl.errors import DatasetError

dataset = Dataset(pathlib.Path(sys.argv[1]))
size, ends = dataset.entries()[0].bytes, []
with dataset.writer() as writer:
    assert repair(writer) == []  # loads what is loaded at first use
    used = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    for share in np.linspace(0.05, 4, 25):
        if child := os.fork():
            ends.append(os.waitpid(child, 0)[1])
            continue
        resource.setrlimit(resource.RLIMIT_AS, (used + int(share * size), resource.RLIM_INFINITY))
        try:
            os._exit(9 if repair(writer) else 0)
        except (DatasetError, MemoryError):
            os._exit(1)
print(*map(os.waitstatus_to_exitcode, ends))
"""


@pytest.mark.slow
def test_too_little_memory(tmp_path):
    """Real allocations fail, in Python, NumPy and HDF5, at 25 places of the reading; in a process with a small heap."""
    spec = make_spec("test/Wide-v0", ArraySpec("x", (1_000,)))
    dataset = make_dataset(tmp_path / "data", spec, [rich_episode(spec, 700)])  # 3 MB
    before = state_of(dataset)
    words = [sys.executable, "-c", SHORT_OF_MEMORY, str(dataset.path)]
    found = subprocess.run(words, capture_output=True, text=True, check=True)
    ends = [int(code) for code in found.stdout.split()]  # HDF5 itself may crash (-11): that changes nothing either
    assert state_of(dataset) == before and ends.count(0) > 0 and ends.count(1) > 3 and {*ends} <= {0, 1, -11}


def test_what_was_moved_away_comes_back_to_its_place(filled, capsys):
    """As after a repair by an older version, which took an error that passes for damage."""
    with filled.writer() as writer:
        repair(writer)
    before, notes = filled.entries(), filled.catalogue.all_notes()
    kept, content = filled.path / "episodes" / before[1].file, None
    content = kept.read_bytes()
    labels = RewardLabels(np.ones(5, np.float32), np.ones(5, np.bool_), "m", "w", "p")
    LabelSet(filled, "mine").add(before[1].identity, labels)
    kept.write_bytes(content[:-1])
    os.truncate(filled.path / "episodes" / before[2].file, 10)
    shutil.move(filled.path / "episodes" / before[3].file, filled.path / "quarantine")
    with filled.writer() as writer:
        repair(writer)
    (filled.path / "quarantine" / kept.name).write_bytes(content)
    os.mkfifo(filled.path / "quarantine" / f"{'b' * 32}.{'c' * 16}.h5")
    journal_of(filled, rich_episode(SPEC, 5, 9)).rename(filled.path / "quarantine" / f"{'d' * 32}.journal")
    assert [entry.seed for entry in filled.entries()] == [0]
    capsys.readouterr()
    assert dispatch(["data", "restore", str(filled.path)]) == 0
    said = capsys.readouterr().out
    assert "3 episodes restored; 4 episodes" in said and "recovered 5 steps" in said
    assert "torn. got: 10 bytes" in said and "not a plain file" in said and "entries.jsonl" not in said
    assert [entry.seed for entry in filled.entries()] == [0, 1, 3, 9]
    assert filled.entries()[:3] == [before[0], before[1], before[3]] and filled.catalogue.all_notes() == notes
    assert verify(filled) == [] and LabelSet(filled, "mine").labelled == {before[1].identity}
    assert dispatch(["data", "restore", str(filled.path)]) == 1, "some stay, and none came back"


def test_an_empty_quarantine_is_no_failure(filled, capsys):
    with filled.writer() as writer:
        repair(writer)
    assert dispatch(["data", "restore", str(filled.path)]) == 0
    assert capsys.readouterr().out == "0 episodes restored; 4 episodes\n"


@errors
def test_nothing_comes_back_that_cannot_be_read(filled, monkeypatch, error):
    with filled.writer() as writer:
        repair(writer)
    for entry in filled.entries()[:2]:
        shutil.move(filled.path / "episodes" / entry.file, filled.path / "quarantine")
    with filled.writer() as writer:
        repair(writer)
    before = state_of(filled)
    path = min((filled.path / "quarantine").glob("*.h5"))
    with failing(path, error, monkeypatch), pytest.raises(DatasetError, match="cannot be read now"):
        dispatch(["data", "restore", str(filled.path)])
    assert state_of(filled) == before
    assert dispatch(["data", "restore", str(filled.path)]) == 0 and len(filled) == 4


@errors
def test_a_clip_that_cannot_be_read_now_is_not_called_changed(filled, monkeypatch, error):
    """The rater's question is asked again later, and nobody is told to repair."""
    path = filled.path / "episodes" / filled.entries()[0].file
    with failing(path, error, monkeypatch), pytest.raises(DatasetError, match="cannot be read now") as told:
        _require_as_seen(filled, filled.entries()[0], None)
    assert not isinstance(told.value, EpisodeCorrupt)


@errors
def test_labels_of_quarantined_episodes_are_not_called_foreign(filled, monkeypatch, error):
    (filled.path / "quarantine" / "entries.jsonl").write_text("")
    with failing(filled.path / "quarantine" / "entries.jsonl", error, monkeypatch), pytest.raises((DatasetError, MemoryError)):
        LabelSet(filled, "mine")


def test_which_errors_pass():
    assert all(map(is_passing, PASSING.values()))
    other = (
        OSError("no such signature"),
        FileNotFoundError(errno.ENOENT, "gone"),
        IsADirectoryError(errno.EISDIR, "x"),
        ValueError(),
    )
    assert not any(map(is_passing, other))
