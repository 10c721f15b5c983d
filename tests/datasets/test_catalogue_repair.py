"""Repair of the catalogue: only what SQLite calls damage is made again, and people's notes survive it."""

import resource
import shutil
import sqlite3
from contextlib import contextmanager, suppress

import pytest

from robo_datasets.catalogue import NAME
from robo_datasets.dataset import Dataset
from robo_datasets.quarantine import Quarantine
from robo_datasets.repair import repair, verify
from robo_rl.errors import DatasetBusy, DatasetError
from robo_rl.system import database


@pytest.fixture
def noted(dataset, make_episode) -> Dataset:
    """Three episodes, each with a note, in one file without anything written ahead."""
    with dataset.writer() as writer:
        for seed in range(3):
            entry = writer.add(make_episode(seed))
            dataset.catalogue.note(entry.identity, f"look at {seed}: schön")
    assert [path.name for path in dataset.path.glob(f"{NAME}*")] == [NAME]
    return dataset


@contextmanager
def full_disk():
    """Lets no file of this process grow, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def locked(dataset):
    """Holds the catalogue as another program may."""
    connection = sqlite3.connect(dataset.path / NAME, isolation_level=None)
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("BEGIN EXCLUSIVE")
    connection.execute("SELECT * FROM episodes").fetchall()
    try:
        yield
    finally:
        connection.close()


def notes(dataset):
    return [note for entry in dataset.entries() for note in dataset.catalogue.notes(entry.identity)]


def changed(dataset, old: bytes, new: bytes):
    """Replaces bytes in the catalogue's file."""
    path = dataset.path / NAME
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))


def is_untouched(dataset, before):
    return (dataset.path / NAME).read_bytes() == before and not list((dataset.path / "quarantine").iterdir())


def test_repair_leaves_a_sound_catalogue_when_the_disk_is_full(noted):
    before = (noted.path / NAME).read_bytes()
    with noted.writer() as writer, full_disk(), suppress(DatasetError):
        repair(writer)
    assert is_untouched(noted, before)
    assert verify(noted) == [] and len(notes(noted)) == 3


def test_a_full_disk_does_not_prevent_reading(noted):
    with full_disk():
        assert len(noted.entries()) == 3 and verify(noted) == []


@pytest.mark.parametrize("code", ["FULL", "IOERR", "BUSY", "CANTOPEN", "READONLY"])
def test_repair_leaves_a_catalogue_that_cannot_be_reached(noted, monkeypatch, code):
    before = (noted.path / NAME).read_bytes()

    def connect(*_, **__):
        error = sqlite3.OperationalError("not now")
        error.sqlite_errorcode = getattr(sqlite3, f"SQLITE_{code}")
        raise error

    with noted.writer() as writer:
        monkeypatch.setattr(database.sqlite3, "connect", connect)
        with pytest.raises(DatasetError, match=r"(?s)cannot be used.*not now.*do: .*nothing was changed"):
            repair(writer)
        with pytest.raises(DatasetError, match="not now"):
            verify(noted)
        monkeypatch.undo()
    assert is_untouched(noted, before) and len(notes(noted)) == 3


def test_repair_leaves_a_catalogue_that_is_locked(noted, monkeypatch):
    monkeypatch.setattr(database, "WAIT", 0.05)
    before = (noted.path / NAME).read_bytes()
    with noted.writer() as writer, locked(noted), pytest.raises(DatasetBusy, match="wait for the program that holds it"):
        repair(writer)
    assert is_untouched(noted, before) and len(notes(noted)) == 3


