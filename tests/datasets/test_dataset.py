"""The store: what goes in comes out bit for bit, and whatever happens to the files is noticed, never believed."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from factories import rest_slow
from robo_datasets.dataset import Dataset
from robo_datasets.episode_file import read_episode, write_episode
from robo_datasets.labels import LabelSet
from robo_datasets.recorder import record_episode
from robo_datasets.repair import repair, verify
from robo_rl.environments.make import make_environment
from robo_rl.errors import DatasetBusy, DatasetError, DatasetNotFound, EpisodeCorrupt, InvalidEpisode, SpecMismatch
from robo_rl.rollout.episode import RandomPolicy
from robo_rl.rollout.journal import recover
from robo_rl.spec.environment import specification
from robo_rl.types import RewardLabels

SCRIPT = Path(__file__).with_name("kill_recorder.py")
IDENTITY = "0" * 32


def fill(dataset, make_episode, count=3, **changes):
    with dataset.writer() as writer:
        return [writer.add(make_episode(seed, **changes)) for seed in range(count)]


@given(
    steps=st.integers(1, 9),
    terminated=st.booleans(),
    truncated=st.booleans(),
    success=st.sampled_from([None, True, False]),
    instruction=st.none() | st.text(st.characters(codec="utf-8"), max_size=9),
    costs=st.booleans(),
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_episode_comes_back_bit_for_bit(tmp_path_factory, spec, make_episode, same, steps, costs, **facts):
    folder = tmp_path_factory.mktemp("episodes")
    episode = make_episode(1, steps, costs=np.ones(steps, np.float32) if costs else None, **facts)
    name = write_episode(folder, IDENTITY, episode, spec)
    found = read_episode(folder / str(name))
    assert same(found.episode, episode)
    assert found.spec == spec


def test_a_dataset_keeps_order_spec_and_card(dataset, make_episode, same, spec):
    fill(dataset, make_episode)
    again = Dataset(dataset.path)
    assert again.card == {"how": "by hand"} and again.spec == spec
    assert all(same(found, make_episode(seed)) for seed, found in enumerate(again))
    assert [entry.seed for entry in again.entries()] == [0, 1, 2]
    assert verify(again) == []


def test_a_short_episode_is_a_small_file(spec_of_numbers, numbered, tmp_path):
    episode = numbered(0, 22)
    name = write_episode(tmp_path, IDENTITY, episode, spec_of_numbers)
    assert (tmp_path / str(name)).stat().st_size < 10_000, "arrays of 0.6 KB, and a header of 1 KB"


def test_an_episode_of_an_older_layout_is_read(spec, make_episode, same, tmp_path, monkeypatch):
    monkeypatch.setattr("robo_datasets.episode_file.LAYOUT", None)
    name = write_episode(tmp_path, IDENTITY, make_episode(1), spec)
    assert same(read_episode(tmp_path / str(name)).episode, make_episode(1))


def test_pictures_are_kept_exactly_and_checksummed(dataset, make_episode):
    (entry,) = fill(dataset, make_episode, 1)
    with h5py.File(dataset.path / "episodes" / entry.file) as file:
        pictures = file["observations/camera_wrist"]
        assert pictures.chunks == (1, 8, 6, 3) and pictures.fletcher32 and pictures.compression == "gzip"
        assert all(file[name].fletcher32 for name in ("actions", "rewards", "timestamps", "observations/joint_position"))


def test_any_flipped_byte_is_noticed(dataset, make_episode):
    (entry,) = fill(dataset, make_episode, 1)
    path = dataset.path / "episodes" / entry.file
    content = path.read_bytes()
    chosen = random.Random(0)
    for position in chosen.sample(range(len(content)), 200):
        path.write_bytes(content[:position] + bytes([content[position] ^ 1 << chosen.randrange(8)]) + content[position + 1 :])
        with pytest.raises(EpisodeCorrupt, match="changed after it was written"):
            dataset.read(entry)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_truncated_file_is_noticed_and_quarantined_once(dataset, make_episode, share):
    entries = fill(dataset, make_episode)
    path = dataset.path / "episodes" / entries[1].file
    os.truncate(path, int(path.stat().st_size * share))
    (finding,) = verify(dataset)
    assert finding.name == path.name and "torn" in finding.problem
    with dataset.writer() as writer:
        assert [found.action for found in repair(writer)] == ["quarantined"]
        assert repair(writer) == []
    assert len(dataset) == 2 and (dataset.path / "quarantine" / path.name).exists()


def killed(dataset: Dataset, steps: int, seconds: float) -> list[tuple[int, str]]:
    """Returns number and file of the episodes that a recorder acknowledged before it was killed."""
    with subprocess.Popen([sys.executable, SCRIPT, dataset.path, str(steps)], stdout=subprocess.PIPE, text=True) as process:
        first = process.stdout.readline()  # importing takes seconds, and is not what is killed
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        lines = [first, *process.stdout]
    return [(int(line.split()[1]), line.split()[2]) for line in lines if line.startswith("stored") and line.endswith("\n")]


def check_after_kill(dataset: Dataset, acknowledged: list[tuple[int, str]]) -> None:
    files = [entry.file for entry in dataset.entries()]
    assert {file for _, file in acknowledged} <= set(files), "an acknowledged episode is lost"
    with dataset.writer() as writer:
        repair(writer, thorough=False)
        assert repair(writer) == [], "a second repair must find nothing"
    numbers = [episode.seed for episode in dataset]  # reads, and so verifies, every one
    assert sorted(numbers) == list(range(1, len(numbers) + 1)), "an episode is missing or doubled"
    assert not [*(dataset.path / "journal").iterdir()]


@pytest.mark.parametrize("steps", rest_slow([300, 2]))
def test_kills_lose_nothing(dataset, steps):
    chosen = random.Random(steps)
    for _ in range(2):
        check_after_kill(dataset, killed(dataset, steps, chosen.uniform(0, 0.3)))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("steps", [2, 300])
def test_a_hundred_kills_lose_nothing(tmp_path, spec, steps):
    chosen = random.Random(steps)
    for number in range(100):
        if number % 10 == 0:  # a dataset that grows for ever takes ever longer to read
            dataset = Dataset.create(tmp_path / f"{number}", spec)
        check_after_kill(dataset, killed(dataset, steps, chosen.uniform(0, 0.5)))


def test_running_episode_is_recovered_to_last_whole_step(dataset, make_episode, same):
    episode = make_episode(3, steps=6)
    with dataset.writer() as writer:
        journal = kill_recorder().journal_of(writer, episode)
        journal.close()
    whole, _ = recover(journal.path)
    changes = {"timestamps": whole.timestamps, "metadata": whole.metadata, "reward_terms": {}}
    assert same(whole, replace(episode, **changes))
    os.truncate(journal.path, journal.path.stat().st_size - 7)  # the last step is torn
    with dataset.writer() as writer:
        (finding,) = repair(writer, thorough=False)
    assert "recovered 5 steps" in finding.action
    (found,) = dataset
    assert (len(found), found.stop_reason, found.truncated, found.terminated) == (5, "crash", True, False)
    assert np.array_equal(found.observations["camera_wrist"], episode.observations["camera_wrist"][:6])
    assert not journal.path.exists()


def test_an_episode_that_had_ended_keeps_its_own_end(dataset, make_episode):
    with dataset.writer() as writer:
        for success, stop_reason in ((True, "goal"), (False, "failure")):
            ended = {"terminated": True, "truncated": False, "success": success, "stop_reason": stop_reason}
            kill_recorder().journal_of(writer, make_episode(**ended)).close()
        kill_recorder().journal_of(writer, make_episode(stop_reason="time_limit")).close()
        repair(writer, thorough=False)
    assert sorted(found.stop_reason for found in dataset) == ["failure", "goal", "time_limit"]


def test_a_journal_of_another_environment_or_name_is_quarantined(dataset, make_episode, spec):
    other = Dataset.create(dataset.path.with_name("other"), replace(spec, name="test/Other-v0"))
    with other.writer() as writer:
        foreign = kill_recorder().journal_of(writer, make_episode())
    with dataset.writer() as writer:
        own = kill_recorder().journal_of(writer, make_episode())
    own.close()
    own.path.rename(own.path.with_name("not-an-identity.journal"))
    foreign.close()
    foreign.path.rename(dataset.path / "journal" / foreign.path.name)
    with dataset.writer() as writer:
        found = {finding.name: finding for finding in repair(writer, thorough=False)}
    assert "another environment" in found[foreign.path.name].problem
    assert "no name of an episode" in found["not-an-identity.journal"].problem
    assert {finding.action for finding in found.values()} == {"quarantined"} and len(dataset) == 0


def test_changed_labels_are_found(dataset, make_episode):
    (entry,) = fill(dataset, make_episode, 1)
    values = np.ones(entry.steps, np.float32)
    LabelSet(dataset, "progress").add(entry.identity, RewardLabels(values, values > 0, "m", "w", "p"))
    assert verify(dataset) == []
    with contextlib.closing(sqlite3.connect(dataset.path / "labels" / "progress.sqlite")) as connection, connection:
        connection.execute("UPDATE labels SET values_f32 = zeroblob(20)")
    (finding,) = verify(dataset)
    assert finding.name == "progress" and "were changed" in finding.problem


@pytest.mark.parametrize("size", [0, 3, 20])
def test_a_journal_without_one_whole_step_is_quarantined(dataset, size):
    (dataset.path / "journal" / f"{IDENTITY}.journal").write_bytes(b"\x10" * size)
    with dataset.writer() as writer:
        (finding,) = repair(writer, thorough=False)
    assert finding.action.startswith("quarantined") and len(dataset) == 0


def test_an_orphan_is_adopted_and_a_lost_catalogue_made_again(dataset, make_episode):
    fill(dataset, make_episode)
    for path in dataset.path.glob("catalogue.sqlite*"):
        path.write_bytes(b"not a database, but long enough to look at" * 99)
    with pytest.raises(DatasetError, match=r"catalogue.sqlite cannot be used"):
        dataset.entries()
    with dataset.writer() as writer:
        actions = [finding.action for finding in repair(writer)]
    assert actions[0].startswith("made again") and actions[1:] == ["adopted"] * 3
    assert sorted(episode.seed for episode in dataset) == [0, 1, 2]


def test_a_full_disk_is_one_error_and_leaves_nothing(dataset, make_episode):
    fill(dataset, make_episode, 1)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write beyond the limit then fails as on a full disk
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, before[1]))
    try:
        with pytest.raises(DatasetError, match=r"could not be written(.|\n)*make room"), dataset.writer() as writer:
            writer.add(make_episode(5, steps=400))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert len(dataset) == 1 and verify(dataset) == []
    fill(dataset, make_episode, 1)
    assert len(dataset) == 2


def test_full_disk_keeps_earlier_steps_of_episode(dataset, make_episode, spec):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with dataset.writer() as writer:
            resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, before[1]))
            with pytest.raises(DatasetError, match=r"step could not be written(.|\n)*make room"):
                kill_recorder().journal_of(writer, make_episode(0, steps=300))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    with dataset.writer() as writer:
        repair(writer)
    (found,) = dataset
    assert 10 < len(found) < 300 and found.stop_reason == "crash"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@given(key=st.sampled_from(["schema", "spec", "terminated", "spec_fingerprint", "metadata"]), value=JSON, within=st.booleans())
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.slow
def test_no_header_leads_to_another_error(tmp_path_factory, spec, make_episode, key, value, within):
    folder = tmp_path_factory.mktemp("headers")
    write_episode(folder, IDENTITY, make_episode(), spec)

    def change(file):
        header = json.loads(bytes(file["header"][()]))
        target = header["spec"] if within else header
        target["observation" if within and key == "metadata" else key] = value
        del file["header"]
        file["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)

    path = forged(folder, change)
    with contextlib.suppress(EpisodeCorrupt):
        read_episode(path)


def kill_recorder():
    """Returns the module beside this file."""
    sys.path.insert(0, str(SCRIPT.parent))
    try:
        import kill_recorder

        return kill_recorder
    finally:
        sys.path.pop(0)


def test_two_writers_are_refused(dataset):
    with dataset.writer(), pytest.raises(DatasetBusy, match="Another process is writing"), Dataset(dataset.path).writer():
        pass


def test_a_folder_that_may_not_be_written_to(dataset, make_episode, monkeypatch):
    fill(dataset, make_episode)
    open_file = Path.open

    def refuse(path, mode="r", *args, **kwargs):  # root may write anywhere, so that the folder's mode would not do
        if path.name == "lock":
            raise PermissionError(13, "Permission denied")
        return open_file(path, mode, *args, **kwargs)

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DatasetError, match=r"cannot be written to(.|\n)*Permission denied"), dataset.writer():
        pass
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert len([*dataset]) == 3, "reading needs no right to write"


def test_what_is_no_dataset(tmp_path, dataset, spec):
    with pytest.raises(DatasetNotFound, match="is not a dataset"):
        Dataset(tmp_path)
    with pytest.raises(DatasetError, match="is not empty"):
        Dataset.create(dataset.path, spec)
    described = json.loads((dataset.path / "dataset.json").read_text())
    (dataset.path / "dataset.json").write_text(json.dumps(described | {"schema": "robo_rl.dataset/9"}))
    with pytest.raises(DatasetError, match=r"another schema(.|\n)*robo_rl.dataset/9"):
        Dataset(dataset.path)


def test_an_episode_of_another_environment(dataset, make_episode, spec):
    other = replace(spec, name="test/Other-v0")
    with dataset.writer() as writer, pytest.raises(InvalidEpisode, match="not recorded with this spec"):
        writer.add(make_episode(spec_fingerprint=other.fingerprint))
    name = write_episode(dataset.path / "episodes", IDENTITY, make_episode(spec_fingerprint=other.fingerprint), other)
    with dataset.writer() as writer:
        (finding,) = repair(writer)
    assert finding.name == str(name) and "another environment" in finding.problem and finding.action == "quarantined"


def test_a_catalogue_cannot_lead_out_of_the_folder(dataset, make_episode):
    (entry,) = fill(dataset, make_episode, 1)
    dataset.catalogue.remove(entry.identity)
    dataset.catalogue.add(replace(entry, file="../../etc/passwd"))
    with pytest.raises(EpisodeCorrupt, match="no name of an episode's file"):
        dataset.entries()


def forged(folder: Path, change) -> Path:
    """Returns an episode's file after `change`, under a name that fits its content."""
    import hashlib

    (path,) = folder.iterdir()
    with h5py.File(path, "a") as file:
        change(file)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return path.rename(path.with_name(f"{IDENTITY}.{digest}.h5"))


