"""Sets beside the episodes, and the card: a changed byte is found by verify, and by whoever learns from them."""

import json
import random
import sqlite3
from contextlib import closing

import numpy as np
import pytest

from robo_datasets.dataset import Dataset
from robo_datasets.labels import LabelSet
from robo_datasets.preferences import PreferenceSet
from robo_datasets.repair import repair, verify
from robo_rl.errors import DatasetError, EpisodeCorrupt
from robo_rl.types import Preference, RewardLabels


@pytest.fixture
def labelled(dataset, make_episode) -> Dataset:
    with dataset.writer() as writer:
        entries = [writer.add(make_episode(seed)) for seed in range(4)]
        for seed, entry in enumerate(entries):
            values = np.arange(entry.steps, dtype=np.float32) + seed
            LabelSet(dataset, "mine").add(
                entry.identity, RewardLabels(values, np.ones(entry.steps, np.bool_), "judge-7", "weights", "prompt")
            )
    return dataset


def file_of(dataset, kind="labels"):
    return dataset.path / kind / "mine.sqlite"


def execute(path, command, *values):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(command, values)


def flipped(path, place, bit):
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(content)


CHANGES = {
    "identity": "UPDATE labels SET identity = '0' || substr(identity, 2, 31) || 'x' WHERE rowid = 2",
    "model": "UPDATE labels SET model = 'judge-8' WHERE rowid = 2",
    "weights": "UPDATE labels SET weights_hash = 'others' WHERE rowid = 2",
    "prompt": "UPDATE labels SET prompt_hash = 'other' WHERE rowid = 2",
    "kind": "UPDATE labels SET model = x'00ff' WHERE rowid = 2",
    "numbers": "UPDATE labels SET values_f32 = zeroblob(20) WHERE rowid = 2",
    "valid": "UPDATE labels SET valid = zeroblob(5) WHERE rowid = 2",
}


@pytest.mark.parametrize("command", CHANGES.values(), ids=CHANGES)
def test_a_changed_label_row_is_found(labelled, command):
    execute(file_of(labelled), command)
    (finding,) = verify(labelled)
    assert finding.name == "mine" and "label it again" in finding.problem
    with pytest.raises(EpisodeCorrupt, match="were changed"):
        LabelSet.existing(labelled, "mine")


@pytest.mark.parametrize("text", [b"judge-7", b"weights", b"prompt"])
def test_a_flipped_bit_in_a_label_row_is_found(labelled, text):
    flipped(file_of(labelled), file_of(labelled).read_bytes().rindex(text) + 3, 1)
    assert len(verify(labelled)) == 1
    with pytest.raises(DatasetError):
        LabelSet.existing(labelled, "mine")


def test_a_flipped_bit_in_the_index_is_found(labelled):
    identity = labelled.entries()[1].identity.encode()
    content = file_of(labelled).read_bytes()
    places = [place for place in range(len(content)) if content.startswith(identity, place)]
    assert len(places) == 2, "table and index"
    for place in places:
        file_of(labelled).write_bytes(content)
        flipped(file_of(labelled), place + 4, 0)
        assert len(verify(labelled)) == 1
        with pytest.raises(DatasetError):
            LabelSet.existing(labelled, "mine")


def test_no_flipped_bit_changes_what_labels_are_read(labelled):
    chance, path = random.Random(5), file_of(labelled)
    content = path.read_bytes()
    before = {entry.identity: LabelSet(labelled, "mine").read(entry.identity) for entry in labelled.entries()}
    for _ in range(40):
        path.write_bytes(content)
        flipped(path, chance.randrange(len(content)), chance.randrange(8))
        try:
            found = LabelSet.existing(labelled, "mine")
        except DatasetError:
            continue
        for identity, labels in before.items():
            read = found.read(identity)
            assert read is not None and read.values.tobytes() == labels.values.tobytes() and read.model == labels.model


def as_older_versions_wrote(labelled):
    """Puts the hash over the numbers alone in the place of the one over the whole row."""
    from robo_datasets.labels import row_of

    for entry in labelled.entries():
        labels = LabelSet(labelled, "mine").read(entry.identity)
        execute(file_of(labelled), "UPDATE labels SET sha256 = ? WHERE identity = ?", row_of(labels)[-1], entry.identity)


def test_an_older_label_set_is_read_and_checked(labelled):
    as_older_versions_wrote(labelled)
    assert verify(labelled) == []
    assert LabelSet.existing(labelled, "mine").read(labelled.entries()[0].identity).model == "judge-7"
    execute(file_of(labelled), "UPDATE labels SET identity = ? WHERE rowid = 2", "f" * 32)
    (finding,) = verify(labelled)
    assert "of an episode that is not in the dataset" in finding.problem


def test_labels_of_a_quarantined_episode_are_no_fault(labelled):
    as_older_versions_wrote(labelled)
    (labelled.path / "episodes" / labelled.entries()[1].file).unlink()
    with labelled.writer() as writer:
        repair(writer)
    assert verify(labelled) == []


@pytest.fixture
def compared(labelled) -> Dataset:
    first, second, third, _ = (entry.identity for entry in labelled.entries())
    pairs = [((first, 0, 2), (second, 0, 2)), ((second, 1, 3), (third, 1, 3))]
    PreferenceSet(labelled, "mine").add([Preference(*pair, 1.0, "anna", "human") for pair in pairs])
    return labelled


@pytest.mark.parametrize(
    "change", ["label = 0.0", "rater = 'bert'", "kind = 'model'", "first_start = 0", "first = x'00'", "label = 7"]
)
def test_a_changed_comparison_is_found(compared, change):
    assert verify(compared) == []
    execute(file_of(compared, "preferences"), f"UPDATE preferences SET {change} WHERE rowid = 2")
    (finding,) = verify(compared)
    assert "was changed" in finding.problem
    with pytest.raises(DatasetError, match="A comparison of the set 'mine' was changed"):
        list(PreferenceSet(compared, "mine"))


def test_an_older_set_of_comparisons_is_read_and_added_to(compared):
    execute(file_of(compared, "preferences"), "ALTER TABLE preferences DROP COLUMN sha256")
    found = list(PreferenceSet(compared, "mine"))
    assert len(found) == 2 and verify(compared) == []
    (entry, other, *_) = compared.entries()
    more = Preference((other.identity, 0, 1), (entry.identity, 0, 1), "skip", "anna", "human")
    PreferenceSet(compared, "mine").add([*found, more])
    assert list(PreferenceSet(compared, "mine")) == [*found, more] and verify(compared) == []


@pytest.mark.parametrize(("old", "new"), [('"by hand"', '"by foot"'), ('"pick', '"lift'), ('"rad"', '"deg"')])
def test_a_changed_description_is_refused(dataset, old, new):
    dataset.describe({"how": "by hand", "rule": "pick it up"})
    path = dataset.path / "dataset.json"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(DatasetError, match=r"(?s)dataset.json was changed after it was written.*undo the change.*sha256"):
        Dataset(dataset.path)


def test_a_description_without_checksum_is_read(dataset):
    path = dataset.path / "dataset.json"
    description = json.loads(path.read_text())
    del description["sha256"]
    path.write_text(json.dumps(description))
    assert Dataset(dataset.path).card == {"how": "by hand"}


def test_a_card_of_any_numbers_and_texts_is_as_written(dataset):
    dataset.describe(
        {"score": 1e-17, "mean": float("nan"), "text": "ein Würfel 🧊", "ratio": 1 / 3, "tuple": (1, 2), "none": None}
    )
    assert Dataset(dataset.path).card["text"] == "ein Würfel 🧊"
