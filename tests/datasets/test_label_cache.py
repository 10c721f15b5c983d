"""What was answered once is not asked again: not after a kill, not for a copy, not where the model is gone."""

import shutil
import sqlite3
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from factories import fill
from robo_datasets.dataset import Dataset
from robo_datasets.label_cache import LabelCache
from robo_datasets.labelling import label
from robo_datasets.labels import LabelSet
from robo_rl.errors import DatasetError, InvalidSetting
from robo_rl.protocols.rewards import RewardModel
from robo_rl.rewards.identity import hash_of
from robo_rl.rewards.synthetic import NoisyOracle
from robo_rl.system.database import Database
from robo_rl.system.user_cache import user_cache


@dataclass(frozen=True)
class Weighted(RewardModel):
    """A reward with weights in a file, which counts how often it is asked."""

    file: str
    missing: float = 0.0

    @property
    def identity(self):
        try:
            return "weighted", hash_of(Path(self.file).read_bytes(), str(self.missing).encode())
        except OSError as error:
            raise InvalidSetting("The weights are not there.", got=error) from None

    def label(self, episode):
        model, weights = self.identity
        with Path("asked").open("a") as file:
            file.write(f"{episode.seed}\n")
        labels = NoisyOracle(missing=self.missing, seed=int(weights[:4], 16)).label(episode)
        return type(labels)(labels.values, labels.valid, model, weights, "words", np.full(len(episode), 0.5, np.float32))


@pytest.fixture
def filled(dataset, make_episode) -> Dataset:
    return fill(dataset, map(make_episode, range(4), (5, 1, 9, 3)))


@pytest.fixture
def model() -> Weighted:
    Path("weights").write_bytes(b"trained")
    return Weighted("weights")


@pytest.fixture
def cache() -> LabelCache:
    return LabelCache(Path("cache"))


def asked() -> int:
    return len(Path("asked").read_text().split()) if Path("asked").exists() else 0


def are_equal(dataset: Dataset, one: str, other: str) -> bool:
    sets = [LabelSet(dataset, name) for name in (one, other)]
    pairs = [[each.read(entry.identity) for each in sets] for entry in dataset.entries()]
    facts = [(a.model, a.weights_hash, a.prompt_hash) == (b.model, b.weights_hash, b.prompt_hash) for a, b in pairs]
    parts = ("values", "valid", "confidence")
    return all(facts) and all(getattr(a, part).tobytes() == getattr(b, part).tobytes() for a, b in pairs for part in parts)


def test_what_was_answered_is_found_without_model_or_pictures(filled, model, cache, monkeypatch):
    assert label(filled, model, "first", cache=cache) == 4 and asked() == 4
    monkeypatch.setattr(Dataset, "read", lambda *_: pytest.fail("an episode was read"))
    assert label(filled, model, "second", cache=cache) == 4 and asked() == 4
    assert are_equal(filled, "first", "second")
    assert (cache.given, cache.dropped) == (4, 0)


def test_only_what_is_new_is_asked(filled, model, cache, make_episode):
    label(filled, model, "first", cache=cache)
    with filled.writer() as writer:
        writer.add(make_episode(9, 2))
    assert label(filled, model, "second", cache=cache) == 5 and asked() == 5
    assert label(filled, model, "first", cache=cache) == 1 and asked() == 5


def test_a_copy_of_the_dataset_shares_the_labels(filled, model, cache):
    label(filled, model, "first", cache=cache)
    shutil.copytree(filled.path, "copy")
    copy = Dataset(Path("copy"))
    assert label(copy, model, "second", cache=cache) == 4 and asked() == 4
    assert are_equal(copy, "first", "second")


def test_the_model_may_be_deleted(filled, model, cache, make_episode):
    label(filled, model, "first", cache=cache)
    Path("weights").unlink()
    assert label(filled, model, "second", cache=LabelCache(Path("cache"))) == 4
    assert are_equal(filled, "first", "second")
    with filled.writer() as writer:
        writer.add(make_episode(9, 2))
    with pytest.raises(
        InvalidSetting, match=r"The model is not available, and the cache lacks its labels of 1 of 5 episodes"
    ) as caught:
        label(filled, model, "third", cache=cache)
    assert "The weights are not there" in str(caught.value)
    assert len(LabelSet(filled, "third").labelled) == 4
    for unknown, place in ((Weighted("weights", 0.1), cache), (model, None), (model, LabelCache(Path("another")))):
        with pytest.raises(InvalidSetting, match=r"^The weights are not there"):
            label(filled, unknown, "fourth", cache=place)


