"""Training from whole episodes: groups share a seed, a diverged episode teaches nothing, and too many stop the training."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from factories import axes, make_spec
from robo_bench.trainings import Silent
from robo_rl.errors import InvalidSetting, SimulationFailed
from robo_rl.rollout.episode import RandomPolicy
from robo_rl.spec.environment import ArraySpec
from robo_rl.training.episodic import EpisodicTraining, Plays
from robo_rl.training.step_sources import episode_seed
from robo_rl.types import DIVERGED

STEPS = 3


class Counter(gymnasium.Env):
    """Three steps from a start that is drawn; episodes of some numbers diverge."""

    environment_spec = make_spec("a/Counter", ArraySpec("at", (1,)), action=axes("dx"), max_steps=STEPS)
    observation_space, action_space = environment_spec.observation.space, environment_spec.action.space

    def __init__(self, diverges=()):
        self.diverges, self.played = diverges, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.start, self.count, self.is_bad = self.np_random.uniform(), 0, self.played in self.diverges
        self.played += 1
        return self.seen(), {}

    def seen(self):
        return {"at": np.array([self.start + self.count], np.float32)}

    def step(self, action):
        self.count += 1
        return self.seen(), 1.0, False, self.count == STEPS, {"stop_reason": DIVERGED} if self.is_bad else {}


class Kept:
    """A learner that keeps what it learns from."""

    def __init__(self, spec):
        self.policy, self.batches, self.seen = RandomPolicy(spec, 0), [], 0

    def standardise(self, episodes):
        self.seen += len(episodes)

    def learn(self, episodes):
        self.batches.append(episodes)
        return {}

    def state_dict(self):
        return {"seen": self.seen}

    def load_state_dict(self, state):
        self.seen = state["seen"]


class Settings:
    episodes = 4

    def build(self, spec, seed):
        return Kept(spec)

    def player(self, environment, learner, seed):
        return Plays(environment, learner.policy, seed, 2)


def trained(steps, diverges=()):
    training = EpisodicTraining(Counter(diverges), Settings(), steps=steps, seed=5)
    training.run(Silent())
    return training


def test_a_group_begins_alike_and_the_budget_is_kept():
    training = trained(2 * 4 * STEPS + STEPS)
    assert (training.step, training.episodes, len(training.learner.batches)) == (2 * 4 * STEPS, 8, 2)
    starts = [each.observations["at"][0, 0] for batch in training.learner.batches for each in batch]
    assert len({*starts}) == 4 and starts[::2] == starts[1::2]
    assert [each.seed for each in training.learner.batches[1]] == [episode_seed(5, 2)] * 2 + [episode_seed(5, 3)] * 2


def test_a_batch_with_a_diverged_episode_teaches_nothing():
    training = trained(3 * 4 * STEPS, {5})
    assert training.episodes == 12 and [len(each) for each in training.learner.batches] == [4, 4]
    assert training.learner.seen == 8 and training.reports.diverged == 1


def test_too_many_diverged_episodes_stop_the_training():
    with pytest.raises(SimulationFailed, match=r"diverged in 11 of 11 episodes, the last at step 33"):
        trained(1000, range(1000))


def test_a_resume_goes_on_counting():
    first, again = trained(4 * STEPS, {1}), EpisodicTraining(Counter(), Settings(), steps=8 * STEPS, seed=5)
    again.load_state_dict(first.state_dict())
    assert (again.step, again.episodes, again.reports.diverged, again.resumed) == (4 * STEPS, 4, 1, "warm")
    again.run(Silent())
    assert [each.seed for each in again.learner.batches[0]] == [episode_seed(5, 2)] * 2 + [episode_seed(5, 3)] * 2


def test_episodes_without_a_time_limit_are_refused():
    class Endless(Counter):
        environment_spec = make_spec("a/Endless", ArraySpec("at", (1,)), action=axes("dx"))

    with pytest.raises(InvalidSetting, match="may never end"):
        EpisodicTraining(Endless(), Settings(), steps=100, seed=0)