DAMAGES = {
    "a word of the schema": (b"instruction TEXT", b"instr\xfaction TEXT"),
    "the schema": (b"CREATE TABLE episodes", b"CREATE TABBE episodes"),
    "the first bytes": (b"SQLite format 3", b"SQLite format 9"),
    "an episode's row": (b"time_limit", b"\xffime_limit"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_notes_survive_a_damaged_catalogue(noted, damage):
    before = notes(noted)
    changed(noted, *damage)
    (found,) = (each for each in verify(noted) if each.action.startswith("make it again"))
    assert "cannot be used" in found.problem or "damaged" in found.problem
    with noted.writer() as writer:
        (mended,) = (each for each in repair(writer) if each.name == NAME)
        assert "the notes that could be read of it: 3" in mended.action
        assert repair(writer) == []
    assert sorted(notes(noted)) == before and verify(noted) == []
    assert (noted.path / "quarantine" / NAME).exists()


def test_a_full_disk_does_not_make_half_a_catalogue(noted):
    changed(noted, *DAMAGES["a word of the schema"])
    before = (noted.path / NAME).read_bytes()
    with noted.writer() as writer:
        with full_disk(), pytest.raises(DatasetError, match="cannot be used"):
            repair(writer)
        assert (noted.path / NAME).read_bytes() == before
        repair(writer)
    assert len(notes(noted)) == 3 and verify(noted) == []


@pytest.mark.parametrize("moves", range(3))
def test_a_kill_while_the_catalogue_is_made_again_loses_no_note(noted, monkeypatch, moves):
    changed(noted, *DAMAGES["the first bytes"])
    done = []

    def dying(quarantine, path):
        if len(done) == moves:
            raise KeyboardInterrupt
        done.append(path)
        shutil.move(path, noted.path / "quarantine" / path.name)

    (noted.path / f"{NAME}-wal").write_bytes(b"")
    (noted.path / f"{NAME}-shm").write_bytes(b"")
    with noted.writer() as writer:
        with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
            patched.setattr(Quarantine, "move", dying)
            repair(writer)
        repair(writer)
        assert repair(writer) == []
    assert len(notes(noted)) == 3 and verify(noted) == []


ENDLESS = "SELECT * FROM (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n)"
HOSTILE = {
    "a view without end": ["ALTER TABLE episodes RENAME TO kept", f"CREATE VIEW episodes AS {ENDLESS}"],
    "notes without end": ["DROP TABLE notes", f"CREATE VIEW notes AS {ENDLESS}"],
    "a trigger": [f"CREATE TRIGGER slow AFTER INSERT ON episodes BEGIN DELETE FROM notes WHERE note IN ({ENDLESS}); END"],
    "a computed column": ["ALTER TABLE notes ADD COLUMN big AS (printf('%.*c', 900000000, 'x'))"],
    "a virtual table": ["DROP TABLE notes", "CREATE VIRTUAL TABLE notes USING fts5(identity, note)"],
    "a view called a table": [
        "PRAGMA writable_schema = ON",
        f"UPDATE sqlite_master SET sql = 'CREATE VIEW notes AS {ENDLESS}' WHERE name = 'notes'",
    ],
}


@pytest.mark.parametrize("commands", HOSTILE.values(), ids=HOSTILE)
def test_a_catalogue_that_computes_is_refused(noted, monkeypatch, commands):
    monkeypatch.setattr(database, "LONGEST", 2.0, raising=False)
    connection = sqlite3.connect(noted.path / NAME)
    for command in commands:
        connection.execute(command)
    connection.commit()
    connection.close()
    with pytest.raises(DatasetError, match="got:     damaged"):
        noted.entries()
    with pytest.raises(DatasetError, match="got:     damaged"):
        noted.catalogue.note("0" * 32, "one more")
    with noted.writer() as writer:
        repair(writer)
    assert verify(noted) == [] and len(noted.entries()) == 3


def test_a_query_without_end_is_interrupted(noted, monkeypatch):
    monkeypatch.setattr(database, "LONGEST", 0.2, raising=False)
    file = database.Database(noted.path / NAME)
    with pytest.raises(DatasetError, match="interrupted"), file.reading() as connection:
        connection.execute(ENDLESS).fetchall()
