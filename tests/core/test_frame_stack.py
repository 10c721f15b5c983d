"""Frame stacks: in single and batched environments, in the spec, and in replay memories that store each picture once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factories import axes, make_dataset, make_spec, picture_spec
from robo_datasets.cache import CachedEpisodes
from robo_rl.conformance.vector import VECTOR_CHECKS, Subject
from robo_rl.environments.frame_stack import FrameStack, stacked_episode
from robo_rl.environments.make import make_environment, make_vector_environment
from robo_rl.environments.wrapping import wrapped
from robo_rl.errors import InvalidSetting, SpecMismatch, UnknownName
from robo_rl.extras import Chunks
from robo_rl.protocols.components import Stateful
from robo_rl.replay.buffer import ReplayBuffer
from robo_rl.replay.recorded import RecordedReplay
from robo_rl.rollout.episode import RandomPolicy, Rollout, rollout
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec, specification
from robo_rl.types import ActionSource, Array, Batch, Episode, Transition

COUNT = 3
SMALL: dict[str, Any] = {"cameras": ["front"], "image_size": 8, "max_steps": 4}


class Counting(gymnasium.Env[Any, Any]):
    """Shows the number of its step in every entry, from 10 times the seed on."""

    environment_spec = make_spec(
        "test/Counting",
        ArraySpec("x", (2,), low=(0.0, -1.0), high=255.0),
        picture_spec(shape=(2, 2, 3)),
        action=axes("a"),
        max_steps=5,
    )

    def __init__(self) -> None:
        self.observation_space, self.action_space = self.environment_spec.observation.space, self.environment_spec.action.space

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Array], dict[str, Any]]:
        self._number = 10 * (seed or 0)
        self._last = self._number + 5
        return self._seen(), {}

    def step(self, action: Any) -> tuple[dict[str, Array], float, bool, bool, dict[str, Any]]:
        self._number += 1
        return self._seen(), float(self._number), False, self._number == self._last, {}

    def _seen(self) -> dict[str, Array]:
        number = self._number
        return {"x": np.array([number, -1], np.float32), "camera_front": np.full((2, 2, 3), number, np.uint8)}


def stack_of(count: int, stacks: str = "vectors") -> list[dict[str, Any]]:
    return [{"name": "frame_stack", "count": count, "stacks": stacks}]


def stacked(stacks: str = "all", count: int = COUNT) -> FrameStack:
    return FrameStack(Counting(), count, stacks)


def started(environment: Any, seed: int) -> Rollout:
    return Rollout(environment, RandomPolicy(specification(environment), 0), seed=seed)


def episode_of(environment: Any, seed: int) -> Episode:
    under_way = started(environment, seed)
    while not under_way.done:
        under_way.step()
    return under_way.episode()


def numbers(values: Array, is_picture: bool) -> Array:
    """Return the step numbers (..., COUNT) of a stack."""
    return values[..., 0, 0, ::3].astype(int) if is_picture else values[..., ::2].astype(int)


def expected(newest: Array, first: Array) -> Array:
    return np.stack([np.maximum(newest - back, first) for back in range(COUNT - 1, -1, -1)], -1)


def test_episode_begins_with_copies_and_shifts() -> None:
    under_way = started(stacked(), 3)
    under_way.spec.observation.validate(under_way.observation)
    seen = [under_way.observation, *(under_way.step().next_observation for _ in range(5))]
    for name in ("x", "camera_front"):
        found = [numbers(each[name], name != "x").tolist() for each in seen]
        assert found == [[30, 30, 30], [30, 30, 31], [30, 31, 32], [31, 32, 33], [32, 33, 34], [33, 34, 35]]


def test_episode_holds_each_observation_once() -> None:
    plain, recorded = (episode_of(environment, 3) for environment in (Counting(), stacked()))
    assert recorded.spec_fingerprint == plain.spec_fingerprint
    again = stacked_episode(stacked().environment_spec, recorded)
    assert again.spec_fingerprint == stacked().environment_spec.fingerprint
    for name in ("x", "camera_front"):
        assert recorded.observations[name].tobytes() == plain.observations[name].tobytes()
        assert numbers(again.observations[name], name != "x")[-1].tolist() == [33, 34, 35]
    assert stacked_episode(Counting.environment_spec, plain) is plain


def test_spec_says_what_is_stacked() -> None:
    single, spec = Counting.environment_spec, stacked("pictures").environment_spec
    assert (spec.observation["camera_front"].shape, spec.observation["x"].shape) == ((2, 2, 9), (2,))
    assert stacked("vectors").environment_spec.observation["x"].low == (0.0, -1.0) * 3
    assert spec.single == single and EnvironmentSpec.from_json(spec.to_json()) == spec
    with pytest.raises(SpecMismatch, match=r"camera_front.history: 3 here, 1 there"):
        spec.require_interface(single, what="The policy")
    with pytest.raises(SpecMismatch, match=r"1 field\(s\)(.|\n)*camera_front.history: 3 here, 1 there"):
        deep = replace(single, observation=replace(single.observation, arrays=(picture_spec(shape=(2, 2, 9)),)))
        spec.restricted(["camera_front"]).require_interface(deep, what="The policy")


@pytest.mark.parametrize(
    ("arguments", "kind", "said"),
    [
        ({"count": 0}, InvalidSetting, "out of range"),
        ({"count": True}, InvalidSetting, "wrong type"),
        ({"count": 3}, InvalidSetting, r"nothing to stack(.|\n)*stacks: vectors"),
        ({"stacks": "all"}, InvalidSetting, "lacks the key 'count'"),
        ({"count": 3, "stacks": "picture"}, InvalidSetting, "pictures"),
        ({"count": 3, "stack": "all"}, UnknownName, "did you mean 'stacks'"),
    ],
)
def test_wrong_stacks_are_refused(arguments: dict[str, Any], kind: type[Exception], said: str) -> None:
    for make in (make_environment, lambda name, **more: make_vector_environment(name, 2, **more)):
        with pytest.raises(kind, match=said):
            make("robo/ArmReach-v0", wrappers=[{"name": "frame_stack", **arguments}])
    with pytest.raises(InvalidSetting, match="stacks its observations itself"):
        FrameStack(stacked(), 2)


def test_refused_stack_leaves_no_environment_open() -> None:
    closed = []
    environment = Counting()
    environment.close = lambda: closed.append(True)  # type: ignore[method-assign]
    with pytest.raises(InvalidSetting, match="out of range"):
        wrapped(environment, [{"name": "frame_stack", "count": -1}])
    assert closed == [True] and wrapped(environment, []) is environment


def test_expert_sees_no_stack() -> None:
    environment = make_environment("robo/ArmReach-v0", wrappers=stack_of(4))
    plain = make_environment("robo/ArmReach-v0")
    episodes = [rollout(each, each.get_wrapper_attr("scripted_policy")(seed=1), seed=1) for each in (environment, plain)]
    assert isinstance(environment.get_wrapper_attr("scripted_policy")(seed=1), Stateful)
    assert episodes[0].success and episodes[0].actions.tobytes() == episodes[1].actions.tobytes()


def test_rollout_resumes_exactly_with_stacks() -> None:
    policy = RandomPolicy(stacked().environment_spec, 0)
    under_way = started(stacked(), 2)
    under_way.step()
    under_way.step()
    assert Rollout.resume(stacked(), policy, under_way.state_dict()).exact


SUBJECTS = (
    Subject("robo/ArmReach-v0", {**SMALL, "wrappers": stack_of(3, "pictures")}),
    Subject("gymnasium/InvertedPendulum-v5", {"wrappers": stack_of(2)}),
    Subject("minigrid/MiniGrid-Unlock-v0", {"wrappers": stack_of(2, "all")}),  # not batched
)


@pytest.mark.parametrize("check", VECTOR_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_vector_stacks_are_those_of_single_environments(subject: Subject, check: Any) -> None:
    check(subject)


def fill(replay: ReplayBuffer, environment: Any, seeds: range, most: int | None = None) -> None:
    """Add episodes, all but the first `most` steps of the last one."""
    for seed in seeds:
        under_way = started(environment, seed)
        replay.begin(under_way.observation)
        while not under_way.done and (most is None or seed != seeds[-1] or len(under_way) < most):
            replay.add(under_way.step())


def check_batch(batch: Batch) -> None:
    """Require the stacks that the environment would have shown; a reward is the number of the next observation."""
    number = batch.rewards.astype(int) - 1
    first = number // 10 * 10
    for later, observations in enumerate((batch.observations, batch.next_observations)):
        for name in ("x", "camera_front"):
            found = numbers(observations[name], name != "x")
            np.testing.assert_array_equal(found, expected(number + later, first))


@pytest.mark.slow
@given(st.integers(7, 40), st.integers(1, 9), st.integers(0, 4))
def test_ring_returns_what_the_environment_stacked(capacity: int, episodes: int, running: int) -> None:
    environment = stacked()
    replay = ReplayBuffer(environment.environment_spec, capacity, seed=0)
    fill(replay, environment, range(1, episodes + 1), running)
    if not len(replay):
        return
    check_batch(replay.sample(64))
    again = ReplayBuffer(environment.environment_spec, capacity, seed=1)
    again.load_state_dict(replay.state_dict())
    check_batch(again.sample(64))
    if running and episodes > 1:
        fill(again, environment, range(20, 21))
        check_batch(again.sample(64))


def test_ring_loses_no_more_steps_than_lost_their_history() -> None:
    environment, plain = stacked(), Counting()
    with_stacks, without = (ReplayBuffer(each.environment_spec, 14, 0) for each in (environment, plain))
    for replay, each in ((with_stacks, environment), (without, plain)):
        fill(replay, each, range(1, 5), 2)
    assert len(without) - len(with_stacks) <= COUNT - 1


def test_memory_holds_each_picture_once() -> None:
    plain, spec = Counting.environment_spec, stacked("pictures").environment_spec
    assert ReplayBuffer.bytes_at_capacity(spec, 100) == ReplayBuffer.bytes_at_capacity(plain, 100) + 100  # one mark each


def test_recorded_episodes_are_stacked_as_they_are_read(tmp_path: Any) -> None:
    spec, plain = stacked().environment_spec, [episode_of(Counting(), seed) for seed in (1, 2)]
    stacks = [stacked_episode(spec, episode) for episode in plain]
    dataset = make_dataset(tmp_path / "plain", Counting.environment_spec, plain)
    cached = CachedEpisodes(dataset, dataset.entries()).replay(5, (Chunks(2),), spec)
    replays = [cached, *(RecordedReplay.of(spec, episodes, 5, extras=(Chunks(2),)) for episodes in (plain, stacks))]
    batches = [replay.sample(32) for replay in replays]
    for batch in batches:
        check_batch(batch)
        assert batch.observations["camera_front"].tobytes() == batches[0].observations["camera_front"].tobytes()
    windows = cached.sample_windows(16, 4, before=2)
    found = numbers(windows.observations["x"], False)
    newest = found[..., -1]
    np.testing.assert_array_equal(found, expected(newest, newest // 10 * 10))


def test_steps_without_stacks_can_be_added() -> None:
    replay = ReplayBuffer(stacked().environment_spec, 20, 0)
    for episode in (episode_of(Counting(), 1), episode_of(stacked(), 2)):
        replay.add_episode(episode)
    replay.add_episode(stacked_episode(stacked().environment_spec, episode_of(Counting(), 3)))
    check_batch(replay.sample(64))


def test_transition_of_a_robot_keeps_its_newest_vectors() -> None:
    zero = np.zeros(1, np.float32)
    seen = {"x": np.arange(6, dtype=np.float32), "camera_front": np.arange(9, dtype=np.uint8) * np.ones((2, 2, 1), np.uint8)}
    replay = ReplayBuffer(stacked().environment_spec, 8, 0)
    replay.begin(seen)
    replay.add(Transition(seen, zero, 0.0, seen, False, True, zero, ActionSource.POLICY))
    rows = replay.state_dict()["rows"]
    assert rows["vectors"][0, :2].tolist() == [4, 5]
    assert rows["observation.camera_front"][0, 0, 0].tolist() == [6, 7, 8]
