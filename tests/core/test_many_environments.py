"""Many environments in one process: memory of several rings, one stepper, updates per step, exact resume."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from hypothesis import given
from hypothesis import strategies as st

from factories import axes, make_spec, picture_spec
from robo_policies.learners.dqn import DQNConfig
from robo_policies.learners.sac import SACConfig
from robo_policies.networks.settings import Network
from robo_rl.conformance.learners import different_leaves
from robo_rl.conformance.swerving import Swerving
from robo_rl.environments.make import make_environment, make_vector_environment
from robo_rl.environments.repeatable import RepeatableEnvironments, repeatable
from robo_rl.environments.vector import SequentialEnvironments
from robo_rl.errors import EnvironmentFailed, InvalidEpisode, InvalidSetting
from robo_rl.extras import Chunks, FutureGoals, NextActions, ReturnsToGo
from robo_rl.protocols.contract import ONLINE_IN_MANY
from robo_rl.protocols.sampling import Replay, Sampling
from robo_rl.replay.buffer import ReplayBuffer
from robo_rl.rollout.episode import RandomPolicy
from robo_rl.rollout.vector import VectorRollout
from robo_rl.runs.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from robo_rl.spec.environment import ArraySpec
from robo_rl.training.off_policy import online_training
from robo_rl.training.plan import TrainingPlan
from robo_rl.training.step_sources import episode_seed
from robo_rl.types import ActionSource, VectorTransition

HISTORY = 2
SPEC = make_spec("many-test", ArraySpec("x", (1,)), picture_spec("camera_top", (2, 2, 3)), action=axes("a"))
STACKED = make_spec("many-test", ArraySpec("x", (HISTORY,), history=HISTORY), action=axes("a"))
EXTRAS = (NextActions(), Chunks(3), ReturnsToGo(0.9), FutureGoals("x"))
HALFCHEETAH = "gymnasium/HalfCheetah-v5"


class Observer:
    """Keeps what it is told, and the state after a step."""

    def __init__(self, at: int = 0) -> None:
        self.at, self.state, self.episodes, self.metrics = at, None, [], {}

    def on_episode(self, step, **facts):
        self.episodes.append({"step": step, **facts})

    def on_metrics(self, step, metrics):
        self.metrics |= metrics

    def on_step(self, step, training):
        if self.state is None and 0 < self.at <= step:
            self.state = copy.deepcopy(training.state_dict())


# the memory


def seen(numbers: np.ndarray, starts: np.ndarray, history: int = 1) -> dict[str, np.ndarray]:
    """Return observations of states, which name themselves; of a history with the states before, from the first on."""
    if history > 1:
        back = np.arange(history - 1, -1, -1)
        return {"x": np.maximum(numbers[:, None] - back, starts[:, None]).astype(np.float32)}
    pictures = np.zeros((len(numbers), 2, 2, 3), np.uint8)
    pictures[:, 0, 0, 0], pictures[:, 0, 0, 1] = numbers // 256, numbers % 256
    return {"x": numbers[:, None].astype(np.float32), "camera_top": pictures}


@dataclass
class Walkers:
    """N counters, whose episodes end as a list says: (length, end) in turn."""

    ends: list[list[tuple[int, str]]]
    history: int = 1
    length: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        count = len(self.ends)
        self.at = np.arange(count) * 1000
        self.starts, self.number, self.steps = self.at.copy(), np.zeros(count, int), np.zeros(count, int)

    @property
    def now(self) -> dict[str, np.ndarray]:
        return seen(self.at, self.starts, self.history)

    def step(self) -> VectorTransition:
        count = len(self.ends)
        before, first = self.now, self.at.copy()
        self.at, self.steps = self.at + 1, self.steps + 1
        following = self.now
        kinds = [each[number % len(each)] for each, number in zip(self.ends, self.number, strict=True)]
        over = np.array([steps >= length for steps, (length, _) in zip(self.steps, kinds, strict=True)])
        is_end, diverged = (over & np.array([kind == name for _, kind in kinds]) for name in ("terminated", "diverged"))
        self.at[over] += 1
        self.starts[over], self.steps[over], self.number[over] = self.at[over], 0, self.number[over] + 1
        sources = np.where(first % 3 == 0, ActionSource.HUMAN, ActionSource.POLICY).astype(np.int8)
        actions = (first[:, None] / 10_000).astype(np.float32)
        infos: dict[str, Any] = {"stop_reason": np.full(count, None, object)}
        return VectorTransition(
            before,
            actions,
            first.astype(float),
            following,
            self.now,
            is_end,
            over & ~is_end,
            diverged,
            actions,
            sources,
            infos,
        )


ENDS = st.lists(st.tuples(st.integers(1, 6), st.sampled_from(["terminated", "truncated", "diverged"])), min_size=1, max_size=4)


def rows_in(memory: ReplayBuffer, n_step: int) -> dict[tuple[int, ...], Any]:
    """Return everything that can be sampled, by the state in which it begins."""
    starts = np.flatnonzero(memory._rows["starts"])
    batch = memory._reader.batch(starts, n_step, 0.9, np.random.default_rng(0))
    arrays = {"rewards": batch.rewards, "masks": batch.masks, "discounts": batch.discounts, "human": batch.is_human}
    arrays |= {"actions": batch.actions, **{f"next {name}": each for name, each in batch.next_observations.items()}}
    arrays |= {name: each for name, each in batch.extras.items() if name != "goals"}
    firsts = [tuple(np.ravel(each)) for each in batch.observations["x"]]
    assert len(set(firsts)) == len(firsts) == len(memory)
    if "camera_top" in batch.observations:
        pictures = batch.observations["camera_top"][:, 0, 0].astype(int)
        assert (pictures[:, 0] * 256 + pictures[:, 1] == batch.observations["x"][:, 0]).all()
    if "goals" in batch.extras:  # drawn: of the same episode, at or after the next observation
        assert (batch.extras["goals"][:, 0] >= batch.next_observations["x"][:, -1]).all()
        assert (batch.extras["goals"][:, 0] - batch.next_observations["x"][:, -1] < 7).all()
    return {first: {name: each[row].tolist() for name, each in arrays.items()} for row, first in enumerate(firsts)}


@pytest.mark.slow
@pytest.mark.parametrize(("history", "extras"), [(1, ()), (1, EXTRAS), (HISTORY, ())], ids=["plain", "extras", "history"])
@given(
    ends=st.lists(ENDS, min_size=1, max_size=4), steps=st.integers(1, 40), share=st.integers(2, 12), n_step=st.integers(1, 4)
)
def test_a_memory_of_many_holds_what_one_of_each_holds(history, extras, ends, steps, share, n_step):
    spec, count = STACKED if history > 1 else SPEC, len(ends)
    walkers = Walkers(ends, history)
    many = ReplayBuffer(spec, share * count + count - 1, 0, extras=extras, environments=count)
    single = [ReplayBuffer(spec, share, 0, extras=extras) for _ in range(count)]
    assert many.capacity == share * count
    for place, memory in enumerate(single):
        first = {name: values[place] for name, values in walkers.now.items()}
        many.begin(first, place)
        memory.begin(first)
    for _ in range(steps):
        step = walkers.step()
        many.add_all(step)
        for place, memory in enumerate(single):
            if not step.diverged[place]:
                memory.add(step.transition(place))
            if step.ended[place]:
                memory.begin({name: values[place] for name, values in step.following.items()})
    expected: dict[tuple[int, ...], Any] = {}
    for memory in single:
        if len(memory):
            expected |= rows_in(memory, n_step)
    assert len(many) == len(expected) == sum(map(len, single))
    assert not len(many) or as_text(rows_in(many, n_step)) == as_text(expected)


def as_text(rows: dict[tuple[int, ...], Any]) -> list[str]:
    return sorted(f"{first}: {facts}" for first, facts in rows.items())


def test_steps_at_once_are_stored_as_one_by_one(monkeypatch):
    def filled() -> ReplayBuffer:
        walkers = Walkers([[(3, "terminated"), (2, "diverged")], [(4, "truncated")], [(1, "diverged")]])
        memory = ReplayBuffer(SPEC, 30, 0, environments=3)
        for place in range(3):
            memory.begin({name: values[place] for name, values in walkers.now.items()}, place)
        for _ in range(50):
            memory.add_all(walkers.step())
        return memory

    at_once = filled()
    monkeypatch.setattr(ReplayBuffer, "_add_at_once", ReplayBuffer._add_one_by_one)
    one_by_one = filled()
    assert not different_leaves(at_once.state_dict(), one_by_one.state_dict()) and len(at_once) > 10
    again = ReplayBuffer(SPEC, 30, 5, environments=3)
    again.load_state_dict(at_once.state_dict())
    assert np.array_equal(again.sample(20).observations["x"], at_once.sample(20).observations["x"])


def test_a_memory_needs_two_rows_for_each_environment():
    with pytest.raises(InvalidSetting, match=r"two rows for one transition of each(.|\n)*got: +7(.|\n)*8 or more"):
        ReplayBuffer(SPEC, 7, 0, environments=4)


# updates


@pytest.mark.parametrize(("every", "starts", "steps"), [(1, 10, 40), (16, 10, 64), (5, 1, 23), (3, 30, 40)])
def test_updates_are_counted_over_all_environments(every, starts, steps):
    config = SACConfig(
        network=Network(hidden=(8,)), batch_size=8, replay=Replay(learning_starts=starts, capacity=100, update_every=every)
    )
    assert config.sampling.update_every == every
    counts = []
    for count in (1, 4):
        learner = config.build(Swerving().environment_spec, 0)
        environments = SequentialEnvironments(Swerving, count, autoreset_mode=AutoresetMode.SAME_STEP)
        training = online_training(environments, learner, config.sampling, steps=steps // 4 * 4, seed=0)
        training.run(Observer())
        counts.append(learner.parts.updates)
    expected = sum(step >= starts and step % every == 0 for step in range(1, steps // 4 * 4 + 1))
    assert counts == [expected, expected] and config.sampling.updates(steps // 4 * 4) == expected > 0


def test_update_every_is_a_whole_number_of_steps():
    with pytest.raises(InvalidSetting, match=r"update_every(.|\n)*1 or more"):
        Sampling(update_every=0)


# the stepper


def test_random_actions_of_many_are_drawn_at_once():
    spec = Swerving().environment_spec
    actions = RandomPolicy(spec, 0).act_all({"x": np.zeros((5, 1))})
    one_by_one = RandomPolicy(spec, 0)
    assert np.array_equal(actions, [one_by_one.act({}) for _ in range(5)])
    assert RandomPolicy(Swerving(is_discrete=True).environment_spec, 0).act_all({"x": np.zeros((5, 1))}).shape == (5,)


@pytest.mark.parametrize("config", [SACConfig(network=Network(hidden=(8,))), DQNConfig(network=Network(hidden=(8,)))])
def test_a_policy_acts_in_many_as_in_each(config):
    is_discrete, random = isinstance(config, DQNConfig), np.random.default_rng(0)
    learners = [config.build(Swerving(is_discrete=is_discrete).environment_spec, 3) for _ in range(2)]
    if is_discrete:
        learners[0].actor.epsilon.fill_(0.0)
    one, other = (learner.policy for learner in learners)
    spec = one.environment_spec
    rows = {name: random.normal(size=(40, *entry.shape)).astype(np.float32) for name, entry in spec.observation.items()}
    first = {name: values[0] for name, values in rows.items()}
    for _ in range(3):  # each with its own generator
        alone = {name: values[:1] for name, values in rows.items()}
        assert is_discrete or np.array_equal(other.act(first), one.act_all(alone)[0])
    actions = one.act_all(rows)
    assert len(np.unique(spec.action.validate_batch(actions, 40), axis=0)) > 1
    if is_discrete:
        each = [one.act({name: values[row] for name, values in rows.items()}, deterministic=True) for row in range(40)]
        assert np.array_equal(actions, each)


class Unsound(Swerving):
    """Returns a reward that is not finite in one step."""

    def step(self, action):
        observation, reward, *ends, info = super().step(action)
        return observation, np.nan if self.steps == 7 else reward, *ends, info


class Beyond(Swerving):
    """Tells an executed action outside of the range."""

    def executed(self, action):
        return np.full(2, 1.5, np.float32)


def stepped(make, steps=10):
    environments = SequentialEnvironments(make, 2, autoreset_mode=AutoresetMode.SAME_STEP)
    rollout = VectorRollout(environments)
    rollout.begin([0, 1])
    for _ in range(steps):
        rollout.step(np.zeros((2, 2), np.float32))


def test_wrong_rewards_and_actions_are_refused_in_many():
    with pytest.raises(InvalidEpisode, match="not finite"):
        stepped(Unsound)
    with pytest.raises(EnvironmentFailed, match="executed_action"):
        stepped(Beyond)


def test_a_policy_with_a_memory_is_refused():
    learner = SACConfig(network=Network(hidden=(8,))).build(Swerving().environment_spec, 0)
    learner.policy.replan = lambda: None
    environments = SequentialEnvironments(Swerving, 2, autoreset_mode=AutoresetMode.SAME_STEP)
    with pytest.raises(
        InvalidSetting, match=r"many environments at once(.|\n)*ActorPolicy(.|\n)*act_all(.|\n)*environments to 1"
    ):
        online_training(environments, learner, Sampling(), steps=10, seed=0)
    with pytest.raises(InvalidSetting, match=r"shorter than one step of all(.|\n)*3 steps, 4 environments"):
        environments = SequentialEnvironments(Swerving, 4, autoreset_mode=AutoresetMode.SAME_STEP)
        online_training(environments, learner, Sampling(), steps=3, seed=0)


# saving


def remembered(make=Swerving) -> RepeatableEnvironments:
    sequential = SequentialEnvironments(make, 3, autoreset_mode=AutoresetMode.SAME_STEP)
    found = repeatable(sequential, episode_seed)
    assert isinstance(found, RepeatableEnvironments)
    return found


def test_environments_without_a_state_repeat_their_episodes():
    first, random = remembered(), np.random.default_rng(0)
    first.reset(seed=[5, 6, 7])
    for _ in range(13):
        first.step(random.uniform(-1, 1, (3, 2)).astype(np.float32))
    second = remembered()
    second.load_state_dict(first.state_dict())
    assert second.is_exact
    for _ in range(17):
        actions = random.uniform(-1, 1, (3, 2)).astype(np.float32)
        ours, theirs = first.step(actions), second.step(actions)
        assert not different_leaves(dict(enumerate(ours[:4])), dict(enumerate(theirs[:4])))


class Forgetful(Swerving):
    """Does not repeat itself."""

    drawn = np.random.default_rng(1)

    def executed(self, action):
        return self.drawn.uniform(-1, 1, 2).astype(np.float32)


class Robot(Swerving):
    """Goes through nothing twice."""

    replays = False


@pytest.mark.slow
@pytest.mark.parametrize(("make", "resumed"), [(Swerving, "exact"), (Forgetful, "warm"), (Robot, "warm")])
def test_resume_in_many_says_whether_it_is_exact(make, resumed):
    def made():
        config = SACConfig(network=Network(hidden=(8,)), batch_size=8, replay=Replay(learning_starts=16, capacity=100))
        return TrainingPlan(config, ONLINE_IN_MANY, Swerving().environment_spec, make, 60, 0, count=3).training()

    observer = Observer(at=31)
    made().run(observer)
    again = made()
    again.load_state_dict(observer.state)
    assert again.resumed == resumed and again.step == 33
    again.run(Observer())
    assert again.step == 60


class Cheetahs:
    """Makes batched environments."""

    def __call__(self):
        return make_environment(HALFCHEETAH)

    def make_vector(self, num_envs):
        return make_vector_environment(HALFCHEETAH, num_envs, threads=1, autoreset_mode="SameStep")


@pytest.mark.slow
def test_sac_in_batched_simulation_resumes_exactly(tmp_path):
    def made():
        config = SACConfig(
            network=Network(hidden=(16,)), batch_size=16, replay=Replay(learning_starts=64, capacity=4_000, update_every=4)
        )
        return TrainingPlan(config, ONLINE_IN_MANY, Cheetahs()().environment_spec, Cheetahs(), 4_400, 0, count=4).training()

    whole, observer = made(), Observer(at=3_990)  # episodes end at step 4,000; the ring is full then
    whole.run(observer)
    assert len(observer.episodes) == 4 and {each["length"] for each in observer.episodes} == {1000}
    assert [each["place"] for each in observer.episodes] == [(place, 4) for place in range(4)]
    save_checkpoint(tmp_path, Checkpoint(3_992, observer.state))
    again = made()
    again.load_state_dict(load_checkpoint(tmp_path).parts)
    assert again.resumed == "exact" and again.step == 3_992
    again.run(Observer())
    ours, theirs = whole.state_dict(), again.state_dict()
    ours["training"].pop("seconds"), theirs["training"].pop("seconds")
    assert not different_leaves(ours, theirs)
