"""The training cache: batches as from memory, bit for bit, whatever happens while it is built or to its files."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from factories import fill
from robo_datasets import cache as cache_module
from robo_datasets.cache import CachedEpisodes, cache_folders, content_of, open_cache
from robo_datasets.dataset import Dataset
from robo_rl.errors import DatasetError, EpisodeCorrupt, InvalidSetting
from robo_rl.extras import Chunks, FutureGoals, NextActions, ReturnsToGo
from robo_rl.replay.buffer import ReplayBuffer
from robo_rl.replay.recorded import RecordedReplay
from robo_rl.replay.rows import layout_of

BUILD = Path(__file__).with_name("build_cache.py")
LENGTHS = (5, 1, 9, 3)
EXTRAS = (ReturnsToGo(0.9), NextActions(), Chunks(3), FutureGoals("joint_position"))


@pytest.fixture
def filled(dataset, make_episode) -> Dataset:
    return fill(dataset, (make_episode(seed, steps, terminated=seed % 2 == 0) for seed, steps in enumerate(LENGTHS)))


@pytest.fixture(autouse=True)
def own_cache_home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))


def assert_equal(one, other):
    for field in fields(one):
        first, second = getattr(one, field.name), getattr(other, field.name)
        pairs = zip(first.values(), second.values(), strict=True) if isinstance(first, dict) else [(first, second)]
        for a, b in pairs:
            np.testing.assert_array_equal(a, b, strict=True)


def caches(dataset: Dataset) -> list[str]:
    return sorted(path.name for path in (dataset.path / "cache").iterdir() if path.is_dir())


def untouchable(entries):
    raise AssertionError("the cache was built again")


def test_replay_leaves_out_pictures_that_a_spec_lacks(filled):
    episodes = CachedEpisodes(filled, filled.entries())
    read, whole = filled.spec.without_pictures(), episodes.replay(seed=7).sample(50)
    assert len(read.observation) < len(filled.spec.observation)
    batch = episodes.replay(seed=7, spec=read).sample(50)
    assert set(batch.observations) == set(batch.next_observations) == set(read.observation)
    for name, values in batch.observations.items():
        np.testing.assert_array_equal(values, whole.observations[name], strict=True)


# what is sampled


@pytest.mark.slow
@pytest.mark.parametrize("n_step", [1, 3])
def test_batches_are_those_of_a_memory_in_ram_for_the_same_seed(filled, spec, n_step):
    memory = ReplayBuffer(spec, sum(LENGTHS) + len(LENGTHS), seed=7, extras=EXTRAS)
    for episode in filled:
        memory.add_episode(episode)
    cached = CachedEpisodes(filled, filled.entries()).replay(seed=7, extras=EXTRAS)
    in_ram = RecordedReplay.of(spec, list(filled), seed=7, extras=EXTRAS)
    assert len(cached) == len(memory) == len(in_ram) == sum(LENGTHS)
    for _ in range(5):
        batch = memory.sample(64, n_step, 0.9)
        assert_equal(batch, cached.sample(64, n_step, 0.9))
        assert_equal(batch, in_ram.sample(64, n_step, 0.9))


def test_time_limit_bootstraps_and_task_end_does_not(filled):
    batch = CachedEpisodes(filled, filled.entries()).replay(seed=0).sample(500)
    ends = {}
    for number, episode in enumerate(filled):
        for step in range(len(episode)):
            key = episode.observations["joint_position"][step].tobytes()
            ends[key] = (number, step == len(episode) - 1)
    seen = set()
    for row, mask in zip(batch.observations["joint_position"], batch.masks, strict=True):
        number, is_last = ends[row.tobytes()]
        assert mask == (0.0 if is_last and number % 2 == 0 else 1.0)
        seen.add((number, is_last))
    assert {(number, True) for number in range(len(LENGTHS))} <= seen


def test_returns_to_go_are_discounted_sums_within_the_episode(filled):
    batch = CachedEpisodes(filled, filled.entries()).replay(seed=0, extras=EXTRAS).sample(200)
    expected = {}
    for episode in filled:
        for step in range(len(episode)):
            beyond = 0.0 if episode.terminated else min(0.0, episode.rewards.min()) / (1 - 0.9)
            powers = 0.9 ** np.arange(len(episode) - step + 1)
            key = episode.observations["joint_position"][step].tobytes()
            expected[key] = float(np.sum(powers * [*episode.rewards[step:], beyond]))
    for row, value in zip(batch.observations["joint_position"], batch.extras["returns_to_go"], strict=True):
        assert value == pytest.approx(expected[row.tobytes()], rel=1e-5)


def test_without_asking_there_are_no_extras(filled):
    assert CachedEpisodes(filled, filled.entries()).replay(seed=0).sample(3).extras == {}


def test_an_episode_without_steps_takes_no_row(dataset, make_episode):
    with dataset.writer() as writer:
        for steps in (0, 2, 0):
            writer.add(make_episode(steps, steps))
    rows = open_cache(dataset, dataset.entries()).rows
    assert rows["starts"].tolist() == [True, True, False]
    with pytest.raises(InvalidSetting, match="no recorded steps to learn from"):
        CachedEpisodes(dataset, dataset.entries()[:1]).replay(seed=0).sample(1)


@pytest.mark.slow
@settings(max_examples=40)
@given(lengths=st.lists(st.integers(1, 8), min_size=1, max_size=6), length=st.integers(1, 10), before=st.integers(0, 9))
def test_a_window_never_leaves_its_episode(spec_of_numbers, numbered, lengths, length, before):
    episodes = [numbered(number, steps) for number, steps in enumerate(lengths)]
    windows = RecordedReplay.of(spec_of_numbers, episodes, seed=3).sample_windows(50, length, min(before, length - 1))
    before = min(before, length - 1)
    assert windows.valid.shape == (50, length) and len(windows) == 50
    for window in range(50):
        x, valid = windows.observations["x"][window, :, 0], windows.valid[window]
        number = int(x[before]) // 100
        drawn = int(x[before]) % 100
        steps = drawn - before + np.arange(length)
        assert valid[before], "the step that was drawn is real"
        np.testing.assert_array_equal(valid, (steps >= 0) & (steps < lengths[number]))
        expected = 100 * number + np.clip(steps, 0, lengths[number] - 1)
        np.testing.assert_array_equal(x, expected)
        np.testing.assert_array_equal(windows.actions[window, :, 0], (expected / 1000).astype(np.float32))
        np.testing.assert_array_equal(windows.rewards[window], expected)


def test_windows_start_at_every_step_alike(spec_of_numbers, numbered):
    replay = RecordedReplay.of(spec_of_numbers, [numbered(0, 2), numbered(1, 7)], seed=0)
    starts = replay.sample_windows(90_000, 2).observations["x"][:, 0, 0]
    counts = np.unique(starts, return_counts=True)[1]
    assert len(counts) == 9 and np.abs(counts - 10_000).max() < 500  # five standard deviations of a binomial count


def test_pictures_of_a_window_keep_their_type(filled):
    windows = CachedEpisodes(filled, filled.entries()).replay(seed=0).sample_windows(4, 3)
    assert windows.observations["camera_wrist"].shape == (4, 3, 8, 6, 3)
    assert windows.observations["camera_wrist"].dtype == np.uint8


# building


def test_a_cache_is_built_once_and_shown(filled):
    shown = []

    def watch(entries):
        shown.append(len(entries))
        return iter(entries)

    first = open_cache(filled, filled.entries(), watch)
    second = open_cache(filled, filled.entries(), untouchable)
    assert shown == [4]
    assert first.path == second.path == filled.path / "cache" / content_of(filled, filled.entries())
    assert not any(rows.flags.writeable for rows in second.rows.values())
    assert {path.name for path in first.path.iterdir()} == {"cache.json", *(f"{name}.npy" for name in first.rows)}


def test_episodes_can_be_asked_for_one_by_one(filled, same):
    episodes = CachedEpisodes(filled, filled.entries())
    assert len(episodes) == 4 and same(episodes[1], list(filled)[1])
    assert [len(episode) for episode in episodes[1:3]] == [1, 9]
    assert not (filled.path / "cache").exists(), "reading builds nothing"


@pytest.mark.slow
@pytest.mark.parametrize("death", [0, 2])
def test_kill_while_building_leaves_no_cache(filled, death):
    killed = subprocess.run([sys.executable, BUILD, filled.path, str(death)], check=False, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    assert [name.count(".tmp-") for name in caches(filled)] == [1]
    cache = open_cache(filled, filled.entries())
    assert caches(filled) == [cache.content], "what was left over is gone"
    assert cache.rows["starts"].sum() == sum(LENGTHS)


@pytest.mark.slow
def test_two_builders_at_once_both_succeed(filled):
    command = [sys.executable, BUILD, filled.path]
    builders = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    told = [builder.communicate(timeout=120)[0].strip() for builder in builders]
    assert [builder.returncode for builder in builders] == [0, 0]
    assert told[0] == told[1] == str(filled.path / "cache" / caches(filled)[0])


def test_a_damaged_episode_is_refused_and_leaves_no_cache(filled):
    file = filled.path / "episodes" / filled.entries()[2].file
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(EpisodeCorrupt, match=r"was changed after it was written.*\n(.*\n)*.*robo-rl data repair"):
        open_cache(filled, filled.entries())
    assert caches(filled) == []


def test_a_catalogue_that_is_wrong_is_named(filled):
    entries = filled.entries()
    object.__setattr__(entries[1], "steps", 2)
    with pytest.raises(
        DatasetError, match=r"catalogue is wrong about episode .*\n  got:     2 steps\n  allowed: 1 steps\n.*repair"
    ):
        open_cache(filled, entries)
    assert caches(filled) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: os.truncate(path / "starts.npy", 60),
        lambda path: flip(path / "vectors.npy"),
        lambda path: flip(path / "observation.camera_wrist.npy"),
        lambda path: (path / "source.npy").unlink(),
        lambda path: (path / "cache.json").write_text("{"),
        lambda path: (path / "cache.json").write_text("[]"),
        lambda path: change(path / "cache.json", rows=3),
        lambda path: change(path / "cache.json", schema="robo_rl.cache/0"),
        lambda path: change(path / "cache.json", content="0" * 32),
    ],
)
def test_a_damaged_cache_is_built_again(filled, damage):
    cache = open_cache(filled, filled.entries())
    wanted = {name: rows.copy() for name, rows in cache.rows.items()}
    damage(cache.path)
    again = open_cache(filled, filled.entries())
    for name, rows in wanted.items():
        np.testing.assert_array_equal(again.rows[name], rows)
    open_cache(filled, filled.entries(), untouchable)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def change(path: Path, **facts: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | facts))


def test_a_full_disk_is_one_error_and_leaves_nothing(filled, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache_module, "write_rows", full)
    with pytest.raises(DatasetError, match=r"No training cache could be written to .*cache.\n.*No space left.*\n.*make room"):
        open_cache(filled, filled.entries())
    assert caches(filled) == []


def test_a_cache_that_cannot_fit_is_refused_before_it_is_begun(filled, monkeypatch):
    monkeypatch.setattr(cache_module.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 100}))
    with pytest.raises(DatasetError, match=r"does not fit on the disk of .*\n  got:     0.00 GB\n.*\n.*fewer episodes"):
        open_cache(filled, filled.entries(), untouchable)


# which caches there are


def test_read_only_dataset_is_cached_in_user_folder(filled):
    (filled.path / "cache").write_text("in the way")  # refused to root as well, whom permissions do not stop
    cache = open_cache(filled, filled.entries())
    assert cache.path.parent == cache_folders(filled)[1]
    assert cache.path.is_relative_to(os.environ["XDG_CACHE_HOME"])
    open_cache(filled, filled.entries(), untouchable)


def test_where_nothing_can_be_written_both_places_are_named(filled, monkeypatch, tmp_path):
    (filled.path / "cache").write_text("in the way")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(DatasetError, match=r"no place for the training cache.\n.*data/cache: .*; .*file/.*\n.*XDG_CACHE_HOME"):
        open_cache(filled, filled.entries())


def test_other_episodes_are_another_cache(filled, make_episode):
    first = open_cache(filled, filled.entries())
    two = open_cache(filled, filled.entries()[:2])
    assert two.rows["starts"].sum() == 6
    turned = open_cache(filled, filled.entries()[::-1])
    assert len({first.content, two.content, turned.content}) == 3
    with filled.writer() as writer:
        writer.add(make_episode(50, 4))
    assert open_cache(filled, filled.entries()).rows["starts"].sum() == sum(LENGTHS) + 4


def test_the_caches_used_last_are_kept(filled):
    made = [open_cache(filled, filled.entries()[:count]).path for count in (1, 2, 3)]
    for age, path in enumerate(made):
        os.utime(path, (1000 - age, 1000 - age))
    open_cache(filled, filled.entries()[:2], untouchable)  # used again: now the newest
    fourth = open_cache(filled, filled.entries())
    assert {filled.path / "cache" / name for name in caches(filled)} == {made[0], made[1], fourth.path}


def test_the_cache_of_an_episode_that_is_gone_is_removed(filled):
    old = open_cache(filled, filled.entries())
    still = open_cache(filled, filled.entries()[:2])
    filled.catalogue.remove(filled.entries()[3].identity)
    new = open_cache(filled, filled.entries())
    assert {filled.path / "cache" / name for name in caches(filled)} == {still.path, new.path}
    assert old.rows["starts"].sum() == sum(LENGTHS), "who still uses it keeps it"


# saving and resuming


def test_a_saved_state_holds_no_rows_and_goes_on_exactly(filled):
    replay = CachedEpisodes(filled, filled.entries()).replay(seed=1)
    replay.sample(8)
    state = json.loads(json.dumps(replay.state_dict()))
    assert state.keys() == {"generator", "content"}
    other = CachedEpisodes(filled, filled.entries()).replay(seed=2)
    other.load_state_dict(state)
    assert_equal(replay.sample(16), other.sample(16))
    assert_equal(replay.sample_windows(4, 3), other.sample_windows(4, 3))


def test_another_dataset_at_resume_is_refused(filled):
    state = CachedEpisodes(filled, filled.entries()).replay(seed=1).state_dict()
    fewer = CachedEpisodes(filled, filled.entries()[:3]).replay(seed=1)
    with pytest.raises(
        InvalidSetting, match=rf"other recorded episodes than there are now.\n(.*\n)*  allowed: content {state['content']}\n"
    ):
        fewer.load_state_dict(state)


def test_episodes_in_ram_are_saved_with_the_state(spec, make_episode):
    replay = RecordedReplay.of(spec, [make_episode(0, 4)], seed=1, extras=EXTRAS)
    state = replay.state_dict()
    assert state["rows"].keys() == layout_of(spec, EXTRAS).keys()
    other = RecordedReplay.of(spec, [make_episode(1, 6)], seed=2, extras=EXTRAS)
    other.load_state_dict(state)
    assert_equal(replay.sample(16), other.sample(16))