def link_outside(file):
    del file["rewards"]
    file["rewards"] = h5py.ExternalLink("/etc/hostname", "/rewards")


def link_softly(file):
    file["costs"] = h5py.SoftLink("/rewards")


def store_outside(file):
    del file["rewards"]
    file.create_dataset("rewards", (5,), "f4", external=[("/dev/zero", 0, 20)])


def store_virtually(file):
    del file["rewards"]
    layout = h5py.VirtualLayout((5,), "f4")
    layout[:] = h5py.VirtualSource("/tmp/elsewhere.h5", "rewards", (5,))
    file.create_virtual_dataset("rewards", layout)


def declare_absurdly(file):
    file.create_dataset("costs", (1 << 50,), "f4", chunks=(1 << 20,), compression="gzip")


def pack_densely(file):  # 2 GB of zeros in 2 MB, then 1,000 times that declared
    file.create_dataset("costs", (1 << 38,), "u1", chunks=(1 << 24,), compression="gzip", fillvalue=0)


def hold_objects(file):
    file.create_dataset("costs", data=["a", "b"], dtype=h5py.string_dtype())


def drop_rewards(file):
    del file["rewards"]


def nest_deeply(file):
    file.create_group("a/b/c/d/e")


def write_another_schema(file):
    header = json.loads(bytes(file["header"][()]))
    del file["header"]
    file["header"] = np.frombuffer(json.dumps(header | {"schema": "robo_rl.episode/9"}).encode(), np.uint8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (link_outside, "is a link"),
        (link_softly, "is a link"),
        (store_outside, "stored in other files"),
        (store_virtually, "stored in other files"),
        (declare_absurdly, "declares more data than it can hold"),
        (pack_densely, "declares more data than it can hold"),
        (hold_objects, "not of plain numbers"),
        (drop_rewards, "is no episode of schema"),
        (nest_deeply, "more groups or arrays"),
        (write_another_schema, "another schema"),
    ],
)
def test_a_hostile_file_is_refused(tmp_path, spec, make_episode, change, message):
    write_episode(tmp_path, IDENTITY, make_episode(), spec)
    with pytest.raises(EpisodeCorrupt, match=message):
        read_episode(forged(tmp_path, change))


