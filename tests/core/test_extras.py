"""Extras: those of the core and one that only this file knows, through every memory and process that steps go through."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factories import make_episode, make_spec
from robo_datasets.cache import CachedEpisodes
from robo_datasets.dataset import Dataset
from robo_rl.cluster.local import InProcessEngine
from robo_rl.collectors.asynchronous import AsynchronousTraining, Pace
from robo_rl.collectors.collector_pool import CollectorPool
from robo_rl.collectors.segment_log import SegmentLog
from robo_rl.collectors.segments import SegmentCollector
from robo_rl.conformance.learners import random_batch
from robo_rl.errors import InvalidSetting
from robo_rl.extras import Chunks, Column, Extra, FutureGoals, NextActions, ReturnsToGo, SampledRows, StoredRows
from robo_rl.protocols.rewards import DelayedRewards
from robo_rl.protocols.sampling import Sampling
from robo_rl.replay.buffer import ReplayBuffer
from robo_rl.replay.mixing import BothMemories, CorrectedReplay, SymmetricReplay
from robo_rl.replay.recorded import RecordedReplay
from robo_rl.rollout.episode import RandomPolicy, Rollout, rollout
from robo_rl.rollout.journal import Journal, recover
from robo_rl.rollout.step_log import StepLog, StepReader
from robo_rl.runs.checkpoints import Checkpoint, load_checkpoint, save_checkpoint, unpacked
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec
from robo_rl.stopwatch import Stopwatch
from robo_rl.system.prefetch import prefetched
from robo_rl.training.actor_learner.acting import LearnerConnection, acting_training
from robo_rl.training.actor_learner.learning import LearningTraining
from robo_rl.training.actor_learner.server import Finished
from robo_rl.training.delayed_rewards import relabelling
from robo_rl.training.off_policy import OnlineTraining, online_training
from robo_rl.training.replay_learning import ReplayLearner
from robo_rl.training.step_sources import EnvironmentSteps
from robo_rl.types import ActionSource, Array, Batch, Episode, Labels, Layout, StateDict, StepRewards, Transition

SPEC = make_spec("test/Tagged", ArraySpec("x", (1,)), max_steps=7)


@dataclass(frozen=True)
class Tags(Extra):
    """`tags` (B, 2): of each step's info; `tag_sums` (B,): their sum over the episode, -1 while it runs; `draws` (B,)."""

    def columns(self, spec: EnvironmentSpec) -> Layout:
        return {"tag": ((2,), np.int32), "tag_sum": ((), np.int64)}

    def record(self, step: Transition) -> Mapping[str, Any]:
        return {"tag": step.info["tag"], "tag_sum": -1}

    def record_episode(self, episode: Episode) -> Mapping[str, Array]:
        return {"tag": tag_of(episode.observations["x"][:-1]), "tag_sum": np.full(len(episode), -1)}

    def complete(self, rows: StoredRows, steps: Array) -> Mapping[str, Array]:
        return {"tag_sum": np.full(len(steps), rows.column("tag", steps)[:, 0].sum())}

    def sample(self, rows: SampledRows) -> Mapping[str, Array]:
        draws = rows.generator.integers(1000, size=len(rows.first))
        tags, sums = (rows.column(name, rows.first) for name in ("tag", "tag_sum"))
        return {"tags": tags, "tag_sums": sums, "draws": draws}


EXTRAS = (Tags(), FutureGoals("x"), NextActions(), ReturnsToGo(0.5), Chunks(2))


def tag_of(x: Array) -> Array:
    return np.rint(1000 * x.astype(np.float64)).astype(np.int32) * np.array([1, -1], np.int32)


def transition(number: int, end: str = "", source: ActionSource = ActionSource.POLICY) -> Transition:
    x = np.float32([number])
    action = np.float32([number / 1000])
    ends = end == "terminated", end == "truncated"
    return Transition({"x": x}, action, float(number), {"x": x + 1}, *ends, action, source, {"tag": tag_of(x)})


