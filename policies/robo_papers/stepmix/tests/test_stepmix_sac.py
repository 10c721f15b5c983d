"""StepMix with SAC: bounds and mixtures by hand, who acts when, and returns that stay near the baseline's while it learns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from robo_papers.stepmix.stepmix_sac import Bounds, StepMixSACConfig, TakeOver
from robo_policies.networks.settings import Network
from robo_rl.conformance.learners import check_policy
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting
from robo_rl.protocols.sampling import Replay
from robo_rl.rollout.episode import rollout
from robo_rl.runs.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from robo_rl.settings import updated
from robo_rl.spec.environment import specification

SMALL = StepMixSACConfig(
    network=Network(hidden=(8,)), batch_size=8, replay=Replay(learning_starts=50, capacity=20_000), worst_return=-10.0
)

WIDE = {"network": {"hidden": (32,)}, "candidates": 6, "worst_return": -10.0}


class Observer:
    """Keeps returns and the candidates that were allowed."""

    def __init__(self):
        self.returns, self.candidates = [], []

    def on_step(self, *_):
        """Keep nothing."""

    def on_episode(self, *_, episode_return, **__):
        """Keep the return."""
        self.returns.append(episode_return)

    def on_metrics(self, step, metrics):
        """Keep the candidate."""
        if "train/candidate" in metrics:
            self.candidates.append(metrics["train/candidate"])


def make():
    return make_environment("hazards/Point-v0")


def bounds_of(baseline, **returns):
    found = Bounds(replace(SMALL, candidates=2, baseline_episodes=4, least_episodes=2, deviations=1.0), -10.0)
    for value in baseline:
        found.add(0, value)
    for name, values in returns.items():
        for value in values:
            found.add(int(name[1:]), value)
    return found


def test_threshold_and_bounds_by_hand():
    found = bounds_of([8.0, 12.0, 8.0, 12.0], c1=[5.0, 7.0])
    error = np.std([8, 12, 8, 12], ddof=1) / 2
    assert found.threshold == pytest.approx(10 + error - 2.0) and found.lower(0) == pytest.approx(10 - error)
    assert found.lower(1) == pytest.approx(5.0) and found.lower(2) == -10.0
    negative = bounds_of([-10.0] * 4)
    assert negative.threshold == -12.0


def test_mixture_keeps_the_threshold_in_expectation():
    fresh = bounds_of([10.0] * 4)
    late, early, share = fresh.mixture()
    assert (late, early) == (0, 1) and share == pytest.approx(0.1)  # 10 - 20 share = 8
    assert (1 - share) * fresh.lower(0) + share * fresh.lower(1) == pytest.approx(fresh.threshold)
    further = bounds_of([10.0] * 4, c1=[9.0] * 3)
    assert further.mixture() == (1, 2, pytest.approx(1 / 19))
    assert bounds_of([10.0] * 4, c1=[9.0] * 3, c2=[9.0] * 3).mixture() == (2, 2, 0.0)
    assert bounds_of([10.0] * 3).mixture() == (0, 0, 0.0)
    assert bounds_of([0.0, 20.0, 0.0, 20.0]).mixture() == (0, 0, 0.0)  # a baseline that is not known well


def test_the_learner_acts_from_its_step_on():
    training = replace(SMALL, candidates=4).training(make, steps=10_000, seed=0)
    training.lengths = [10, 22]
    assert [training.takes_over(candidate) for candidate in range(1, 5)] == [12, 8, 4, 0]
    assert training.takes_over(0) > 10**6
    acted = []
    baseline, learner = training.baseline.act, training.learner.policy.act
    training.baseline.act = lambda observation, **_: acted.append("baseline") or baseline(observation)
    training.learner.policy.act = lambda observation, **_: acted.append("learner") or learner(observation)
    rollout(make(), TakeOver(training.baseline, training.policy, training.takes_over(3)), seed=0)
    assert acted[:4] == ["baseline"] * 4 and {*acted[4:]} == {"learner"}


@pytest.mark.slow
def test_returns_stay_near_the_baseline_while_it_learns():
    observer = Observer()
    training = updated(SMALL, WIDE).training(make, steps=5_000, seed=0)
    training.run(observer)
    windows = np.convolve(observer.returns, np.ones(50) / 50, "valid")
    assert windows.min() > 0.7 * np.mean(training.bounds.baseline)
    assert any(training.bounds.returns[1]) and training.learner.parts.updates > 4_000
    control = Observer()
    free = replace(SMALL, **WIDE | {"candidates": 1, "alpha": 1.0, "worst_return": 2.0})  # believes that nothing bad can happen
    free.training(make, steps=4_000, seed=0).run(control)
    assert np.convolve(control.returns, np.ones(25) / 25, "valid").min() < 0.0


@pytest.mark.slow
def test_policy_conforms_and_is_restored(tmp_path):
    training = SMALL.training(make, steps=400, seed=0)
    training.run(Observer())
    check_policy(training.policy, specification(make()))
    save_checkpoint(tmp_path, Checkpoint(400, training.state_dict()))
    state = load_checkpoint(tmp_path).parts
    observation, _ = make().reset(seed=5)
    restored = SMALL.restored_policy(make, seed=0, state=state)
    np.testing.assert_array_equal(
        restored.act(observation, deterministic=True), training.policy.act(observation, deterministic=True)
    )
    again = SMALL.training(make, steps=500, seed=0)
    again.load_state_dict(state)
    assert again.bounds.state_dict() == training.bounds.state_dict()
    again.run(Observer())
    assert again.step == 500 and again.resumed == "warm"


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("gymnasium/Hopper-v5", {}, "scripted policy"),
        ("hazards/Point-v0", {"worst_return": None}, "worst return"),
        ("hazards/Point-v0", {"alpha": 2.0}, "0 to 1"),
        ("hazards/Point-v0", {"least_episodes": 1}, "2 to window"),
    ],
)
def test_unusable_setting_is_one_error(name, settings, said):
    with pytest.raises(InvalidSetting, match=said):
        updated(SMALL, settings).training(lambda: make_environment(name), steps=10, seed=0)
