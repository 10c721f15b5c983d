"""Contact tasks: statics and impact by hand, hidden geometry, costs, and a wiper that solves the task."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from robo_papers.bresa.contact import GENTLE, LEASH, PERIOD
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting
from robo_rl.spec.environment import specification

TASKS = ("contact/Mass-v0", "contact/ArmWipe-v0")


def act(environment, *physical):
    """Return the normalised action of physical values."""
    return np.asarray(environment.environment_spec.action.to_normalized(np.array(physical)), np.float32)


def wiped(environment, seed, *, force=5.0):
    """Wipe with a force; return the last step's info and the sum of the cost."""
    observation, _ = environment.reset(seed=seed)
    cost, is_over = 0.0, False
    while not is_over:
        felt = np.linalg.norm(observation["force"])
        sideways = np.clip(8.0 * observation["next_from_tool"], -0.08, 0.08) * (1.0 if felt > 0.5 else 0.3)
        action = act(environment, *sideways, np.clip(0.01 * (felt - force), -0.06, 0.03), 500.0, 300.0 if force < 12 else 800.0)
        observation, _, terminated, truncated, info = environment.step(action)
        cost, is_over = cost + info["costs"]["force"], terminated or truncated
    return info, cost


@pytest.mark.parametrize("name", TASKS)
def test_actions_are_at_200_hz_with_a_stiffness(name):
    spec = specification(make_environment(name))
    assert spec.action.control_period == PERIOD == 0.005 and spec.action.mode == "impedance"
    assert any(each.startswith("stiffness") for each in spec.action.names)
    assert [(cost.name, cost.unit, cost.limit) for cost in spec.costs] == [("force", "s", 0.1)]
    other = specification(make_environment(name, limit="0.3 s"))
    assert other.costs[0].limit == 0.3
    with pytest.raises(InvalidSetting, match="another unit"):
        make_environment(name, limit="3 N s")


def test_mass_rests_where_spring_and_wall_balance():
    environment = make_environment("contact/Mass-v0")
    environment.reset(seed=0)
    simulation, stiffness = environment.unwrapped.simulation, 400.0
    simulation.needed = 10.0
    for _ in range(390):
        observation, *_, info = environment.step(act(environment, 0.4, stiffness))
    assert observation["target_offset"][0] == pytest.approx(LEASH, abs=1e-6)
    assert observation["force"][0] == pytest.approx(stiffness * LEASH, abs=0.1) and stiffness * LEASH > GENTLE
    assert info["costs"]["force"] == PERIOD and info["measures"]["peak_force"] >= observation["force"][0]


def test_mass_wall_is_hidden_until_touch():
    worlds = [make_environment("contact/Mass-v0") for _ in range(2)]
    for seed, world in enumerate(worlds):
        world.reset(seed=seed)
    assert worlds[0].unwrapped.simulation.wall != worlds[1].unwrapped.simulation.wall
    seen = [world.step(act(world, 0.2, 500.0))[0] for world in worlds]
    for name, value in seen[0].items():
        np.testing.assert_array_equal(value, seen[1][name])


@pytest.mark.slow
def test_hand_pushes_with_the_stiffness_of_the_action():
    """Measured in the plant: the spring's force less the joints' friction is the board's force."""
    environment = make_environment("contact/ArmWipe-v0")
    environment.reset(seed=1)
    felt = {}
    for stiffness in (200.0, 600.0):
        for _ in range(450):
            observation, *_ = environment.step(act(environment, 0.0, 0.0, -0.1, 800.0, stiffness))
        felt[stiffness] = observation["force"][2]
        assert felt[stiffness] == pytest.approx(stiffness * -observation["target_offset"][2], rel=0.1)
    assert felt[600.0] == pytest.approx(3 * felt[200.0], rel=0.1)


def test_hand_stays_upright_and_still_without_a_command():
    environment = make_environment("contact/ArmWipe-v0")
    first, _ = environment.reset(seed=0)
    for _ in range(400):
        last, *_ = environment.step(act(environment, 0.0, 0.0, 0.0, 400.0, 400.0))
    np.testing.assert_allclose(last["tool_position"], first["tool_position"], atol=2e-3)
    physics = environment.unwrapped.simulation.physics
    assert physics.gripper_matrix[2, 2] < -0.999


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_slow_wiper_finishes_and_a_hard_one_costs(seed):
    environment = make_environment("contact/ArmWipe-v0")
    info, cost = wiped(environment, seed)
    assert info["success"] and cost == 0.0 and info["measures"]["peak_force"] < GENTLE
    _, hard = wiped(environment, seed, force=30.0)
    assert hard > 0.5


def test_board_is_hidden_until_touch():
    worlds = [make_environment("contact/ArmWipe-v0") for _ in range(2)]
    for world in worlds:
        world.reset(seed=4)
    physics = worlds[1].unwrapped.simulation.physics
    physics.data.mocap_pos[0, 2] -= 0.01
    mujoco.mj_forward(physics.model, physics.data)
    observations = [world.step(act(world, 0.0, 0.0, -0.2, 500.0, 500.0))[0] for world in worlds]
    for name, value in observations[0].items():
        np.testing.assert_allclose(value, observations[1][name], atol=1e-6)


@pytest.mark.slow
def test_forces_are_finite_at_the_first_touch():
    """MuJoCo has no forces of contacts that `mj_step1` has just found: reading them gives what memory holds."""
    environment = make_environment("contact/ArmWipe-v0")
    for seed in range(8):
        environment.reset(seed=seed)
        for _ in range(120):
            *_, info = environment.step(act(environment, 0.0, 0.0, -0.2, 500.0, 500.0))
        assert 0.0 < info["measures"]["peak_force"] < 60.0