def put(memory: Any, *steps: Transition) -> None:
    for step in steps:
        if not memory.is_running():
            memory.begin(step.observation)
        memory.add(step)


def episode_of(start: int, steps: int) -> Episode:
    numbers = np.arange(start, start + steps + 1, dtype=np.float32)
    actions = numbers[:-1, None] / 1000
    facts = {"terminated": True, "spec_fingerprint": SPEC.fingerprint}
    return make_episode({"x": numbers[:, None]}, actions=actions, rewards=numbers[:-1], **facts)


def same(one: Batch, other: Batch) -> None:
    assert one.extras.keys() == other.extras.keys()
    for name, values in one.extras.items():
        np.testing.assert_array_equal(values, other.extras[name], strict=True, err_msg=name)
    np.testing.assert_array_equal(one.observations["x"], other.observations["x"])


# memories

EPISODES = st.lists(st.tuples(st.integers(1, 7), st.sampled_from(["terminated", "truncated", "cut", "begun"])), max_size=8)


@pytest.mark.slow
@given(episodes=EPISODES, capacity=st.integers(2, 30), n_step=st.integers(1, 4), running=st.integers(1, 9))
def test_extras_follow_their_steps_through_a_ring(episodes, capacity, n_step, running):
    replay, number, span, sums = ReplayBuffer(SPEC, capacity, 0, extras=EXTRAS), 1, {}, {}
    for length, end in [*episodes, (running, "running")]:
        numbers = range(number, number + length)
        for step in numbers:
            put(replay, transition(step, end if step == numbers[-1] else ""))
        kept = numbers[-(capacity - 1) :]
        total = -1 if end == "running" else 1000 * sum(kept)
        span |= dict.fromkeys(numbers, (numbers[-1] + 1, end))
        sums |= dict.fromkeys(numbers, total)
        number += length + 1
        if end == "cut":
            replay.cut()
        elif end == "begun":
            replay.begin({"x": np.float32([number])})
    batch = replay.sample(30 * len(replay), n_step)
    reached: dict[int, set[int]] = {}
    for row, first in enumerate(batch.observations["x"][:, 0].astype(int)):
        assert batch.extras["tags"][row].tolist() == [1000 * first, -1000 * first]
        assert batch.extras["tag_sums"][row] == sums[first]
        last, end = span[first]
        following, goal = int(batch.next_observations["x"][row, 0]), int(batch.extras["goals"][row, 0])
        assert following <= goal <= (following if end == "running" else last)
        reached.setdefault(first, set()).add(goal)
    far = [first for first in reached if span[first][1] != "running" and span[first][0] - first > n_step]
    assert not far or any(len(reached[first]) > 1 for first in far)


def test_goals_are_drawn_uniformly_from_the_future():
    replay = RecordedReplay.of(SPEC, [episode_of(0, 4)], 0, extras=[FutureGoals("x")])
    batch = replay.sample(40_000)
    goals = batch.extras["goals"][batch.observations["x"][:, 0] == 1, 0].astype(int)
    counts = np.bincount(goals, minlength=5)
    assert counts[:2].tolist() == [0, 0] and np.abs(counts[2:] / counts.sum() - 1 / 3).max() < 0.02


@pytest.mark.parametrize("n_step", [1, 3])
def test_ring_recording_and_cache_on_disk_give_the_same_extras(tmp_path, monkeypatch, n_step):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    episodes = [episode_of(start, steps) for start, steps in ((0, 5), (10, 1), (20, 9))]
    dataset = Dataset.create(tmp_path / "set", SPEC, {"how": "test"})
    with dataset.writer() as writer:
        for episode in episodes:
            writer.add(episode)
    ring, whole = (ReplayBuffer(SPEC, 18, 3, extras=EXTRAS) for _ in range(2))
    for episode in episodes:
        whole.add_episode(episode)
        for step in range(len(episode)):
            told = episode.transition(step)
            put(ring, replace(told, info={"tag": tag_of(told.observation["x"])}))
    cached = CachedEpisodes(dataset, dataset.entries())
    others: list[Any] = [
        whole,
        RecordedReplay.of(SPEC, episodes, 3, extras=EXTRAS),
        cached.replay(3, EXTRAS),
        cached.replay(3, EXTRAS),
    ]
    for _ in range(3):
        expected = ring.sample(50, n_step)
        for other in others:
            same(expected, other.sample(50, n_step))
    assert expected.extras["tags"].dtype == np.int32 and set(expected.extras["tag_sums"]) == {10_000, 216_000}


