"""A dataset folder from elsewhere: it is read as data, and nothing outside of it is touched."""

import io
import json
import os
import shutil
import sqlite3
import tracemalloc
import zlib
from dataclasses import replace

import h5py
import numpy as np
import pytest

from factories import fill
from robo_datasets.cache import cache_folders, open_cache
from robo_datasets.dataset import Dataset
from robo_datasets.episode_file import write_episode
from robo_datasets.hdf5_arrays import read_arrays, write_array
from robo_datasets.labels import LabelSet
from robo_datasets.repair import repair, verify
from robo_rl.errors import DatasetError, DatasetNotFound, EpisodeCorrupt, InvalidEpisode
from robo_rl.system.database import Database
from robo_rl.types import RewardLabels


@pytest.fixture
def filled(dataset, make_episode) -> Dataset:
    return fill(dataset, map(make_episode, range(3)))


@pytest.fixture
def home(tmp_path, monkeypatch):
    """What a person would not want to lose."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    photos = tmp_path / "person" / "photos"
    photos.mkdir(parents=True)
    (photos / "one.jpg").write_text("precious")
    return photos.parent


def test_a_cache_that_leads_elsewhere_is_not_used(filled, home):
    (filled.path / "cache").symlink_to(home)
    cache = open_cache(filled, filled.entries())
    assert cache.path.parent == cache_folders(filled)[1]
    assert [path.name for path in home.iterdir()] == ["photos"]


def test_what_lies_beside_the_caches_is_left_alone(filled, home):
    own = filled.path / "cache" / "my own things"
    own.mkdir(parents=True)
    leftover = filled.path / "cache" / f"{'0' * 32}.tmp-{'1' * 32}"
    leftover.mkdir()
    open_cache(filled, filled.entries())
    assert own.exists() and not leftover.exists()


@pytest.mark.parametrize("name", ["quarantine", "episodes", "journal", "labels", "lock", "catalogue.sqlite", "cache"])
def test_nothing_is_written_through_a_link(filled, home, name):
    (filled.path / "episodes" / "authorized_keys").write_text("a key")
    path = filled.path / name
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    path.symlink_to(home)
    with pytest.raises(DatasetError, match=rf"{name} is a link; nothing is written through it(.|\n)*robo-rl data filter"):
        filled.writer().__enter__()
    assert [path.name for path in home.iterdir()] == ["photos"]


def test_a_linked_list_of_the_quarantine(filled, home):
    (filled.path / "quarantine" / "entries.jsonl").symlink_to(home / ".profile")
    with pytest.raises(DatasetError, match=r"entries\.jsonl is a link"):
        filled.writer().__enter__()


def described(path, change):
    description = json.loads((path / "dataset.json").read_text())
    changed = change(description)
    (path / "dataset.json").write_text(changed if isinstance(changed, str) else json.dumps(description))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda _: "[" * 100_000, "cannot be read"),
        (lambda _: "[]", r"does not describe a dataset(.|\n)*list"),
        (lambda found: found.pop("spec") and None, r"holds no spec(.|\n)*'spec'"),
        (lambda found: found.update(spec="x"), "holds no spec"),
        (lambda found: found.update(spec={}), "holds no spec"),
        (lambda found: found.pop("card") and None, r"card in (.|\n)* is damaged(.|\n)*NoneType"),
        (lambda found: found.update(card=[1]), r"is damaged(.|\n)*card: list"),
        (lambda found: found["card"].update(arguments=[1]), r"is damaged(.|\n)*arguments: \[1\]"),
        (lambda found: found["card"].update(reference=[1]), r"is damaged(.|\n)*reference: \[1\]"),
        (lambda found: found["card"].update(reference={"random": 1, "expert": "x"}), r"is damaged(.|\n)*'expert': 'x'"),
    ],
)
def test_a_damaged_description(filled, change, message):
    filled.describe({"seed": 0})
    described(filled.path, change)
    with pytest.raises(DatasetError, match=message):
        Dataset(filled.path)


def test_a_description_that_never_ends(filled):
    (filled.path / "dataset.json").unlink()
    (filled.path / "dataset.json").symlink_to("/dev/zero")
    with pytest.raises(DatasetNotFound, match=r"no dataset\.json"):
        Dataset(filled.path)


@pytest.mark.parametrize("target", ["/dev/zero", "pipe"])
def test_an_episode_that_never_ends(filled, tmp_path, target):
    path = filled.path / "episodes" / filled.entries()[1].file
    path.unlink()
    if target == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(target)
    with pytest.raises(EpisodeCorrupt, match="is not a plain file"):
        filled.read(filled.entries()[1])


def test_a_link_to_nowhere_is_quarantined_once(filled):
    path = filled.path / "episodes" / filled.entries()[1].file
    path.unlink()
    path.symlink_to("nowhere")
    with filled.writer() as writer:
        assert [finding.problem for finding in repair(writer)] == ["its file is missing"]
        assert repair(writer) == []
    assert verify(filled) == []


def test_pipes_in_a_dataset_are_moved_away(filled):
    (filled.path / "catalogue.sqlite").unlink()
    os.mkfifo(filled.path / "catalogue.sqlite")
    os.mkfifo(filled.path / "journal" / f"{'0' * 32}.journal")
    with pytest.raises(DatasetError, match="not a plain file"):
        filled.entries()
    with filled.writer() as writer:
        repair(writer)
    assert verify(filled) == [] and len(filled.entries()) == 3


PIPES = {
    "lock": lambda path: Dataset(path).writer().__enter__(),
    "quarantine/entries.jsonl": lambda path: LabelSet(Dataset(path), "mine"),
    "catalogue.sqlite-wal": lambda path: Dataset(path).entries(),
    "catalogue.sqlite-shm": lambda path: Dataset(path).entries(),
    "catalogue.sqlite-journal": lambda path: Dataset(path).entries(),
    "labels/mine.sqlite-journal": lambda path: LabelSet(Dataset(path), "mine").labelled,
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize(("name", "use"), PIPES.items(), ids=PIPES)
def test_a_pipe_beside_the_data_is_one_error(filled, name, use):
    labels = RewardLabels(np.zeros(5, np.float32), np.ones(5, np.bool_), "m", "w", "p")
    LabelSet(filled, "mine").add(filled.entries()[0].identity, labels)
    (filled.path / name).unlink(missing_ok=True)
    os.mkfifo(filled.path / name)
    with pytest.raises(DatasetError, match="not a plain file"):
        use(filled.path)


@pytest.mark.timeout(20)
def test_a_pipe_as_list_of_the_quarantine_is_not_written_to(filled):
    os.mkfifo(filled.path / "quarantine" / "entries.jsonl")
    with pytest.raises(DatasetError, match=r"entries.jsonl is not a plain file(.|\n)*move it away"):
        filled.writer().__enter__()


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", ["cache.json", "reward.npy", "lock"])
def test_a_pipe_in_the_cache(filled, home, name):
    cache = open_cache(filled, filled.entries())
    path = cache.path.parent / name if name == "lock" else cache.path / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    if name == "lock":
        shutil.rmtree(cache.path)
    again = open_cache(filled, filled.entries())
    assert (again.path.parent == cache_folders(filled)[1]) == (name == "lock")


MISFITS = {
    "one action for all": lambda e: {"actions": e.actions[:, :1]},
    "too many actions": lambda e: {"policy_actions": np.ones((len(e), 7), np.float32)},
    "choices": lambda e: {"actions": e.actions.astype(np.int64)},
    "another shape": lambda e: {"observations": {**e.observations, "joint_position": np.zeros((len(e) + 1, 2), np.float32)}},
    "another type": lambda e: {"observations": {**e.observations, "camera_wrist": e.observations["camera_wrist"] / 255}},
    "wide pictures": lambda e: {
        "observations": {**e.observations, "camera_wrist": e.observations["camera_wrist"].astype(np.uint16)}
    },
    "an observation too many": lambda e: {"observations": {**e.observations, "depth": np.zeros(len(e) + 1)}},
    "a table of rewards": lambda e: {"rewards": np.zeros((len(e), 2), np.float32)},
    "half actors": lambda e: {"sources": np.full(len(e), 0.5, np.float32)},
    "a seed beyond 64 bits": lambda e: {"seed": 1 << 64},
}


@pytest.mark.parametrize("change", MISFITS.values(), ids=MISFITS)
def test_arrays_that_are_not_what_the_spec_says(dataset, make_episode, spec, monkeypatch, change):
    episode = make_episode(0)
    wrong = replace(episode, **change(episode))
    with dataset.writer() as writer, pytest.raises(InvalidEpisode, match=r"than its spec|do not fit its spec|fit into the cat"):
        writer.add(wrong)
    assert not any((dataset.path / "episodes").iterdir())
    with monkeypatch.context() as elsewhere:  # as another program would write it
        elsewhere.setattr("robo_datasets.episode_file.require_fit", lambda *_: None)
        write_episode(dataset.path / "episodes", "0" * 32, wrong, spec)
    with dataset.writer() as writer:
        (finding,) = repair(writer)
    if "depth" not in wrong.observations:  # what the spec does not name is not read
        assert "is no episode of schema" in finding.problem and finding.action == "quarantined"


def execute(dataset, command):
    connection = sqlite3.connect(dataset.path / "catalogue.sqlite")
    connection.execute(command)
    connection.commit()
    connection.close()


@pytest.mark.parametrize("column", ["steps = 9", "success = 1", "episode_return = 1000", "seed = 5", "source = 'expert'"])
def test_a_catalogue_that_is_wrong_is_found_and_corrected(filled, column):
    before = filled.entries()
    execute(filled, f"UPDATE episodes SET {column} WHERE rowid = 2")
    (found,) = verify(filled)
    assert found.name == before[1].file and found.action == "correct the catalogue"
    with filled.writer() as writer:
        (mended,) = repair(writer)
        assert mended.action == "corrected from the episode" and repair(writer) == []
    assert filled.entries() == before


@pytest.mark.parametrize(
    "command",
    [
        "UPDATE episodes SET steps = 'many'",
        "UPDATE episodes SET steps = -5",
        "UPDATE episodes SET episode_return = 'good'",
        "UPDATE episodes SET source = x'00ff'",
        "ALTER TABLE episodes ADD COLUMN more TEXT",
        "DROP TABLE notes",
    ],
)
def test_damaged_catalogue_is_rebuilt_in_recording_order(filled, command):
    before = filled.entries()
    for number, entry in enumerate(before):
        os.utime(filled.path / "episodes" / entry.file, (1_000 + number, 1_000 + number))
    execute(filled, command)
    assert [finding.action for finding in verify(filled)] == ["make it again from the episodes"]
    with filled.writer() as writer:
        repair(writer)
    assert filled.entries() == before and verify(filled) == []


def test_write_ahead_data_is_read_from_read_only_folder(filled, tmp_path, monkeypatch):
    held = sqlite3.connect(filled.path / "catalogue.sqlite")  # as a process that is killed: its changes are only in the -wal
    held.execute("SELECT COUNT(*) FROM episodes").fetchone()
    held.execute("BEGIN")
    held.execute("SELECT COUNT(*) FROM episodes").fetchone()
    filled.catalogue.remove(filled.entries()[0].identity)
    copy = tmp_path / "copy"
    shutil.copytree(filled.path, copy, ignore=shutil.ignore_patterns("*-shm"))
    held.close()
    assert (copy / "catalogue.sqlite-wal").stat().st_size
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert len(Dataset(copy).entries()) == 2
    assert not (copy / "catalogue.sqlite-shm").exists()


def test_labels_of_a_linked_file_stay_as_they_are(filled, home):
    identity = filled.entries()[0].identity
    labels = RewardLabels(np.zeros(5, np.float32), np.ones(5, np.bool_), "m", "w", "p")
    (filled.path / "labels" / "mine.sqlite").symlink_to(home / "other.sqlite")
    with pytest.raises(DatasetError, match="is a link"):
        LabelSet(filled, "mine").add(identity, labels)
    with pytest.raises(DatasetError, match="is a link"), Database(filled.path / "labels" / "mine.sqlite").writing():
        pass
    assert [path.name for path in home.iterdir()] == ["photos"]


# ------------------------------------------------------------------------------------------------ pictures


PICTURES = np.random.default_rng(0).integers(0, 9, (3, 8, 6, 3), dtype=np.uint8)


@pytest.fixture
def pictures():
    """A file in memory as an episode's: pictures, deflated one by one."""
    with h5py.File(io.BytesIO(), "w") as file:
        write_array(file, "pictures", PICTURES)
        yield file


