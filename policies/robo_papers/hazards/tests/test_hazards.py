"""Point mass and car among hazards."""

from __future__ import annotations

import numpy as np
import pytest

from robo_papers.hazards.environment import HAZARDS, RADIUS, TOP_SPEED
from robo_rl.environments.make import make_environment, make_vector_environment
from robo_rl.errors import InvalidSetting
from robo_rl.rollout import rollout
from robo_rl.spec.environment import specification

TASKS = ("hazards/Point-v0", "hazards/Car-v0")


def expert(environment, *, straight=False):
    policy = environment.get_wrapper_attr("scripted_policy")(0)
    if straight:
        policy._direction = lambda goal, _: goal / np.linalg.norm(goal)
    return policy


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_detour_is_free_of_cost_and_pays_less(name):
    environment = make_environment(name)
    around, through = (
        [rollout(environment, expert(environment, straight=straight), seed=seed) for seed in range(50)]
        for straight in (False, True)
    )
    assert all(episode.success for episode in (*around, *through))
    assert max(episode.costs["hazard"].sum() for episode in around) == 0
    limit = specification(environment).costs[0].limit
    assert np.mean([episode.costs["hazard"].sum() for episode in through]) > 2 * limit
    gains = [fast.undiscounted_return - safe.undiscounted_return for fast, safe in zip(through, around, strict=True)]
    assert np.mean(gains) > 0.05


@pytest.mark.parametrize("name", TASKS)
def test_cost_counts_steps_inside_a_hazard(name):
    environment = make_environment(name)
    episode = rollout(environment, expert(environment, straight=True), seed=1)
    inside = (episode.observations["hazard_clearance"][1:] < 0).any(1)
    np.testing.assert_array_equal(episode.costs["hazard"], inside)
    centres = episode.observations["hazards_from_agent"].reshape(-1, HAZARDS, 2)
    np.testing.assert_allclose(np.linalg.norm(centres, axis=2) - RADIUS, episode.observations["hazard_clearance"], atol=1e-5)


def test_speed_is_limited():
    environment = make_environment("hazards/Point-v0")
    environment.reset(seed=0)
    for _ in range(30):
        observation, *_ = environment.step(np.ones(2, np.float32))
    assert np.linalg.norm(observation["velocity"]) == pytest.approx(TOP_SPEED, abs=1e-5)


def test_car_turns_only_while_it_moves():
    environment = make_environment("hazards/Car-v0")
    observation, _ = environment.reset(seed=0)
    turned, *_ = environment.step(np.array([-1.0, 1.0], np.float32))
    np.testing.assert_array_equal(observation["heading"], turned["heading"])
    environment.step(np.array([1.0, 1.0], np.float32))
    turned, *_ = environment.step(np.array([1.0, 1.0], np.float32))
    assert (observation["heading"] != turned["heading"]).all()


def test_vector_environment_reports_costs():
    environments = make_vector_environment("hazards/Point-v0", 3)
    environments.reset(seed=[0, 1, 2])
    *_, infos = environments.step(np.zeros((3, 2), np.float32))
    assert infos["costs"]["hazard"].tolist() == [0.0, 0.0, 0.0] and infos["_costs"].all()


@pytest.mark.parametrize("limit", ["3 m", "3 per step", -1, None])
def test_limit_of_another_kind_is_refused(limit):
    with pytest.raises(InvalidSetting, match="limit of cost 'hazard'"):
        make_environment("hazards/Point-v0", limit=limit)