def test_episodes_on_disk_are_read_only_for_what_is_recorded(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    dataset = Dataset.create(tmp_path / "set", SPEC, {"how": "test"})
    with dataset.writer() as writer:
        writer.add(episode_of(0, 5))
    watched: list[int] = []

    def watch(entries: Any) -> Any:
        watched.append(len(entries))
        return entries

    cached = CachedEpisodes(dataset, dataset.entries(), watch)
    cached.replay(0)  # builds the cache
    watched.clear()
    cached.replay(0, [ReturnsToGo(), FutureGoals("x"), Chunks(2)])
    assert watched == []
    cached.replay(0, [Tags()])
    assert watched == [1]


def filled(start: int, seed: int, extras: Any = EXTRAS) -> ReplayBuffer:
    replay = ReplayBuffer(SPEC, 50, seed, extras=extras)
    put(replay, *(transition(number, "terminated" if number % 5 == 4 else "") for number in range(start, start + 20)))
    return replay


def test_extras_stay_with_their_rows_in_both_halves_of_a_mix():
    offline = RecordedReplay.of(SPEC, [episode_of(500, 6)], 0, extras=EXTRAS)
    batch = SymmetricReplay(filled(0, 1), offline).sample(64, 2)
    x = batch.observations["x"][:, 0]
    assert ((x >= 500) == (np.arange(64) % 2 == 1)).all()
    np.testing.assert_array_equal(batch.extras["tags"][:, 0], 1000 * x)
    np.testing.assert_array_equal(batch.extras["goals"][:, 0] >= 500, x >= 500)


def test_corrections_have_extras_too():
    online, corrections = (ReplayBuffer(SPEC, 50, seed, extras=EXTRAS) for seed in (0, 1))
    both = BothMemories(online, corrections)
    human = [ActionSource.HUMAN if number in (2, 3, 7) else ActionSource.POLICY for number in range(9)]
    put(both, *(transition(number, "truncated" if number == 8 else "", human[number]) for number in range(9)))
    pool = CorrectedReplay(RecordedReplay.of(SPEC, [episode_of(500, 3)], 0, extras=EXTRAS), corrections, 0)
    batch = pool.sample(200)
    found = dict(zip(batch.observations["x"][:, 0].astype(int).tolist(), batch.extras["tag_sums"].tolist(), strict=True))
    assert found == {2: 5000, 3: 5000, 7: 7000, 500: 1503000, 501: 1503000, 502: 1503000}


def test_memories_with_different_extras_are_not_mixed():
    mixed = SymmetricReplay(filled(0, 1), filled(500, 2, [NextActions()]))
    with pytest.raises(InvalidSetting, match=r"not the same extras.\n  got:     .*tags and has_next_action, next_actions\n"):
        mixed.sample(8)


def test_prefetched_batches_have_the_same_extras():
    with closing(prefetched(lambda _: filled(0, 1).sample(16), range(3))) as batches:
        for batch in batches:
            same(batch, filled(0, 1).sample(16))


@pytest.mark.parametrize("steps", [5, 33])
def test_a_saved_memory_goes_on_with_the_same_extras(tmp_path, steps):
    replay, copy = (ReplayBuffer(SPEC, 16, seed, extras=EXTRAS) for seed in (1, 9))
    put(replay, *(transition(number, "truncated" if number % 9 == 8 else "") for number in range(steps)))
    replay.sample(4)
    save_checkpoint(tmp_path, Checkpoint(1, {"replay": replay.state_dict()}))
    copy.load_state_dict(load_checkpoint(tmp_path).parts["replay"])
    for number in range(steps, steps + 20):
        for memory in (replay, copy):
            put(memory, transition(number, "terminated" if number % 9 == 8 else ""))
        same(replay.sample(12, 3), copy.sample(12, 3))


def test_a_saved_memory_without_a_column_is_refused():
    memories = [filled(0, 0, []), RecordedReplay.of(SPEC, [episode_of(0, 4)], 0)]
    asking = [filled(0, 0, [ReturnsToGo()]), RecordedReplay.of(SPEC, [episode_of(0, 4)], 0, extras=[ReturnsToGo()])]
    for saved, memory in zip(memories, asking, strict=True):
        with pytest.raises(InvalidSetting, match=r"lacks data that the learner needs.\n  got:     no return_to_go\n"):
            memory.load_state_dict(saved.state_dict())


def test_a_row_takes_no_more_than_its_columns():
    plain = ReplayBuffer.bytes_at_capacity(SPEC, 1)
    assert plain == 4 * 3 + 3
    assert ReplayBuffer.bytes_at_capacity(SPEC, 1, [NextActions(), Chunks(9)]) == plain
    assert ReplayBuffer.bytes_at_capacity(SPEC, 1, [ReturnsToGo(), FutureGoals("x"), Tags()]) == plain + 4 + 4 + 8 + 8


# errors


@pytest.mark.parametrize("extras", [[Column("reward")], [Column("starts")], [ReturnsToGo(), ReturnsToGo(0.5)]])
def test_a_column_needs_a_name_of_its_own(extras):
    with pytest.raises(InvalidSetting, match="use one name"):
        ReplayBuffer(SPEC, 10, 0, extras=extras)


def test_an_array_needs_a_name_of_its_own():
    with pytest.raises(InvalidSetting, match=r"use one name.\n  got:     'action_chunks' of Chunks\(length=3\)"):
        filled(0, 0, [Chunks(2), Chunks(3)]).sample(1)


def test_a_column_that_steps_lack_is_named():
    with pytest.raises(InvalidSetting, match=r"needs 'cost' of each step, and a step has none.\n  got:     info with tag\n"):
        filled(0, 0, [Column("cost")])
    with pytest.raises(InvalidSetting, match="'cost'"):
        RecordedReplay.of(SPEC, [episode_of(0, 3)], 0, extras=[Column("cost")])


def test_a_chunk_needs_an_action():
    with pytest.raises(InvalidSetting, match="chunk of actions is too short"):
        Chunks(0)


def test_changing_rewards_refuse_extras_that_follow_from_them():
    class Changing(Halved):
        relabelling = "learned"  # type: ignore[assignment]

    with pytest.raises(InvalidSetting, match=r"given to single steps(.*\n)*.*allowed: extras none that follow from rewards"):
        relabelling(Changing(), Sampling(extras=(ReturnsToGo(),)))  # type: ignore[arg-type]


# trainings, in one process and in several


class Tagged(gymnasium.Env[Any, Any]):
    environment_spec = SPEC
    observation_space, action_space = SPEC.observation.space, SPEC.action.space

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Array], dict[str, Any]]:
        super().reset(seed=seed)
        self.left, self.x = SPEC.max_steps or 0, self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return {"x": self.x}, {}

    def step(self, action: Array) -> tuple[dict[str, Array], float, bool, bool, dict[str, Any]]:
        info = {"tag": tag_of(self.x), "cost": abs(float(self.x[0]))}
        self.x, self.left = self.x + np.float32(0.1) * action, self.left - 1
        return {"x": self.x}, float(self.x[0]), bool(self.x[0] > 1), self.left == 0, info


