"""Quadrotor: minimum-snap plans against closed forms, rotor thrusts against MuJoCo, flights, and the task of one step."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from robo_papers.mfrl.quadrotor.flight import (
    ARM,
    GRAVITY,
    INERTIA,
    MASS,
    STRAYS,
    YAW_RATIO,
    Quadrotor,
    is_within_limits,
    rotor_thrusts,
)
from robo_papers.mfrl.quadrotor.plan import minimum_snap
from robo_papers.mfrl.quadrotor.task import SEGMENTS, draw_task, waypoints_of
from robo_rl.environments.make import make_environment
from robo_rl.spec.environment import specification

WAYPOINTS = np.array([[0.0, 0.0, 1.5], [1.0, 0.3, 1.6], [1.2, 1.4, 1.2], [0.1, 1.8, 1.5]])
TIMES = np.array([1.0, 1.4, 0.9])


def snap(plan):
    at = np.linspace(0.0, plan.duration, 20_001)
    return float((plan.sample(at, 4) ** 2).sum(1).mean() * plan.duration)


def test_one_segment_is_the_known_polynomial():
    plan = minimum_snap(np.array([[0.0, 0.0, 0.0], [1.0, 2.0, -1.0]]), np.array([2.0]))
    at = np.linspace(0.0, 1.0, 50)
    share = 35 * at**4 - 84 * at**5 + 70 * at**6 - 20 * at**7
    np.testing.assert_allclose(plan.sample(2.0 * at), share[:, None] * [1.0, 2.0, -1.0], atol=1e-9)


def test_plan_passes_way_points_and_is_smooth():
    plan = minimum_snap(WAYPOINTS, TIMES)
    joints = np.cumsum(TIMES)[:-1]
    np.testing.assert_allclose(plan.sample(np.array([0.0, *np.cumsum(TIMES)])), WAYPOINTS, atol=1e-9)
    for derivative in range(1, 4):
        np.testing.assert_allclose(plan.sample(np.array([0.0, plan.duration]), derivative), 0.0, atol=1e-7)
    for derivative in range(6):  # up to the fifth it follows from the optimum
        before, after = (plan.sample(joints + shift, derivative) for shift in (-1e-9, 1e-9))
        np.testing.assert_allclose(before, after, atol=1e-4, rtol=1e-5)


def test_no_other_velocity_at_a_way_point_has_less_snap():
    plan, random = minimum_snap(WAYPOINTS, TIMES), np.random.default_rng(0)
    least = snap(plan)
    for _ in range(10):
        weights = np.exp(random.normal(0.0, 1.0, 3))
        assert snap(minimum_snap(WAYPOINTS, TIMES, weights)) > least  # the least of other weights: more snap of equal ones
    assert minimum_snap(WAYPOINTS, 10 * TIMES).sample(np.array([12.0]))[0] == pytest.approx(plan.sample(np.array([1.2]))[0])


def test_slower_flights_need_thrusts_nearer_to_hovering():
    plan = minimum_snap(WAYPOINTS, TIMES)
    strain = [np.abs(rotor_thrusts(plan.slowed(factor)) - MASS * GRAVITY / 4).max() for factor in (1.0, 1.5, 2.0, 4.0)]
    assert strain == sorted(strain, reverse=True) and strain[-1] < 0.2
    at = np.arange(0.0, plan.duration, 0.02)
    thrust = MASS * np.linalg.norm(plan.sample(at, 2) + np.array([0.0, 0.0, GRAVITY]), axis=1)
    np.testing.assert_allclose(rotor_thrusts(plan).sum(1)[: len(at)], thrust, rtol=1e-9)


def test_rotors_turn_the_model_as_the_mixer_says():
    quadrotor = Quadrotor()
    model, data = quadrotor.model, quadrotor.data
    thrusts = np.array([2.5, 1.5, 1.8, 2.2])
    data.act[:] = data.ctrl[:] = thrusts
    mujoco.mj_forward(model, data)
    a, b, c, d = thrusts
    torques = [ARM * (a + b - c - d), ARM * (-a + b + c - d), YAW_RATIO * (a - b + c - d)]
    np.testing.assert_allclose(data.qacc[3:6], torques / INERTIA, rtol=1e-6)
    assert data.qacc[2] == pytest.approx(thrusts.sum() / MASS - GRAVITY, abs=1e-6)


def test_thrusts_are_those_that_mujoco_needs():
    """With exact thrusts, no lag and no drag, the model follows the plan open-loop for a while."""
    quadrotor = Quadrotor()
    model, data = quadrotor.model, quadrotor.data
    plan = minimum_snap(WAYPOINTS, TIMES).slowed(2.0)
    step = model.opt.timestep
    thrusts = rotor_thrusts(plan, step)
    data.qpos[:3] = WAYPOINTS[0]
    model.actuator_dynprm[:, 0] = 1e-6
    steps = 160
    for each in thrusts[:steps]:
        data.act[:] = data.ctrl[:] = each
        mujoco.mj_step(model, data)
    wanted = plan.sample(np.array([steps * step]))[0]
    moved = np.linalg.norm(wanted - WAYPOINTS[0])
    assert moved > 0.05 and np.linalg.norm(data.qpos[:3] - wanted) < 0.05 * moved


def test_slow_flights_succeed_and_fast_ones_stray():
    quadrotor, plan = Quadrotor(), minimum_snap(WAYPOINTS, TIMES)
    slow, fast = quadrotor.fly(plan.slowed(2.5)), quadrotor.fly(plan.slowed(0.5))
    assert slow.is_feasible and slow.error < 0.02 and np.linalg.norm(slow.path[-1] - WAYPOINTS[-1]) < 0.01
    assert not fast.is_feasible and fast.error > STRAYS and len(fast.path) < len(slow.path)
    assert not is_within_limits(plan.slowed(0.5)) and is_within_limits(plan.slowed(2.5))
    again = quadrotor.fly(plan.slowed(2.5))
    np.testing.assert_array_equal(again.path, slow.path)


def test_reference_is_the_fastest_that_ideal_rotors_can_fly():
    steps, times = draw_task(np.random.default_rng(3))
    plan = minimum_snap(waypoints_of(steps), times)
    assert is_within_limits(plan) and not is_within_limits(plan.slowed(0.98))
    even = minimum_snap(waypoints_of(steps), np.full(len(times), times.mean()))
    assert snap(plan) < snap(even)


def test_reward_is_the_share_of_time_saved():
    environment = make_environment("quadrotor/Waypoints-v0")
    spec = specification(environment)
    assert spec.max_steps == 1 and spec.action.size == 2 * SEGMENTS
    slower = np.zeros(26, np.float32)
    slower[:13] = np.log(1.25) / 0.7
    for action, expected in ((slower, -0.25), (-3 * slower, -1.0)):
        observation, _ = environment.reset(seed=2)
        proposal = environment.get_wrapper_attr("propose")(observation, action)
        _, reward, terminated, _, info = environment.step(action)
        assert terminated and reward == pytest.approx(expected, abs=1e-5)
        assert info["success"] is (expected > -1.0) and ("duration_ratio" in info["measures"]) is info["success"]
        assert proposal.saved == pytest.approx(-0.25 if info["success"] else 1 - 1.25**-3, abs=1e-5)


def test_actions_beyond_the_last_segment_change_nothing():
    environment = make_environment("quadrotor/Waypoints-v0")
    observation, _ = environment.reset(seed=5)
    count = int((observation["times"] > 0).sum())
    assert 4 <= count < SEGMENTS
    action = np.zeros(26, np.float32)
    action[count:13] = action[13 + count :] = 1.0
    plans = [environment.get_wrapper_attr("propose")(observation, each) for each in (action, np.zeros(26, np.float32))]
    np.testing.assert_array_equal(plans[0].trajectory.coefficients, plans[1].trajectory.coefficients)
    assert plans[0].saved == plans[1].saved
