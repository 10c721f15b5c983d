"""A safety filter between policy and environment."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy.optimize import minimize

from factories import rest_slow
from robo_papers.safety_filters.barrier_filter import FilteredEnv
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting, MissingExtra
from robo_rl.evaluation.evaluation import evaluate
from robo_rl.rollout import rollout
from robo_rl.types import ActionSource
from robo_sims.simulation import Barriers

TASKS = ("Point-v0", "Car-v0")


def filtered(name, **settings):
    return make_environment(name, wrappers=[{"name": "filtered", **settings}])


def greedy(environment):
    """Return a policy that drives straight to the goal, with noise."""
    policy = environment.get_wrapper_attr("scripted_policy")(0, noise=0.3)
    policy._direction = lambda goal, _: goal / np.linalg.norm(goal)
    return policy


def violations(task, episodes=40, **settings):
    """Return the number of episodes with a step inside a hazard."""
    environment = filtered(f"hazards/{task}", **settings)
    played = [rollout(environment, greedy(environment), seed=seed, deterministic=False) for seed in range(episodes)]
    return sum(episode.costs["hazard"].any() for episode in played)


@pytest.mark.parametrize("task", rest_slow(TASKS))
def test_exact_model_prevents_all_violations(task):
    assert violations(task, is_on=False) == 40
    assert violations(task) == 0


@pytest.mark.slow
@pytest.mark.parametrize("error", [-0.1, 0.1])
@pytest.mark.parametrize("task", TASKS)
def test_wrong_model_prevents_nearly_all_violations(task, error):
    assert violations(task, error=error) <= 2


@pytest.mark.slow
def test_flipped_barrier_prevents_nothing():
    environment = filtered("hazards/Point-v0")
    plain = environment._barriers
    environment._barriers = lambda: Barriers(-plain().gradient, plain().bound, plain().brake)
    assert sum(rollout(environment, greedy(environment), seed=seed).costs["hazard"].any() for seed in range(10)) >= 8


def test_filter_leaves_safe_actions_alone():
    environment = filtered("hazards/Point-v0")
    episode = rollout(environment, environment.get_wrapper_attr("scripted_policy")(0), seed=0)
    assert episode.success and episode.metadata["measures"]["filter_active"] < 50
    kept = episode.sources == ActionSource.POLICY
    np.testing.assert_array_equal(episode.actions[kept], episode.policy_actions[kept])


def test_executed_and_proposed_actions_are_recorded():
    environment = filtered("hazards/Point-v0")
    episode = rollout(environment, greedy(environment), seed=0)
    changed = episode.sources == ActionSource.GUARD
    assert changed.any() and not changed.all()
    assert (np.abs(episode.actions - episode.policy_actions).max(1) > 0).tolist() == changed.tolist()
    assert {reason for reasons in episode.metadata["guard"].values() for reason in reasons} == {"filter"}
    assert episode.metadata["measures"]["filter_active"] == pytest.approx(100 * changed.mean())


def test_activation_is_a_measure_of_an_evaluation():
    environment = filtered("hazards/Point-v0")
    evaluation = evaluate(greedy(environment), environment, 3)
    assert 0 < evaluation.measure_intervals["filter_active"].estimate < 100
    assert evaluation.measure_intervals["cost_hazard"].estimate == 0


def filter_of(gradient, bound):
    environment = make_environment("hazards/Point-v0")
    filtered = FilteredEnv(environment)
    filtered._barriers = lambda: Barriers(np.asarray(gradient, float), np.asarray(bound, float), np.array([-4.0, 1.0]))
    return filtered


@pytest.mark.parametrize("seed", range(10))
def test_filtered_action_is_the_nearest_one(seed):
    random = np.random.default_rng(seed)
    gradient, inside = random.normal(size=(3, 2)), random.uniform(-0.5, 0.5, 2)
    bound = gradient @ (2.0 * inside) - random.uniform(0, 0.3, 3)  # feasible: actions of the point reach +-2
    action = random.uniform(-1, 1, 2)
    found, braked = filter_of(gradient, bound).safe(action)
    limits = {"type": "ineq", "fun": lambda u: 2.0 * gradient @ u - bound}
    wanted = minimize(lambda u: ((u - action) ** 2).sum(), inside, constraints=[limits], bounds=[(-1, 1)] * 2).x
    assert not braked
    np.testing.assert_allclose(found, wanted, atol=1e-3)


def test_infeasible_barriers_brake_and_are_counted():
    filtered = filter_of([[1.0, 0.0], [-1.0, 0.0]], [1.0, 1.0])
    found, braked = filtered.safe(np.array([0.5, 0.5]))
    assert braked and found.tolist() == [-1.0, 0.5]
    filtered.reset(seed=0)
    *_, info = filtered.step(np.array([0.5, 0.5], np.float32))
    assert info["guard"] == ["filter braked"] and info["measures"]["filter_braked"] == 1.0


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("robo/ArmReach-v0", {}, "declares no barriers"),
        ("hazards/Point-v0", {"margin": "much"}, "the wrapper filtered: margin"),
        ("hazards/Point-v0", {"error": -1.0}, "error of the filter"),
        ("hazards/Point-v0", {"margin": float("nan")}, "margin of the filter"),
    ],
)
def test_settings_that_are_none_are_refused(name, settings, said):
    with pytest.raises(InvalidSetting, match=said):
        filtered(name, **settings)


def test_missing_solver_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "quadprog", None)
    with pytest.raises(MissingExtra, match="safety"):
        filtered("hazards/Point-v0")


# a box for the gripper

BOX = [[0.35, -0.15, 0.05], [0.6, 0.15, 0.3]]


def furthest_outside(environment, seed, steps=60):
    """Return the largest distance [m] of the gripper from the box under actions that push one way for long."""
    random, worst = np.random.default_rng(seed), -np.inf
    observation, _ = environment.reset(seed=seed)
    for step in range(steps):
        if step % 20 == 0:
            action = np.sign(random.uniform(-1, 1, 5)).astype(np.float32)
        observation, _, terminated, truncated, _ = environment.step(action)
        place = np.asarray(observation["end_effector_position"], float)
        worst = max(worst, (np.array(BOX[0]) - place).max(), (place - np.array(BOX[1])).max())
        if terminated or truncated:
            break
    return worst


@pytest.mark.parametrize("seed", range(4))
def test_gripper_of_the_arm_stays_in_its_box(seed):
    inside, free = (filtered("robo/ArmReach-v0", box=BOX, is_on=is_on) for is_on in (True, False))
    assert furthest_outside(inside, seed) < 0.006  # the arm swings past a set point by so much
    assert furthest_outside(free, seed) > 0.05


def test_gripper_outside_of_the_box_comes_back():
    environment = filtered("robo/ArmReach-v0", box=[[0.35, 0.1, 0.05], [0.6, 0.3, 0.3]])
    observation, _ = environment.reset(seed=0)
    assert observation["end_effector_position"][1] < 0.05
    for _ in range(30):
        observation, *_ = environment.step(np.zeros(5, np.float32))
    assert observation["end_effector_position"][1] > 0.095


@pytest.mark.parametrize(
    ("name", "box"),
    [
        ("hazards/Point-v0", BOX),
        ("robo/ArmReach-v0", BOX[::-1]),
        ("robo/ArmReach-v0", [[0.0, 0.0], [1.0, 1.0]]),
        ("robo/ArmReach-v0", [[0.0, 0.0, float("nan")], [1.0, 1.0, 1.0]]),
    ],
)
def test_unusable_box_is_one_error(name, box):
    with pytest.raises(InvalidSetting):
        filtered(name, box=box)