def test_recording_in_a_simulator(tmp_path):
    environment = make_environment("gymnasium/InvertedPendulum-v5")
    spec = specification(environment)
    dataset = Dataset.create(tmp_path / "pendulum", spec)
    with dataset.writer() as writer:
        for seed in range(3):
            record_episode(environment, RandomPolicy(spec, seed), writer, seed=seed, source="random")
    assert [entry.source for entry in dataset.entries()] == ["random"] * 3
    assert all(
        episode.terminated and len(episode) == entry.steps for episode, entry in zip(dataset, dataset.entries(), strict=True)
    )
    assert not [*(dataset.path / "journal").iterdir()]
    other = make_environment("gymnasium/Hopper-v5")
    with dataset.writer() as writer, pytest.raises(SpecMismatch, match="recorded in another environment"):
        record_episode(other, RandomPolicy(specification(other), 0), writer, seed=0, source="random")


def test_notes_are_kept(dataset, make_episode):
    (entry,) = fill(dataset, make_episode, 1)
    dataset.catalogue.note(entry.identity, "gripper slipped")
    assert dataset.catalogue.notes(entry.identity) == ["gripper slipped"]
    shutil.copytree(dataset.path, dataset.path.with_name("copy"))
    assert Dataset(dataset.path.with_name("copy")).catalogue.notes(entry.identity) == ["gripper slipped"]


def test_episode_with_nan_rewards_is_kept_and_reported(dataset, make_episode, same):
    """A faulty sensor must not cost the recording: it is stored, its return is NaN, and looking at it does not fail."""
    episode = make_episode(rewards=np.array([1.0, np.nan, 0.0, 0.0, 0.0], np.float32))
    with dataset.writer() as writer:
        entry = writer.add(episode)
        writer.add(make_episode(1))
        assert repair(writer) == []
    assert np.isnan(entry.episode_return)
    assert np.isnan(dataset.entries()[0].episode_return)
    assert same(dataset.read(dataset.entries()[0]), episode)
    assert verify(dataset) == []
    (dataset.path / "catalogue.sqlite").unlink()
    with dataset.writer() as writer:
        repair(writer)
    assert sorted(np.isnan(entry.episode_return) for entry in dataset.entries()) == [False, True]
