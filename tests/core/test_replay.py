"""Replay: against a naive list of episodes, through wrap-around, n-step sums, cuts and saving."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factories import axes, choices, make_episode, make_spec, picture_spec
from robo_rl.errors import InvalidEpisode, InvalidSetting
from robo_rl.extras import Chunks, NextActions, ReturnsToGo
from robo_rl.protocols.sampling import Sampling
from robo_rl.replay.buffer import ReplayBuffer
from robo_rl.replay.mixing import SymmetricReplay
from robo_rl.replay.recorded import RecordedReplay
from robo_rl.runs.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from robo_rl.spec.environment import ArraySpec
from robo_rl.types import DIVERGED, ActionSource, Batch, Episode, Transition

ACTION = axes("a")
SPEC = make_spec("replay-test", ArraySpec("x", (1,)), ArraySpec("y", (2,), role="goal"), action=ACTION)
DISCOUNT = 0.9


def observation(number: int) -> dict[str, np.ndarray]:
    return {"x": np.array([number], np.float32), "y": np.array([-number, number / 2], np.float32)}


def transition(number: int, end: str = "") -> Transition:
    """Step from state `number` to `number + 1`, recognisable by its action and reward."""
    action = np.array([number / 1000], np.float32)
    return Transition(
        observation(number),
        action,
        float(number),
        observation(number + 1),
        terminated=end == "terminated",
        truncated=end == "truncated",
        policy_action=action,
        source=ActionSource.HUMAN if number % 3 == 0 else ActionSource.POLICY,
    )


class NaiveReplay:
    """Episodes as lists; the ring as a deque of rows of which each may be the first row of a step."""

    def __init__(self, capacity: int) -> None:
        self.rows: deque[tuple[int, int] | None] = deque(maxlen=capacity)
        self.episodes: list[list[Transition]] = [[]]

    def add(self, step: Transition) -> None:
        if not self.episodes[-1]:
            self.rows.append(None)
        self.rows[-1] = (len(self.episodes) - 1, len(self.episodes[-1]))
        self.rows.append(None)
        self.episodes[-1].append(step)
        if step.terminated or step.truncated:
            self.episodes.append([])

    def cut(self) -> None:
        if self.episodes[-1]:
            self.episodes.append([])

    def expected(self, n_step: int) -> dict[int, tuple[float, float, float, float, bool]]:
        """Returns first state -> reward sum, mask, discount, next state, is_human."""
        result = {}
        for episode, index in (row for row in self.rows if row is not None):
            steps = self.episodes[episode][index : index + n_step]
            total = sum(DISCOUNT**k * step.reward for k, step in enumerate(steps))
            last, first = steps[-1], steps[0]
            result[int(first.observation["x"][0])] = (
                total,
                1.0 - last.terminated,
                DISCOUNT ** len(steps),
                float(last.next_observation["x"][0]),
                first.source == ActionSource.HUMAN,
            )
        return result


def rows_of(batch: Batch) -> dict[int, tuple[float, float, float, float, bool]]:
    return {
        int(batch.observations["x"][k, 0]): (
            float(batch.rewards[k]),
            float(batch.masks[k]),
            float(batch.discounts[k]),
            float(batch.next_observations["x"][k, 0]),
            bool(batch.is_human[k]),
        )
        for k in range(len(batch))
    }


def put(replay: ReplayBuffer, *steps: Transition) -> ReplayBuffer:
    """Adds steps that follow each other; begins an episode where none runs."""
    for step in steps:
        if not replay.is_running():
            replay.begin(step.observation)
        replay.add(step)
    return replay


EPISODES = st.lists(st.tuples(st.integers(1, 7), st.sampled_from(["terminated", "truncated", "cut", "begun"])), max_size=12)


@pytest.mark.slow
@given(episodes=EPISODES, capacity=st.integers(2, 40), n_step=st.integers(1, 5), running=st.integers(1, 4))
def test_every_transition_is_the_one_that_was_added(episodes, capacity, n_step, running):
    replay, naive, number = ReplayBuffer(SPEC, capacity, 0), NaiveReplay(capacity), 0
    for length, end in [*episodes, (running, "running")]:
        for step in range(length):
            new = transition(number, end if step == length - 1 else "")
            put(replay, new)
            naive.add(new)
            number += 1
        number += 1  # the next episode begins in another state
        if end == "cut":
            replay.cut()
        if end == "begun":  # the next episode, with nothing told of the end of this one
            replay.begin(observation(number))
        if end in ("cut", "begun"):
            naive.cut()
    expected = naive.expected(n_step)
    assert len(replay) == len(expected)
    batch = replay.sample(40 * len(expected), n_step, DISCOUNT)
    sampled = rows_of(batch)
    assert sampled.keys() == expected.keys()
    for state, values in expected.items():
        assert sampled[state] == pytest.approx(values, rel=1e-6)
    np.testing.assert_array_equal(batch.observations["y"][:, 0], -batch.observations["x"][:, 0])
    np.testing.assert_allclose(batch.actions[:, 0], batch.observations["x"][:, 0] / 1000, rtol=1e-6)


def test_time_limit_bootstraps_and_terminal_does_not():
    replay = filled(2, end="truncated")
    assert set(replay.sample(50).masks) == {1.0}
    assert set(filled(2, end="terminated").sample(50, n_step=2).masks) == {0.0}


def test_sampling_is_uniform():
    replay = filled(9)
    states = replay.sample(90_000).observations["x"][:, 0]
    counts = np.bincount(states.astype(int), minlength=9)
    assert np.abs(counts - 10_000).max() < 500  # five standard deviations of a binomial count


def test_an_episode_equals_its_steps():
    steps = [transition(n, "terminated" if n == 3 else "") for n in range(4)]
    one, other = ReplayBuffer(SPEC, 50, 1), ReplayBuffer(SPEC, 50, 1)
    put(one, *steps)
    other.add_episode(episode_of(steps))
    assert_equal(one.sample(20, 2), other.sample(20, 2))


def test_a_diverged_step_of_a_recording_is_never_sampled():
    steps = [transition(n) for n in range(6)]
    diverged = replace(episode_of(steps), terminated=False, truncated=True, stop_reason=DIVERGED)
    replay = RecordedReplay.of(SPEC, [diverged], 0)
    assert len(replay) == 5
    rewards = [float(step.reward) for step in steps[:5]]
    assert {*replay.sample(200, 3, 1.0).rewards.tolist()} == {sum(rewards[first : first + 3]) for first in range(5)}


def test_a_recorded_episode_that_was_cut_ends_as_truncated():
    steps = [transition(n) for n in range(3)]
    replay = ReplayBuffer(SPEC, 50, 1)
    replay.add_episode(episode_of(steps))
    put(replay, transition(3))  # starts in the very state that the recorded episode had reached
    sums = rows_of(replay.sample(100, 4, 1.0))
    assert sums[2][0] == 2.0
    assert sums[2][1] == 1.0


@pytest.mark.parametrize("count", [5, 25])
def test_saved_and_loaded_gives_the_same_next_sample(count, tmp_path):
    replay = filled(count, capacity=16)
    replay.sample(3)
    state = replay.state_dict()
    assert len(state["rows"]["vectors"]) <= 16
    json.dumps(state["generator"])
    save_checkpoint(tmp_path, Checkpoint(1, {"replay": state}))
    copy = ReplayBuffer(SPEC, 16, seed=99)
    copy.load_state_dict(load_checkpoint(tmp_path).parts["replay"])
    for step in range(count, count + 20):  # the running episode goes on, through the end of the ring
        put(replay, transition(step))
        put(copy, transition(step))
        assert_equal(replay.sample(8, 3), copy.sample(8, 3))


def test_loading_forgets_what_a_used_memory_held():
    used, state = filled(30), filled(3).state_dict()
    used.load_state_dict(state)
    assert len(used) == 3
    for replay in (used, expected := filled(3)):
        put(replay, transition(100))
    assert rows_of(used.sample(100, 3)) == rows_of(expected.sample(100, 3))


def test_the_saved_rows_are_views_that_cannot_be_written():
    replay = filled(3)
    rows = replay.state_dict()["rows"]
    assert all(np.shares_memory(rows[name], replay._rows[name]) for name in rows)
    with pytest.raises(ValueError, match="read-only"):
        rows["vectors"][0] = 1


def test_another_capacity_is_refused():
    with pytest.raises(InvalidSetting, match=r"another capacity.\n  got:     50\n  allowed: 60"):
        ReplayBuffer(SPEC, 60, 0).load_state_dict(filled(3, capacity=50).state_dict())


def test_a_forgotten_begin_is_one_clear_error():
    replay = ReplayBuffer(SPEC, 50, 0)
    with pytest.raises(InvalidEpisode, match=r"outside of an episode.\n  got:     add without begin\n(.*\n)*.*call begin"):
        replay.add(transition(0))
    put(replay, transition(0, "terminated"))
    with pytest.raises(InvalidEpisode, match="add without begin"):
        replay.add(transition(1))
    assert len(replay) == 1


def test_observations_are_never_compared():
    """Steps of one episode stay one, and those of two apart, whatever their observations say."""
    replay = ReplayBuffer(SPEC, 50, 0)
    still = replace(transition(3), next_observation=observation(3))
    put(replay, still, still, replace(still, observation=observation(9)))
    replay.begin(observation(3))
    put(replay, still)
    assert replay.sample(200, n_step=4, discount=1.0).rewards.max() == 9.0
    assert replay.state_dict()["cursor"] == 5


def test_an_episode_begun_twice_takes_no_row():
    replay, other = (ReplayBuffer(SPEC, 50, 0) for _ in range(2))
    for memory in (replay, other, replay):
        memory.begin(observation(0))
    replay.cut()
    replay.begin(observation(0))
    for memory in (replay, other):
        put(memory, transition(0), transition(1, "truncated"))
    assert_equal(replay.sample(9), other.sample(9))
    assert replay.state_dict()["cursor"] == other.state_dict()["cursor"]


def test_images_and_choices_keep_their_types():
    arrays = (picture_spec(), ArraySpec("action", (2,)))
    spec = make_spec("image-test", *arrays, action=choices("left", "right"))
    replay = ReplayBuffer(spec, 10, 0)
    first, second = ({"camera_front": np.full((4, 4, 3), k, np.uint8), "action": np.ones(2, np.float32)} for k in (7, 9))
    put(replay, Transition(first, np.int64(1), 0.5, second, True, False, np.int64(1)))
    batch = replay.sample(3)
    assert batch.observations["camera_front"].dtype == np.uint8
    assert (batch.observations["camera_front"] == 7).all()
    assert (batch.next_observations["camera_front"] == 9).all()
    assert batch.observations["action"].shape == (3, 2)
    assert batch.actions.dtype == np.int64
    assert batch.actions.tolist() == [1, 1, 1]


def test_undeclared_pictures_are_neither_stored_nor_restored():
    arrays = (picture_spec(), ArraySpec("x", (2,)))
    spec = make_spec("image-test", *arrays, action=ACTION)
    whole, read = ReplayBuffer(spec, 10, 0), ReplayBuffer(spec.without_pictures(), 10, 0)
    seen = [{"camera_front": np.full((4, 4, 3), k, np.uint8), "x": np.full(2, k, np.float32)} for k in range(4)]
    for k in range(3):
        step = Transition(seen[k], np.zeros(1, np.float32), 1.0, seen[k + 1], k == 2, False, np.zeros(1, np.float32))
        put(whole, step)
        put(read, step)
    assert set(read.state_dict()["rows"]) == set(whole.state_dict()["rows"]) - {"observation.camera_front"}
    restored = ReplayBuffer(spec.without_pictures(), 10, 5)
    restored.load_state_dict(whole.state_dict())  # of a run that stored them
    expected, found = read.sample(20), restored.sample(20)
    assert set(found.observations) == {"x"}
    np.testing.assert_array_equal(found.observations["x"], expected.observations["x"])


def test_the_global_generator_is_left_alone():
    state = json.dumps(np.random.get_state(legacy=False)["state"]["key"].tolist())  # noqa: NPY002
    filled(9).sample(5)
    assert json.dumps(np.random.get_state(legacy=False)["state"]["key"].tolist()) == state  # noqa: NPY002


def test_an_empty_memory_says_what_to_do():
    with pytest.raises(InvalidSetting, match=r"empty replay memory cannot be sampled.\n.*0 transitions\n.*learning_starts"):
        ReplayBuffer(SPEC, 10, 0).sample(1)


def test_one_row_is_not_enough():
    with pytest.raises(InvalidSetting, match="two rows for one transition"):
        ReplayBuffer(SPEC, 1, 0)


@given(size=st.integers(1, 600), fraction=st.floats(0.01, 0.99))
def test_any_slice_of_a_mixed_batch_has_the_same_mix(size, fraction):
    is_offline = offline_rows(size, fraction)
    reached = np.concatenate(([0], np.cumsum(is_offline)))
    assert is_offline.sum() == np.floor(size * fraction + 1e-9)
    for length in (1, size // 3, size // 2):
        shares = reached[length:] - reached[: len(reached) - length]
        assert np.abs(shares - fraction * length).max() < 1 + 1e-6


@pytest.mark.parametrize(("size", "offline"), [(256, 128), (7, 3), (1, 0)])
def test_mixed_batch_is_half_offline_and_odd_one_online(size, offline):
    assert offline_rows(size, 0.5).sum() == offline
    assert not (offline_rows(size, 0.5)[:-1] & offline_rows(size, 0.5)[1:]).any()


def test_mixing_keeps_each_row_together():
    mixed = SymmetricReplay(filled(5), filled(5, start=500))
    batch = mixed.sample(64)
    x = batch.observations["x"][:, 0]
    np.testing.assert_array_equal(batch.rewards, x)
    np.testing.assert_array_equal(batch.next_observations["x"][:, 0], x + 1)
    np.testing.assert_array_equal(batch.is_human, x % 3 == 0)


def test_rows_of_version_0_1_still_load():
    memory, copy = filled(20), ReplayBuffer(SPEC, 21, 0)
    state = memory.state_dict()
    state["rows"]["is_human"] = state["rows"].pop("source") == ActionSource.HUMAN
    copy = ReplayBuffer(SPEC, memory.capacity, 0)
    copy.load_state_dict(state)
    assert_equal(copy.sample(50), memory.sample(50))


def test_mixed_saved_and_loaded_gives_the_same_next_sample():
    mixed, copy = (SymmetricReplay(filled(5), filled(5, start=500)) for _ in range(2))
    mixed.sample(10)
    copy.load_state_dict(mixed.state_dict())
    assert_equal(mixed.sample(20), copy.sample(20))


def test_a_mix_without_offline_data_is_refused():
    with pytest.raises(InvalidSetting, match=r"needs recorded episodes, and there are none.\n(.*\n)*.*record demonstrations"):
        SymmetricReplay(filled(5), ReplayBuffer(SPEC, 10, 0))


def test_a_fraction_of_one_is_refused():
    with pytest.raises(InvalidSetting, match="offline fraction is out of range"):
        SymmetricReplay(filled(5), filled(5), 1.0)


@pytest.mark.parametrize("setting", [{"batch_size": 0}, {"discount": 1.1}, {"learning_starts": 0}, {"offline_fraction": 1.1}])
def test_settings_out_of_range_are_named(setting):
    (name,) = setting
    with pytest.raises(InvalidSetting, match=f"Setting '{name}' is out of range"):
        Sampling(**setting)


def filled(count: int, *, capacity: int = 50, start: int = 0, end: str = "truncated") -> ReplayBuffer:
    """Returns a memory of one episode that ends after `count` steps, or still runs where the ring has wrapped."""
    replay = ReplayBuffer(SPEC, capacity, 0)
    for number in range(start, start + count):
        put(replay, transition(number, end if number == start + count - 1 and count < capacity else ""))
    return replay


def offline_rows(size: int, fraction: float) -> np.ndarray:
    mixed = SymmetricReplay(filled(5), filled(5, start=500), fraction)
    return mixed.sample(size).observations["x"][:, 0] >= 500


def episode_of(steps: list[Transition]) -> Episode:
    observations = [*(step.observation for step in steps), steps[-1].next_observation]
    actions = np.stack([step.action for step in steps])
    return make_episode(
        {name: np.stack([o[name] for o in observations]) for name in ("x", "y")},
        actions=actions,
        rewards=np.array([step.reward for step in steps], np.float32),
        sources=np.array([step.source for step in steps], np.int8),
        terminated=steps[-1].terminated,
        spec_fingerprint=SPEC.fingerprint,
    )


def assert_equal(one: Batch, other: Batch) -> None:
    for name in ("actions", "rewards", "masks", "discounts", "weights", "sources"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    for name in one.observations:
        np.testing.assert_array_equal(one.observations[name], other.observations[name])
        np.testing.assert_array_equal(one.next_observations[name], other.next_observations[name])


# returns-to-go


def test_returns_to_go_are_known_when_the_episode_has_ended():
    replay = ReplayBuffer(SPEC, 6, 0, extras=[ReturnsToGo(0.5)])
    assert_known(replay, [transition(1), transition(2)], {1: np.nan, 2: np.nan})
    assert_known(replay, [transition(3, "truncated")], {1: 1 + 1 + 0.75, 2: 2 + 1.5, 3: 3.0})
    # through the end of the ring: row 4 and 5, then 0; the first step of the first episode is overwritten
    assert_known(replay, [transition(n) for n in (10, 11)], {2: 3.5, 3: 3.0, 10: np.nan, 11: np.nan})
    assert_known(replay, [transition(12, "terminated")], {3: 3.0, 10: 10 + 5.5 + 3, 11: 11 + 6, 12: 12.0})
    state = replay.state_dict()
    assert "return_to_go" in state["rows"] and "reward" not in state["rows"]


def assert_known(replay: ReplayBuffer, steps: list[Transition], expected: dict[int, float]) -> None:
    for step in steps:
        put(replay, step)
    batch = replay.sample(200)
    found = {
        int(x): float(value) for x, value in zip(batch.observations["x"][:, 0], batch.extras["returns_to_go"], strict=True)
    }
    assert found == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("make", [ReplayBuffer, RecordedReplay], ids=["ring", "recorded"])
@pytest.mark.parametrize(
    ("rewards", "terminated", "discount", "expected"),
    [
        ([-1, -1, -1], False, 0.5, [-2.0, -2.0, -2.0]),  # -1 for ever: the limit is not the end of it
        ([-1, -1, -1], True, 0.5, [-1.75, -1.5, -1.0]),
        ([4, -2, 1], False, 0.5, [2.75, -2.5, -1.0]),
        ([4, 2, 1], False, 0.5, [5.25, 2.5, 1.0]),
        ([4, -2, 1], False, 1.0, [-np.inf] * 3),
        ([4, 2, 1], False, 1.0, [7.0, 3.0, 1.0]),
    ],
)
def test_a_cut_does_not_end_what_every_step_costs(make, rewards, terminated, discount, expected):
    end = "terminated" if terminated else "truncated"
    steps = [replace(transition(n, end if n == 2 else ""), reward=reward) for n, reward in enumerate(rewards)]
    episodes = [episode_of([replace(transition(7, "terminated"), reward=9.0)]), episode_of(steps)]
    if make is RecordedReplay:
        replay = RecordedReplay.of(SPEC, episodes, 0, extras=[ReturnsToGo(discount)])
    else:
        replay = ReplayBuffer(SPEC, 50, 0, extras=[ReturnsToGo(discount)])
        for episode in episodes:
            replay.add_episode(episode)
    batch = replay.sample(200)
    found = {
        int(x): float(value) for x, value in zip(batch.observations["x"][:, 0], batch.extras["returns_to_go"], strict=True)
    }
    assert found == pytest.approx(dict(enumerate(expected)) | {7: 9.0})


def test_without_asking_there_are_no_extras():
    assert filled(5).sample(3).extras == {}
    assert SymmetricReplay(filled(5), filled(5)).sample(4).extras == {}


def test_long_episode_keeps_returns_of_remaining_steps():
    replay = ReplayBuffer(SPEC, 4, 0, extras=[ReturnsToGo(1.0)])
    assert_known(replay, [transition(n, "terminated" if n == 9 else "") for n in range(1, 10)], {7: 24.0, 8: 17.0, 9: 9.0})


def test_mixing_keeps_returns_to_go_with_their_steps():
    online, offline = (ReplayBuffer(SPEC, 50, 0, extras=[ReturnsToGo(0.0)]) for _ in range(2))
    for start, replay in ((0, online), (500, offline)):
        for number in range(5):
            put(replay, transition(start + number, "terminated" if number == 4 else ""))
    batch = SymmetricReplay(online, offline).sample(64)
    np.testing.assert_array_equal(batch.extras["returns_to_go"], batch.observations["x"][:, 0])


@pytest.mark.parametrize("capacity", [7, 50])
@pytest.mark.parametrize("n_step", [1, 3])
def test_next_actions_and_chunks_stay_within_the_episode(capacity, n_step):
    """Two whole episodes and a running one, in a ring that wraps and one that does not; actions tell the steps apart."""
    replay, last_of = ReplayBuffer(SPEC, capacity, 0, extras=[NextActions(), Chunks(3)]), {}
    for numbers, end in ((range(4), "truncated"), (range(10, 13), "terminated"), (range(20, 23), "")):
        for number in numbers:
            put(replay, transition(number, end if number == numbers[-1] else ""))
            last_of[number] = numbers[-1]
    batch = replay.sample(300, n_step, DISCOUNT)
    for row, first in enumerate(np.rint(batch.observations["x"][:, 0]).astype(int)):
        last = last_of[first]
        following = first + min(n_step, last - first + 1)
        assert batch.extras["has_next_action"][row] == (following <= last)
        if following <= last:
            assert batch.extras["next_actions"][row, 0] == pytest.approx(following / 1000)
        wanted = [min(first + step, last) / 1000 for step in range(3)]
        assert batch.extras["action_chunks"][row, :, 0] == pytest.approx(wanted)
        assert batch.extras["chunk_valid"][row].tolist() == [first + step <= last for step in range(3)]