class Still:
    """A policy and a learner that keep what they were given, as a number."""

    environment_spec = SPEC
    trace = 0.0

    @property
    def policy(self) -> Still:
        return self

    def reset(self) -> None: ...

    def act(self, observation: Any, *, deterministic: bool = False) -> Array:
        return np.clip(observation["x"] / 2, -1, 1).astype(np.float32)

    def parameters(self) -> StateDict:
        return {}

    def load_parameters(self, parameters: StateDict) -> None: ...

    def update(self, batch: Batch) -> dict[str, float]:
        check(batch)
        self.trace = 0.9 * self.trace + sum(float(np.nan_to_num(values).sum()) for values in batch.extras.values())
        return {}

    def state_dict(self) -> StateDict:
        return {"trace": self.trace}

    def load_state_dict(self, state: StateDict) -> None:
        self.trace = state["trace"]


def check(batch: Batch) -> None:
    np.testing.assert_array_equal(batch.extras["tags"], tag_of(batch.observations["x"]))
    np.testing.assert_allclose(batch.extras["cost"], np.abs(batch.observations["x"][:, 0]))
    assert np.abs(batch.extras["goals"] - batch.next_observations["x"]).max() < 0.7


class Halved(DelayedRewards):
    """Half of what the environment gives, for three steps at once; none for the fifth step of an episode."""

    is_due, metrics = False, {}  # type: ignore[assignment]

    def __init__(self) -> None:
        self.waiting, self.told = list[float](), 0

    def restart(self) -> None:
        self.waiting = []

    def begin(self, index: int, observation: Any, instruction: str | None) -> None:
        self.told = 0

    def add(self, index: int, observation: Any, *, reward: float, **_: Any) -> None:
        self.told += 1
        self.waiting.append(np.nan if self.told == 5 else reward / 2)
        self.is_due = len(self.waiting) == 3

    def add_all(self, observations: Any, **_: Any) -> None:
        raise AssertionError("one environment")

    def score(self) -> StepRewards:
        values, self.waiting, self.is_due = np.float32(self.waiting), [], False
        return StepRewards(Labels.finite(values), np.zeros(len(values), bool))

    def state_dict(self) -> StateDict:
        return {"waiting": list(self.waiting), "told": self.told}

    def load_state_dict(self, state: StateDict) -> None:
        self.waiting, self.told = list(state["waiting"]), state["told"]