def test_pictures_are_read_as_hdf5_reads_them(pictures):
    write_array(pictures, "depth", PICTURES[..., 0].astype(np.float32))
    pictures.create_dataset("sparse", shape=(3, 2, 2), dtype=np.uint8, chunks=(1, 2, 2), compression="gzip", fletcher32=True)
    for name, array in read_arrays(pictures, 1 << 20).items():
        np.testing.assert_array_equal(array, pictures[name][()])


def test_a_picture_that_was_stored_as_it_is(pictures):
    pictures["pictures"].id.write_direct_chunk((1, 0, 0, 0), PICTURES[2].tobytes(), filter_mask=3)
    np.testing.assert_array_equal(read_arrays(pictures, 1 << 20)["pictures"], PICTURES[[0, 2, 2]])


@pytest.mark.parametrize(
    "chunk", [zlib.compress(bytes(size)) for size in (143, 145, 50_000_000)] + [b"no such stream", b""], ids=len
)
def test_a_picture_that_does_not_unpack_to_its_size(pictures, chunk):
    pictures["pictures"].id.write_direct_chunk((1, 0, 0, 0), chunk + bytes(4))
    tracemalloc.start()
    with pytest.raises(EpisodeCorrupt, match=r"(?s)Picture 1 of /pictures has another size.*144 bytes"):
        read_arrays(pictures, 1 << 20)
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()
