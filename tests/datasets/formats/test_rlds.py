"""RLDS is read as TensorFlow Datasets reads it, without TensorFlow; torn and hostile shards are read as far as they go.

`rlds_fixture` was written by TensorFlow Datasets 4.9.10 (rlds_writer.py), with what it reads from its own files.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from robo_datasets.conversion import import_dataset, recognized, with_mapping
from robo_datasets.dataset import Dataset
from robo_datasets.formats.rlds.reader import FORMAT
from robo_datasets.formats.rlds.shards import MASK, _example, examples
from robo_rl.errors import DatasetError, InvalidSetting, UnknownName

FIXTURE = Path(__file__).parent / "rlds_fixture"
SHARDS = [f"tiny-train.tfrecord-0000{number}-of-00002" for number in range(2)]
LENGTHS = (4, 3, 5)
ALL = {"world_vector": slice(3, 6), "gripper": slice(0, 1), "terminate": slice(1, 3)}
"""Part of the action -> its place: features.json lists them in alphabetical order."""


@pytest.fixture
def copied(tmp_path) -> Path:
    """Returns a copy of the fixture that a test may damage."""
    return Path(shutil.copytree(FIXTURE, tmp_path / "tiny" / "1.0.0"))


def imported(folder: Path, source: Path, **mapping) -> tuple[Dataset, str]:
    (folder / "rlds.yaml").write_text(yaml.safe_dump(mapping))
    form = with_mapping(FORMAT, folder / "rlds.yaml") if mapping else FORMAT
    notes = import_dataset(form, source, folder / "data")
    return Dataset(folder / "data"), "\n".join(notes)


def masked(content: bytes) -> bytes:
    found = google_crc32c.value(content)
    return (((found >> 15 | found << 17) + MASK) & 0xFFFFFFFF).to_bytes(4, "little")


def record(content: bytes) -> bytes:
    head = len(content).to_bytes(8, "little")
    return head + masked(head) + content + masked(content)


def contents(shard: Path) -> list:
    """Returns the examples of a shard as messages of protobuf."""
    data, found = shard.read_bytes(), []
    while data:
        length = int.from_bytes(data[:8], "little")
        found.append(_example().FromString(data[12 : 12 + length]))
        data = data[16 + length :]
    return found


def rewrite(shard: Path, change) -> None:
    """Writes a shard with changed examples and right checksums."""
    found = contents(shard)
    for example in found:
        change(example.features.feature)
    shard.write_bytes(b"".join(record(example.SerializeToString()) for example in found))


def test_every_value_is_what_tensorflow_datasets_reads(tmp_path):
    assert recognized(FIXTURE).name == "rlds"
    expected = np.load(FIXTURE / "expected.npz")
    dataset, notes = imported(tmp_path, FIXTURE)
    assert "not read: observation/depth" in notes
    episodes = [*dataset]
    assert [len(episode) for episode in episodes] == [int(expected[f"{n}/reward"].size) - 1 for n in range(3)]
    for number, episode in enumerate(episodes):
        there = {key.partition("/")[2]: value for key, value in expected.items() if key.startswith(f"{number}/")}
        for name in ("image", "state", "pose", "packed", "gripper_open"):
            np.testing.assert_array_equal(
                episode.observations[name], there[f"observation/{name}"].astype(episode.observations[name].dtype)
            )
        ours, theirs = episode.observations["wrist_image"].astype(int), there["observation/wrist_image"].astype(int)
        far, swapped = np.abs(ours - theirs).mean(), np.abs(ours[..., ::-1] - theirs).mean()
        assert far < 0.1 * swapped, "decoders of JPEG differ at edges of colours, by less than channels do"
        actions = np.array([dataset.spec.action.to_physical(action) for action in episode.actions])
        for name, place in ALL.items():
            np.testing.assert_allclose(actions[:, place], there[f"action/{name}"][:-1].reshape(len(episode), -1), atol=1e-5)
        np.testing.assert_array_equal(episode.rewards, there["reward"][:-1])
        assert episode.terminated == bool(there["is_terminal"][-1]) and episode.truncated != episode.terminated
        assert episode.instruction == there["observation/natural_language_instruction"][0].decode()
    assert dataset.spec.action.names == (
        "gripper",
        "terminate_0",
        "terminate_1",
        "world_vector_0",
        "world_vector_1",
        "world_vector_2",
    )
    assert sorted(episode.instruction for episode in episodes) == [f"pick up cube {n}" for n in range(3)]
    assert dataset.spec.observation["wrist_image"].role == "image" and dataset.spec.name == "imported/rlds_fixture"


def test_a_mapping_chooses(tmp_path):
    mapping = {
        "observations": {"camera": "observation/image"},
        "actions": ["action/world_vector"],
        "rate": 5,
        "mode": "unknown",
    }
    dataset, _ = imported(tmp_path, FIXTURE, **mapping)
    assert [*dataset.spec.observation] == ["camera"] and dataset.spec.action.size == 3
    assert dataset.spec.action.control_period == 0.2


def test_a_folder_of_one_version(copied):
    assert recognized(copied.parent).name == "rlds" and FORMAT.read(copied.parent).name == "tiny"
    shutil.copytree(copied, copied.parent / "2.0.0")
    with pytest.raises(DatasetError, match=r"several versions(.|\n)*1\.0\.0, 2\.0\.0"):
        FORMAT.read(copied.parent)


def test_rewards_of_last_steps_are_not_lost_in_silence(tmp_path, copied):
    """RLDS declares them invalid, and datasets of Open X-Embodiment have them all the same."""

    def reward_the_last(features):
        features["steps/reward"].float_list.value[-1] = 1.0

    for shard in SHARDS:
        rewrite(copied / shard, reward_the_last)
    dataset, notes = imported(tmp_path, copied)
    assert "are not 0 and left out" in notes and "3 of 3 episodes" in notes
    assert sum(float(episode.rewards.sum()) for episode in dataset) == 3.0
    shutil.rmtree(tmp_path / "data")
    kept, notes = imported(tmp_path, copied, last_step="kept")
    assert sorted(len(episode) for episode in kept) == [2, 4, 4], "the terminated one keeps its last step"
    assert "reward of the last action is left out with it" in notes


@given(share=st.floats(0.0, 1.0))
@settings(max_examples=30, deadline=None)
def test_a_cut_shard_yields_a_beginning(tmp_path_factory, share):
    shard = tmp_path_factory.mktemp("cut") / SHARDS[0]
    content = (FIXTURE / SHARDS[0]).read_bytes()
    shard.write_bytes(content[: int(len(content) * share)])
    whole, damage = [*examples(FIXTURE / SHARDS[0], str)], list[str]()
    found = [*examples(shard, damage.append)]
    assert [each.keys() for each in found] == [each.keys() for each in whole[: len(found)]]
    ends = np.cumsum([0, *(16 + int.from_bytes(part[:8], "little") for part in parts(content))])
    assert bool(damage) == (shard.stat().st_size not in ends) and len(found) == int((ends[1:] <= shard.stat().st_size).sum())


def parts(data: bytes) -> list[bytes]:
    found = []
    while data:
        length = 16 + int.from_bytes(data[:8], "little")
        found.append(data[:length])
        data = data[length:]
    return found


def test_torn_and_missing_shards_are_told(tmp_path, copied):
    (copied / SHARDS[0]).write_bytes((copied / SHARDS[0]).read_bytes()[:-100])
    (copied / SHARDS[1]).unlink()
    dataset, notes = imported(tmp_path, copied)
    assert len([*dataset]) == 1 and "00000-of-00002 is cut off behind" in notes
    assert "1 shards are missing, such as tiny-train.tfrecord-00001-of-00002" in notes


@pytest.mark.parametrize(
    ("at", "words", "left"), [(30, "wrong checksums, which are left out", 2), (3, "is damaged behind 0 of", 1)]
)
def test_checksums_are_checked(tmp_path, copied, at, words, left):
    """A wrong byte of an episode costs that one; of its length, all behind it."""
    content = bytearray((copied / SHARDS[0]).read_bytes())
    content[at] ^= 1
    (copied / SHARDS[0]).write_bytes(content)
    dataset, notes = imported(tmp_path, copied)
    assert words in notes and len([*dataset]) == left


def with_image(content):
    def change(features):
        features["steps/observation/image"].bytes_list.value[0] = content

    return change


def shorter(name, field):
    def change(features):
        del getattr(features[name], field).value[-1]

    return change


BOMB = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + (60_000).to_bytes(4) * 2 + b"\x08\x02\x00\x00\x00"
HOSTILE = {
    "bomb": (with_image(BOMB), "declares more than it may hold"),
    "text": (with_image(b"no picture"), "no PNG and no JPEG"),
    "cut": (lambda f: with_image(f["steps/observation/image"].bytes_list.value[1][:60])(f), "damaged"),
    "state": (shorter("steps/observation/state", "float_list"), "has not the numbers of its shape"),
    "steps": (lambda f: [shorter("steps/reward", "float_list")(f) for _ in range(2)], "differ in length"),
    "action": (shorter("steps/action/gripper", "float_list"), "Parts of an action differ in length"),
    "packed": (lambda f: f["steps/observation/packed"].bytes_list.value.__setitem__(0, b"x"), "bytes of its shape"),
    "missing": (lambda f: f.__delitem__("steps/observation/state"), "lacks observation/state"),
    "nan": (lambda f: f["steps/action/gripper"].float_list.value.__setitem__(0, float("nan")), "holds NaN"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_examples(tmp_path, copied, name):
    change, words = HOSTILE[name]
    rewrite(copied / SHARDS[0], change)
    with pytest.raises(DatasetError, match=words):
        import_dataset(FORMAT, copied, tmp_path / "data")
    assert not (tmp_path / "data").exists()


def nested(depth: int) -> dict:
    inner: dict = {}
    for _ in range(depth):
        inner = {"featuresDict": {"features": {"a": inner}}}
    return {"featuresDict": {"features": {"steps": {"sequence": {"feature": inner}}}}}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "no features.json that can be read"),
        ("{", "no features.json that can be read"),
        ("{}", "describes no episodes"),
        ('{"featuresDict": {"features": {"image": {}}}}', "describes no episodes"),
        (json.dumps(nested(30)), "nested too deeply"),
        (json.dumps(nested(3)), r"do not say their observations(.|\n)*--mapping FILE"),
    ],
)
def test_hostile_descriptions(copied, text, words):
    (copied / "features.json").write_text(text)
    with pytest.raises(DatasetError, match=words):
        FORMAT.read(copied)


def test_links_and_other_file_formats_are_refused(copied):
    (copied / SHARDS[0]).unlink()
    (copied / SHARDS[0]).symlink_to(FIXTURE / SHARDS[0])
    with pytest.raises(DatasetError, match="is a link"):
        FORMAT.read(copied)
    for shard in SHARDS:
        (copied / shard).unlink()
    (copied / "tiny-train.array_record-00000-of-00001").write_bytes(b"")
    with pytest.raises(DatasetError, match=r"another file format(.|\n)*file_format='tfrecord'"):
        FORMAT.read(copied)


@pytest.mark.parametrize(
    ("mapping", "error", "words"),
    [
        ({"observations": {"a": "observation/imag"}}, UnknownName, r"did you mean 'observation/image'"),
        ({"actions": ["action/grip"]}, UnknownName, "action/gripper"),
        ({"split": "test"}, UnknownName, "train"),
        ({"observation": {}}, UnknownName, "observations"),
        ({"last_step": "maybe"}, InvalidSetting, "invalid"),
    ],
)
def test_mappings_that_do_not_fit(tmp_path, mapping, error, words):
    with pytest.raises(error, match=words):
        imported(tmp_path, FIXTURE, **mapping)
