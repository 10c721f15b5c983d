"""Constraint costs of arm tasks."""

from __future__ import annotations

import numpy as np
import pytest

from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.rollout import RandomPolicy, rollout
from robo_rl.spec.environment import specification
from robo_sims.arm.costs import force_on_fixed


def driven(costs, action, steps=20, **settings):
    """Return the sum of each cost of an arm that repeats an action (A,)."""
    environment = make_environment("robo/ArmReach-v0", costs=costs, max_steps=steps, **settings)
    environment.reset(seed=3)
    total = dict.fromkeys(costs, 0.0)
    for _ in range(steps):
        *_, terminated, truncated, info = environment.step(np.asarray(action, np.float32))
        for name, value in info["costs"].items():
            total[name] += value
        if terminated or truncated:
            break
    environment.close()
    return total


def still(**axes):
    spec = specification(make_environment("robo/ArmReach-v0")).action
    action = np.zeros(spec.size)
    for name, value in axes.items():
        action[spec.names.index(name)] = value
    return action


def test_cost_is_declared_with_unit_and_limit():
    spec = specification(make_environment("robo/ArmPick-v0", costs={"force": "3 N s", "spill": 0.5}))
    assert [(cost.name, cost.unit, cost.limit) for cost in spec.costs] == [("force", "N s", 3.0), ("spill", "rad s", 0.5)]
    assert specification(make_environment("robo/ArmPick-v0")).costs == ()


def test_force_costs_only_when_pressing_the_table():
    down = np.array([0.0, 1.0, 0.0, -0.2, 0.0, 0.2, 0.0, 0.0])
    assert driven(["force"], down, 40, control="joint_position")["force"] > 2.0
    assert driven(["force"], still(dz=-1.0), 60)["force"] == 0.0  # the workspace ends above the table


def test_speed_costs_only_near_the_person():
    assert driven(["speed"], still(dy=1.0), 20)["speed"] >= 0.1
    assert driven(["speed"], still(dy=-1.0), 20)["speed"] == 0.0
    assert driven(["speed"], still(dy=0.4), 40)["speed"] == 0.0


def test_corridor_costs_the_time_outside():
    assert driven(["corridor"], still(dx=1.0), 45)["corridor"] > 0.2
    assert driven(["corridor"], still(), 10)["corridor"] == 0.0


def test_spill_costs_tilt_beyond_upright():
    assert driven(["spill"], still(dx=1.0, turn=1.0), 20)["spill"] == 0.0  # the hand stays vertical in this control mode
    tilted = np.zeros(8)
    tilted[5] = 1.0
    assert driven(["spill"], tilted, 20, control="joint_position")["spill"] > 0.05


def test_action_repeat_adds_up_all_periods():
    once = driven(["corridor"], still(dx=1.0), 45)["corridor"]
    thrice = driven(["corridor"], still(dx=1.0), 15, action_repeat=3)["corridor"]
    assert once > 0.2 and abs(once - thrice) <= 0.1 + 1e-9  # a displacement is divided among the periods of an action


def test_episode_records_costs():
    environment = make_environment("robo/ArmPush-v0", costs=["force", "corridor"], max_steps=10)
    episode = rollout(environment, RandomPolicy(specification(environment), 0), seed=0)
    assert {name: values.shape for name, values in episode.costs.items()} == {"force": (10,), "corridor": (10,)}


@pytest.mark.parametrize(
    ("costs", "kind", "said"),
    [
        (["forse"], UnknownName, "force"),
        ("force", InvalidSetting, "list"),
        ({"force": "3 N"}, InvalidSetting, "another unit"),
        ({"force": "1 N s per step"}, InvalidSetting, "per step"),
        ({"force": -1}, InvalidSetting, "no limit"),
    ],
)
def test_costs_that_are_none_are_refused(costs, kind, said):
    with pytest.raises(kind, match=said):
        make_environment("robo/ArmPick-v0", costs=costs)


def test_force_is_of_the_present_contacts():
    """The first touch included: contacts that have just been found have forces, and computing them changes nothing."""
    plain, costly = (make_environment("robo/ArmPick-v0", costs=costs).unwrapped for costs in ((), ("force",)))
    down = np.array([0.0, 0.0, -1.0, 0.0, -1.0], np.float32)
    for seed in range(5):
        first, second = plain.reset(seed=seed)[0], costly.reset(seed=seed)[0]
        for step in range(30):
            first, second = (each.step(down if step < 15 else -down)[0] for each in (plain, costly))
            physics = costly.physics
            forces = force_on_fixed(physics)
            weight = physics.model.opt.gravity[2] * -0.1  # [N] of the object
            assert 0.0 <= forces < 200.0 and (step > 0 or forces == pytest.approx(weight, rel=0.05))
            np.testing.assert_array_equal(plain.data.qpos, costly.data.qpos)
        assert first.keys() == second.keys()