SAMPLING = Sampling(batch_size=8, n_step=2, learning_starts=9, capacity=40, extras=(*EXTRAS, Column("cost")))


class Until:
    """Observes a training, or stands for the acting process; ends it at a step, or where the log ends."""

    def __init__(self, step: int = -1) -> None:
        self.last = step

    def on_metrics(self, step: int, metrics: Any) -> None: ...

    def on_episode(self, step: int, **outcome: Any) -> None: ...

    def publish(self, step: int, policy: Any) -> None: ...

    def serve(self, step: int, training: Any, timeout: float = 0.0) -> None:
        if timeout:  # it would wait
            raise Finished

    def on_step(self, step: int, training: Any) -> None:
        if step == self.last:
            raise Finished


def online(rewards: Any = None, **more: Any) -> OnlineTraining[EnvironmentSteps]:
    return online_training(Tagged(), Still(), SAMPLING, steps=80, seed=2, rewards=rewards, **more)  # type: ignore[arg-type]


def student(**settings: Any) -> ReplayLearner:
    return ReplayLearner(Still(), SAMPLING, stopwatch=Stopwatch(), **settings)  # type: ignore[arg-type]


def leaves(state: Any) -> Any:
    if isinstance(state, dict):
        return {name: leaves(value) for name, value in state.items() if name not in ("seconds", "timestamps")}
    return np.asarray(state).tobytes() if hasattr(state, "__array__") else state


