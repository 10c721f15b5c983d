"""A predictive shield between policy and environment."""

from __future__ import annotations

import numpy as np
import pytest

from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting
from robo_rl.rollout import rollout
from robo_rl.types import ActionSource

TASKS = ("Point-v0", "Car-v0")


def shielded(name, **settings):
    return make_environment(name, wrappers=[{"name": "shielded", **settings}])


def greedy(environment):
    """Return a policy that drives straight to the goal, with noise."""
    policy = environment.get_wrapper_attr("scripted_policy")(0, noise=0.3)
    policy._direction = lambda goal, _: goal / np.linalg.norm(goal)
    return policy


def violations(task, episodes=12, **settings):
    """Return the number of episodes with a step inside a hazard."""
    environment = shielded(f"hazards/{task}", **settings)
    played = [rollout(environment, greedy(environment), seed=seed, deterministic=False) for seed in range(episodes)]
    return sum(bool(episode.costs["hazard"].any()) for episode in played)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.slow
def test_shield_prevents_all_violations(task):
    assert violations(task, is_on=False) == 12
    assert violations(task) == 0


@pytest.mark.slow
def test_shield_that_looks_one_step_ahead_brakes_too_late():
    assert violations("Point-v0", horizon=1) > 0


def test_safe_policy_is_rarely_stopped_and_stops_are_recorded():
    environment = shielded("hazards/Point-v0")
    episode = rollout(environment, environment.get_wrapper_attr("scripted_policy")(0), seed=0)
    assert episode.success and episode.metadata["measures"]["shield_active"] < 20
    braked = rollout(environment, greedy(environment), seed=0)
    guarded = braked.sources == ActionSource.GUARD
    assert guarded.any() and (braked.actions[guarded] != braked.policy_actions[guarded]).any()
    np.testing.assert_array_equal(braked.actions[~guarded], braked.policy_actions[~guarded])


def test_looking_ahead_changes_nothing():
    plain, watched = make_environment("hazards/Point-v0"), shielded("hazards/Point-v0", is_on=False)
    for each in (plain, watched):
        each.reset(seed=4)
    for action in np.random.default_rng(0).uniform(-1, 1, (20, 2)).astype(np.float32):
        first, second = plain.step(action), watched.step(action)
        assert first[1:4] == second[1:4]
        for name, value in first[0].items():
            np.testing.assert_array_equal(value, second[0][name])


@pytest.mark.parametrize(
    ("name", "settings"), [("hazards/Point-v0", {"horizon": 0}), ("robo/ArmReach-v0", {}), ("tabular/Trap-v0", {})]
)
def test_unusable_shield_is_one_error(name, settings):
    with pytest.raises(InvalidSetting):
        shielded(name, **settings)