def test_other_weights_or_settings_are_asked(filled, model, cache):
    label(filled, model, "first", cache=cache)
    Path("weights").write_bytes(b"trained longer")
    assert label(filled, model, "second", cache=cache) == 4 and asked() == 8
    assert label(filled, Weighted("weights", 0.4), "third", cache=cache) == 4 and asked() == 12
    assert not are_equal(filled, "first", "second")


def test_missing_answers_are_requested_again_except_in_replay(filled, cache):
    Path("weights").write_bytes(b"trained")
    model = Weighted("weights", missing=0.2)
    label(filled, model, "first", cache=cache)
    gaps = [not LabelSet(filled, "first").read(entry.identity).valid.all() for entry in filled.entries()]
    assert 0 < sum(gaps) < 4
    assert label(filled, model, "second", cache=cache, replay=True) == 4 and asked() == 4
    assert are_equal(filled, "first", "second")
    assert label(filled, model, "third", cache=cache) == 4 and asked() == 4 + sum(gaps)
    with pytest.raises(InvalidSetting, match="Labels shall be replayed without asking the model, and the cache does not"):
        label(filled, Weighted("weights", missing=0.6), "fourth", cache=cache, replay=True)
    Path("weights").unlink()
    assert label(filled, model, "fifth", cache=cache) == 4 and asked() == 4 + sum(gaps)
    assert are_equal(filled, "first", "fifth")


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE labels SET values_f32 = zeroblob(length(values_f32)) WHERE rowid = 2",
        "UPDATE labels SET valid = zeroblob(length(valid)) WHERE rowid = 2",
        "UPDATE labels SET prompt_hash = 'other' WHERE rowid = 2",
        "UPDATE labels SET content = (SELECT file_of_third FROM third), model = model || '' WHERE rowid = 2",
        "UPDATE labels SET values_f32 = 'words' WHERE rowid = 2",
        "UPDATE labels SET sha256 = x'00' WHERE rowid = 2",
    ],
)
def test_a_damaged_row_is_dropped_and_asked_again(filled, model, cache, damage):
    label(filled, model, "first", cache=cache)
    third = filled.entries()[2].file.split(".")[1]
    with sqlite3.connect(cache.path) as connection:
        connection.execute("CREATE TABLE third AS SELECT ? AS file_of_third", (third,))
        if "file_of_third" in damage:
            connection.execute("DELETE FROM labels WHERE rowid = 3")
        connection.execute(damage)
    connection.close()
    assert label(filled, model, "second", cache=cache) == 4
    assert are_equal(filled, "first", "second")
    assert cache.dropped == 1 and cache.given + asked() == 8
    assert label(filled, model, "third", cache=cache) == 4 and cache.dropped == 1 and cache.given + asked() == 12


def test_a_file_that_is_no_cache_is_one_error(filled, model, cache):
    cache.path.write_bytes(b"no database at all, but long enough" * 100)
    with pytest.raises(DatasetError, match=r"labels.sqlite cannot be used.\n.*\n.*move it away"):
        label(filled, model, "first", cache=cache)


def test_where_it_lies(monkeypatch, tmp_path):
    monkeypatch.setenv("ROBO_RL_CACHE", str(tmp_path / "mine"))
    assert user_cache() == tmp_path / "mine"
    monkeypatch.delenv("ROBO_RL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert user_cache() == tmp_path / "robo_rl"
    (tmp_path / "file").touch()
    with pytest.raises(DatasetError, match="There is no place for the cache of labels"):
        LabelCache(tmp_path / "file")


def test_a_file_that_is_held_open_shows_every_change_at_once(tmp_path):
    database, reader = Database(tmp_path / "some.sqlite"), Database(tmp_path / "some.sqlite")
    with database.held():
        assert not database.path.exists(), "nothing is made before the first change"
        for number in range(3):
            with database.writing() as connection:
                connection.execute("CREATE TABLE IF NOT EXISTS numbers (number INTEGER)")
                connection.execute("INSERT INTO numbers VALUES (?)", (number,))
            with reader.reading() as connection:
                assert connection.execute("SELECT COUNT(*) FROM numbers").fetchone() == (number + 1,)
        with pytest.raises(ZeroDivisionError), database.writing() as connection:
            connection.execute("INSERT INTO numbers VALUES (9)")
            _ = 1 / 0
        with reader.reading() as connection:
            assert connection.execute("SELECT COUNT(*) FROM numbers").fetchone() == (3,), "half a change is none"
    with pytest.raises(DatasetError, match=r"some.sqlite cannot be used"), database.held(), database.writing() as connection:
        connection.execute("INSERT INTO nowhere VALUES (1)")
    with database.writing() as connection:
        connection.execute("INSERT INTO numbers VALUES (4)")