@pytest.mark.parametrize("has_model", [False, True], ids=["own-rewards", "rewards-of-a-model"])
@pytest.mark.parametrize("step", [24, 32, 33, 34, 35, 36])  # within an episode that ends at 35, and behind it
def test_training_with_extras_resumes_exactly(tmp_path, has_model, step):
    whole, first, second = (online(Halved() if has_model else None) for _ in range(3))
    whole.run(Until())
    with pytest.raises(Finished):
        first.run(Until(step))
    save_checkpoint(tmp_path, Checkpoint(step, first.state_dict()))
    second.load_state_dict(load_checkpoint(tmp_path).parts)
    assert second.resumed == "exact"
    second.run(Until())
    assert leaves(second.state_dict()) == leaves(whole.state_dict())
    assert whole.learner.trace != 0.0  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize("has_model", [False, True], ids=["own-rewards", "rewards-of-a-model"])
def test_the_learner_process_gets_what_extras_recorded(tmp_path, has_model):
    whole = online(Halved() if has_model else None)
    whole.run(Until())
    log = StepLog(tmp_path, SPEC)
    process = SimpleNamespace(poll=int, is_ready=True, restarts=0, step=10**6, parameters=lambda: None, metrics=dict)
    acting = acting_training(Tagged(), Still(), SAMPLING, LearnerConnection(log, process), steps=80, seed=2)  # type: ignore[arg-type]
    acting.run(Until())
    log.close()

    def half() -> LearningTraining:
        rewards = Halved() if has_model else None
        return LearningTraining(student(seed=2, rewards=rewards), steps=10**9)

    first, second, reader = half(), half(), StepReader(tmp_path)
    with pytest.raises(Finished):
        first.learn_from(reader, Until(33))  # type: ignore[arg-type]
    reader.close()
    reader = StepReader(tmp_path, 33)
    second.load_from(first.state_dict(), reader)
    with pytest.raises(Finished):
        second.learn_from(reader, Until())  # type: ignore[arg-type]
    reader.close()
    assert second.step == 80
    for part in ("learner", "replay"):
        assert leaves(second.state_dict()[part]) == leaves(whole.state_dict()[part]), part


def test_collectors_send_what_extras_recorded(tmp_path):
    def collector(job: bytes) -> SegmentCollector:
        return SegmentCollector(Tagged(), Still(), seed=1, birth=unpacked(job)["birth"], extras=SAMPLING.extras)

    pool, log = CollectorPool(InProcessEngine(collector), {}, 2), SegmentLog(tmp_path / "collected")
    paths = tmp_path / "checkpoints"
    training = AsynchronousTraining(student(seed=1), pool, log, paths, steps=80, pace=Pace(4, 2, 5))
    training.go_on(None)
    training.run(Until())
    assert training.step == 80 and training.learner.trace != 0.0  # type: ignore[attr-defined]
    check(training.step_learner.replay.sample(200))


def test_recorded_rollouts_provide_costs(tmp_path):
    """As an episode, and as what a journal still holds of one that broke off."""
    episode = rollout(Tagged(), RandomPolicy(SPEC, 0), seed=0)
    assert episode.costs
    begun = Rollout(Tagged(), RandomPolicy(SPEC, 0), seed=0)
    with Journal(tmp_path, "one", SPEC) as journal:
        journal.begin(begun.observation, seed=0, instruction=None, source="test")
        for _ in range(3):
            journal.step(begun.step())
    found = recover(journal.path)
    assert found is not None
    np.testing.assert_array_equal(found[0].costs["cost"], episode.costs["cost"][:3])
    for recorded in (episode, found[0]):
        batch = RecordedReplay.of(SPEC, [recorded], 0, extras=[Column("cost")]).sample(50)
        np.testing.assert_allclose(batch.extras["cost"], np.abs(batch.observations["x"][:, 0]))


def test_random_batches_hold_the_extras_of_the_learner():
    batch = random_batch(SPEC, 64, seed=0, extras=[Tags(), Column("cost"), FutureGoals("x")])
    assert len(batch) == 64 and set(batch.extras) == {"tags", "tag_sums", "draws", "cost", "goals"}
    assert set(random_batch(SPEC, 64, seed=0).extras) >= {"next_actions", "returns_to_go", "action_chunks"}
