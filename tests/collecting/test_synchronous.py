"""PPO with collectors: the same bits for any number of them, exact after a resume, and what a loss costs."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from factories import make_spec
from robo_policies.learners.ppo import PPO, PPOConfig
from robo_policies.networks.policy_value import PolicyValueNetwork
from robo_rl.cluster.local import InProcessEngine, InProcessWorker
from robo_rl.collectors.collector_pool import CollectorPool
from robo_rl.collectors.rollouts import CollectedLearner, RolloutCollector
from robo_rl.collectors.synchronous import SynchronousTraining
from robo_rl.environments.make import make_vector_environment
from robo_rl.errors import NonFiniteUpdate
from robo_rl.runs.checkpoints import packed, unpacked
from robo_rl.settings import updated
from robo_rl.spec.environment import ArraySpec
from robo_rl.training.collected_rollout import CollectedRollout
from robo_rl.training.on_policy import OnPolicyTraining
from robo_rl.types import Array

NAME = "gymnasium/InvertedPendulum-v5"
CONFIG = PPOConfig(num_envs=4, steps_per_env=8, batch_size=8, epochs=2, network=PolicyValueNetwork(hidden=(8,)))


class Observer:
    def __init__(self) -> None:
        self.episodes: list[dict[str, Any]] = []
        self.steps: list[int] = []
        self.metrics: list[dict[str, float]] = []

    def on_episode(self, step: int, **outcome: Any) -> None:
        self.episodes.append({"step": step, **outcome})

    def on_metrics(self, step: int, metrics: dict[str, float]) -> None:
        self.metrics.append(metrics)

    def on_step(self, step: int, training: Any) -> None:
        self.steps.append(step)


def pendulums(count: int) -> Any:
    return make_vector_environment(NAME, count, threads=1, autoreset_mode=AutoresetMode.SAME_STEP)


class Short(gymnasium.Env[Any, Any]):
    """Ends by itself or is cut by the clock, as chance has it; observations tell of themselves."""

    environment_spec = make_spec("test/Short", ArraySpec("told", (2,)))
    observation_space, action_space = environment_spec.observation.space, environment_spec.action.space

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.left, self.name = int(self.np_random.integers(2, 5)), self.np_random.random()
        return self._told(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        ends = bool(self.name < 0.5)
        return self._told(), float(action[0]), not self.left and ends, not self.left and not ends, {"success": ends}

    def _told(self) -> dict[str, Array]:
        return {"told": np.float32([self.left, self.name])}


def shorts(count: int) -> Any:
    vector: Any = gymnasium.vector.SyncVectorEnv([Short] * count, autoreset_mode=AutoresetMode.SAME_STEP)
    vector.environment_spec = Short.environment_spec
    return vector


def collector_of(make: Any, config: PPOConfig, packed_job: bytes) -> RolloutCollector:
    job = unpacked(packed_job)
    each = config.num_envs // job["count"]
    environments = make(each)
    policy = config.build(environments.environment_spec, 5).policy
    return RolloutCollector(environments, policy, seed=3, first=each * job["index"])


def training_of(
    collectors: int, config: PPOConfig = CONFIG, make: Any = pendulums, steps: int = 128, engine: type = InProcessEngine
) -> SynchronousTraining:
    learner = config.build(make(1).environment_spec, 5)
    pool = CollectorPool(engine(partial(collector_of, make, config)), {}, collectors)
    return SynchronousTraining(learner, pool, config, steps=steps)


def leaves(state: Any) -> Any:
    if isinstance(state, dict):
        return {name: leaves(value) for name, value in state.items()}
    return np.asarray(state).tobytes() if hasattr(state, "__array__") else state


def learner_of(training: Any) -> Any:
    return leaves(training.learner.state_dict())


@pytest.mark.slow
@pytest.mark.parametrize("make", [pendulums, shorts])
@pytest.mark.parametrize("policy", ["normal", "beta"])
def test_the_bits_do_not_depend_on_the_number_of_collectors(make: Any, policy: Any) -> None:
    config = updated(CONFIG, network={"distribution": policy})
    found = []
    for collectors in (1, 2, 4):
        training, observer = training_of(collectors, config, make), Observer()
        training.run(observer)
        found.append((learner_of(training), sorted(observer.episodes, key=str), observer.steps))
    assert found[0] == found[1] == found[2]
    assert found[0][2] == [32, 64, 96, 128] and len(found[0][1]) > 10


@pytest.mark.parametrize("steps", [70, 101])
def test_a_shortened_rollout_has_the_same_bits_too(steps: int) -> None:
    found = []
    for collectors in (1, 4):
        training, observer = training_of(collectors, make=shorts, steps=steps), Observer()
        training.run(observer)
        found.append((learner_of(training), sorted(observer.episodes, key=str), observer.steps))
    assert found[0] == found[1] and found[0][2][-1] == steps // 4 * 4 and observer.steps[0] == 32


def test_collector_seeds_and_random_numbers_never_repeat() -> None:
    rollouts: list[CollectedRollout] = []
    training = training_of(2, make=shorts)
    add_rollout = training.learner.add_rollout
    training.learner.add_rollout = lambda rollout: (rollouts.append(rollout), add_rollout(rollout))  # type: ignore[method-assign]
    training.run(Observer())
    assert [rollout.begins for rollout in rollouts] == [True, False, False, False]
    drawn = np.concatenate([rollout.actions for rollout in rollouts]).ravel()
    assert len(np.unique(drawn)) == drawn.size
    assert len(np.unique(rollouts[0].observations["told"][0, :, 1])) == 4
    for before, after in pairwise(rollouts):
        assert np.array_equal(before.observations["told"][-1], after.observations["told"][0])


class Recorded(PPO):
    """Keeps what it is told, as a collector would tell it."""

    def begin(self, observations: Any) -> None:
        super().begin(observations)
        self.seen, self.drawn, self.told = [dict(observations)], [], []

    def act(self) -> Array:
        executed = super().act()
        self.drawn.append(self.buffer.actions[self.buffer.length].copy())
        return executed

    def observe(self, step: Any) -> None:
        super().observe(step)
        self.seen.append(step.observations)
        self.told.append(step)

    def rollout(self) -> CollectedRollout:
        finals = [step.final_observations["told"] for step in self.told if step.final_observations]
        columns = {
            name: np.stack([getattr(step, name) for step in self.told]) for name in ("rewards", "terminated", "truncated")
        }
        observed = {"told": np.stack([seen["told"] for seen in self.seen])}
        return CollectedRollout(
            observed, np.stack(self.drawn), **columns, final_observations={"told": np.concatenate(finals)}, begins=True
        )


def test_collected_rollout_trains_like_a_local_one() -> None:
    config = updated(CONFIG, normalize={"observations": False})
    own, other = Recorded(Short.environment_spec, config, 5), PPO(Short.environment_spec, config, 5)
    kept: list[CollectedRollout] = []
    update = own.update
    own.update = lambda: (kept.append(own.rollout()), update())[1]  # type: ignore[method-assign]
    OnPolicyTraining(shorts(4), own, steps=32, seed=0).run(Observer())
    assert isinstance(other, CollectedLearner)
    other.add_rollout(kept[0])
    other.update()
    states = [{**learner.state_dict(), **learner.state_dict()["buffer"]} for learner in (other, own)]
    for name in ("networks", "optimizer", "reward_moments"):
        assert leaves(states[0][name]) == leaves(states[1][name]), name


def test_moments_are_fixed_per_rollout_and_count_each_once() -> None:
    training = training_of(2, steps=96)
    versions: list[Any] = []
    publish = training.pool.publish

    def watched(version: int, parameters: Any) -> None:
        versions.append((version, parameters["observations"]["count"]))
        publish(version, parameters)

    training.pool.publish = watched  # type: ignore[method-assign]
    training.run(Observer())
    assert [(version, round(count)) for version, count in versions] == [(0, 0), (32, 36), (64, 68)]


def test_non_finite_rollout_is_refused_before_any_change() -> None:
    learner = CONFIG.build(Short.environment_spec, 5)
    before = leaves(learner.state_dict())
    observed = {"told": np.zeros((9, 4, 2), np.float32)}
    observed["told"][7, 2, 1] = np.nan
    flags = {name: np.zeros((8, 4), bool) for name in ("terminated", "truncated")}
    rollout = CollectedRollout(
        observed, np.zeros((8, 4, 1), np.float32), np.zeros((8, 4)), **flags, final_observations={}, begins=True
    )
    with pytest.raises(NonFiniteUpdate, match="observations"):
        learner.add_rollout(rollout)
    assert leaves(learner.state_dict()) == before


class Stopped(Exception):
    pass


class StopAt(Observer):
    def __init__(self, step: int) -> None:
        super().__init__()
        self.last, self.saved = step, b""

    def on_step(self, step: int, training: Any) -> None:
        super().on_step(step, training)
        if step == self.last:
            self.saved = packed(training.state_dict())
            raise Stopped


def test_interrupted_and_resumed_equals_uninterrupted() -> None:
    whole, cut = training_of(2), training_of(2)
    whole.run(Observer())
    observer = StopAt(64)
    with pytest.raises(Stopped):
        cut.run(observer)
    resumed = training_of(2)
    resumed.load_state_dict(unpacked(observer.saved))
    assert (resumed.step, resumed.resumed) == (64, "exact")
    assert leaves(resumed.state_dict()["environments"]) == leaves(unpacked(observer.saved)["environments"]), "before any step"
    resumed.run(Observer())
    assert learner_of(resumed) == learner_of(whole)


@pytest.mark.parametrize(("collectors", "make"), [(4, pendulums), (2, shorts)])
def test_resume_is_warm_if_state_cannot_be_restored(collectors: int, make: Any) -> None:
    cut, observer = training_of(2, make=make), StopAt(64)
    with pytest.raises(Stopped):
        cut.run(observer)
    resumed = training_of(collectors, make=make)
    resumed.load_state_dict(unpacked(observer.saved))
    assert resumed.resumed == "warm"
    resumed.run(Observer())
    assert resumed.step == 128


class Losing(InProcessEngine):
    """Loses the collector that was asked the n-th request, before it answers."""

    lost = (5,)

    def __init__(self, make: Any) -> None:
        super().__init__(make)
        self.count = 0

    def next(self, timeout: float) -> tuple[InProcessWorker, bytes | None] | None:
        if self.open:
            self.count += 1
            if self.count in self.lost:
                return self.open[0][0], None
        return super().next(timeout)


def test_lost_collector_costs_only_its_part_of_rollout() -> None:
    kept: dict[type, list[CollectedRollout]] = {}
    for engine in (InProcessEngine, Losing):
        training, observer = training_of(2, steps=128, engine=engine), Observer()
        add_rollout, rollouts = training.learner.add_rollout, kept.setdefault(engine, [])
        training.learner.add_rollout = lambda each, keep=rollouts, take=add_rollout: (keep.append(each), take(each))  # type: ignore[method-assign]
        told: list[str] = []
        training.pool.tell = told.append
        training.run(observer)
        assert observer.steps == [32, 64, 96, 128] and observer.metrics[-1]["collect/lost"] == len(told)
    assert told == ["collector 0 died and is replaced; its environments begin new episodes"]
    whole, lossy = kept[InProcessEngine], kept[Losing]
    for step in (0, 1):
        assert leaves(vars(whole[step])) == leaves(vars(lossy[step]))
    for name in ("observations", "actions"):
        ours, theirs = (getattr(each[2], name) for each in (whole, lossy))
        pairs = [(ours[key], theirs[key]) for key in ours] if name == "observations" else [(ours, theirs)]
        for one, other in pairs:
            assert np.array_equal(one[:, 2:], other[:, 2:]) and not np.array_equal(one[:, :2], other[:, :2])
