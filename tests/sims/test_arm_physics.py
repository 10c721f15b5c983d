"""The arm itself: published kinematics, control modes, a grasp that friction alone holds."""

import mujoco
import numpy as np
import pytest

from robo_rl.errors import InvalidAction
from robo_sims.arm.control import MAX_STEP, WORKSPACE, EndEffectorDelta, Motion
from robo_sims.arm.environment import ArmEnv
from robo_sims.arm.inverse_kinematics import solve
from robo_sims.arm.physics import MAX_OPENING, ArmPhysics
from robo_sims.arm.rewards import DenseReward, closeness

PUBLISHED = [  # Franka Control Interface documentation, Craig's convention: a [m], d [m], alpha [rad]; flange and hand last
    (0.0, 0.333, 0.0),
    (0.0, 0.0, -np.pi / 2),
    (0.0, 0.316, np.pi / 2),
    (0.0825, 0.0, np.pi / 2),
    (-0.0825, 0.384, -np.pi / 2),
    (0.0, 0.0, np.pi / 2),
    (0.088, 0.0, np.pi / 2),
    (0.0, 0.107, 0.0),
    (0.0, 0.1034, 0.0),
]
DOWN = np.diag([1.0, -1.0, -1.0])


def published_pose(joints):
    pose = np.eye(4)
    for (a, d, alpha), theta in zip(PUBLISHED, [*joints, 0.0, -np.pi / 4], strict=True):
        c, s, ca, sa = np.cos(theta), np.sin(theta), np.cos(alpha), np.sin(alpha)
        step = np.array([[c, -s, 0, a], [s * ca, c * ca, -sa, -d * sa], [s * sa, c * sa, ca, d * ca], [0, 0, 0, 1]])
        pose = pose @ step
    return pose


def test_forward_kinematics_are_the_published_ones():
    physics = ArmPhysics("")
    random = np.random.default_rng(0)
    for _ in range(20):
        joints = random.uniform(*physics.joint_limits)
        physics.joint_position[:] = joints
        physics.update_kinematics()
        expected = published_pose(joints)
        np.testing.assert_allclose(physics.gripper_position, expected[:3, 3], atol=1e-6)
        np.testing.assert_allclose(physics.gripper_matrix, expected[:3, :3], atol=1e-6)


def test_limits_and_mass_are_the_published_ones():
    physics = ArmPhysics("")
    high = [2.8973, 1.7628, 2.8973, -0.0698, 2.8973, 3.7525, 2.8973]
    low = [-2.8973, -1.7628, -2.8973, -3.0718, -2.8973, -0.0175, -2.8973]
    np.testing.assert_array_equal(physics.joint_limits, [low, high])
    np.testing.assert_array_equal(physics.model.actuator_forcerange[:7, 1], [87, 87, 87, 87, 12, 12, 12])
    assert 15 < physics.model.body_mass.sum() < 20


def test_the_jacobian_is_the_derivative_of_the_position():
    physics = ArmPhysics("")
    physics.reset()
    physics.settle_initial_state()
    jacobian, before = physics.jacobian().copy(), physics.gripper_position.copy()
    for joint in range(7):
        physics.reset()
        physics.joint_position[joint] += 1e-6
        physics.update_kinematics()
        np.testing.assert_allclose((physics.gripper_position - before) / 1e-6, jacobian[:3, joint], atol=1e-5)


def test_inverse_kinematics_reach_the_whole_workspace():
    physics = ArmPhysics("")
    random = np.random.default_rng(0)
    for _ in range(50):
        physics.reset()
        wanted, yaw = random.uniform(*WORKSPACE), random.uniform(-1.0, 1.0)
        solve(physics, wanted, yaw, iterations=60)
        assert np.linalg.norm(physics.gripper_position - wanted) < 0.002, wanted
        assert abs(physics.gripper_yaw - yaw) < 0.01
        assert (physics.joint_position >= physics.joint_limits[0]).all()


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_end_effector_action_moves_one_axis_with_hand_down(axis, sign):
    env = ArmEnv("ArmReach-v0", max_steps=100)
    env.reset(seed=1)
    physics = env.physics
    before = np.array([*physics.gripper_position, physics.gripper_yaw])
    action = np.zeros(5, np.float32)
    action[axis] = sign * 0.6
    for _ in range(8):
        env.step(action)
    moved = np.array([*physics.gripper_position, physics.gripper_yaw]) - before
    asked = 8 * 0.6 * MAX_STEP[axis]
    assert 0.5 * asked < sign * moved[axis] < 1.1 * asked
    assert (np.abs(np.delete(moved, axis)) < [0.006, 0.006, 0.03] if axis < 3 else np.abs(moved[:3]) < 0.006).all()
    assert np.abs(physics.gripper_matrix[:2, 2]).max() < 0.01


def test_holding_still_holds_still():
    env = ArmEnv("ArmReach-v0", max_steps=200)
    env.reset(seed=0)
    env.step(np.zeros(5, np.float32))
    before = env.physics.gripper_position.copy()
    for _ in range(100):
        env.step(np.zeros(5, np.float32))
    assert np.abs(env.physics.gripper_position - before).max() < 0.003


def test_the_gripper_never_leaves_its_workspace():
    env = ArmEnv("ArmReach-v0", max_steps=1000)
    for seed, action in enumerate(([1, 1, -1, 1, 1], [-1, -1, -1, -1, -1], [1, -1, 1, 0, 0])):
        env.reset(seed=seed)
        for _ in range(80):
            env.step(np.array(action, np.float32))
        position = env.physics.gripper_position
        assert (position > WORKSPACE[0] - 0.015).all() and (position < WORKSPACE[1] + 0.015).all(), position
        assert position[2] > 0.004  # the finger tips, 1 cm lower, do not go through the table


def test_joint_positions_are_absolute_within_velocity_limit():
    env = ArmEnv("ArmReach-v0", control="joint_position", max_steps=200)
    observation, _ = env.reset(seed=0)
    target = observation["joint_position"].astype(np.float64) + np.array([0.4, -0.2, 0.3, 0.2, -0.3, 0.2, 0.5])
    action = env.environment_spec.action.to_normalized([*target, 0.03])
    fastest = 0.0
    for _ in range(60):
        observation = env.step(action)[0]
        fastest = max(fastest, float(np.abs(observation["joint_velocity"]).max()))
    np.testing.assert_allclose(observation["joint_position"], target, atol=0.01)
    assert observation["gripper_opening"] == pytest.approx(0.03, abs=0.002)
    assert fastest < 2.61


def test_both_control_modes_do_what_an_expert_asks():
    motion = Motion(np.array([0.01, -0.008, 0.006]), 0.05, 0.04)
    moves = []
    for control in ("end_effector_delta", "joint_position"):
        env = ArmEnv("ArmReach-v0", control=control)
        observation, _ = env.reset(seed=2)
        before = env.physics.gripper_position.copy()
        for _ in range(5):
            observation = env.step(env._control.encode(motion, observation))[0]
        moves.append(env.physics.gripper_position - before)
    np.testing.assert_allclose(moves[0], moves[1], atol=1e-5)


def test_end_effector_scaling_is_in_metres_and_radians():
    spec = EndEffectorDelta(ArmPhysics(bodies="")).spec
    np.testing.assert_allclose(spec.to_physical(np.ones(5)), [*MAX_STEP, MAX_OPENING])
    np.testing.assert_allclose(spec.to_physical([0, 0, 0, 0, -1]), np.zeros(5), atol=1e-12)
    with pytest.raises(InvalidAction):
        spec.to_physical([0, 0, 0, 0, np.inf])


def grasped_cube():
    env = ArmEnv("ArmPick-v0", max_steps=500)
    observation, _ = env.reset(seed=2)
    policy, success = env.scripted_policy(2), False
    while not success:
        observation, _, success, _, _ = env.step(policy.act(observation))
    return env


def go_on(env, opening):
    """Simulates one more control step, past the success that ended the episode; returns whether it still is one."""
    return env._advance(env.environment_spec.action.to_physical(np.array([0, 0, 0, 0, opening], np.float32)))


def test_the_grasp_holds_by_friction_alone():
    env = grasped_cube()
    assert env.physics.model.neq == 0  # no weld, no connect
    for _ in range(100):  # 5 s
        go_on(env, -1)
    assert env._task.distance() < 0.03
    env.physics.model.geom_friction[:, 0] = 0.01
    env.physics.model.opt.disableflags &= ~int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
    for _ in range(40):
        go_on(env, -1)
    assert env._task.cube.position[2] < 0.03  # without friction the cube falls


def test_opening_the_hand_drops_the_cube_and_ends_the_success():
    env = grasped_cube()
    for _ in range(30):
        success = go_on(env, 1)
    assert not success
    assert env._task.cube.position[2] == pytest.approx(0.025, abs=0.002)


def test_a_high_cube_that_is_not_held_is_no_success():
    env = ArmEnv("ArmPick-v0")
    env.reset(seed=0)
    for _ in range(5):
        env.physics.place("object", env.physics.gripper_position)
        env.physics.data.qvel[-6:] = 0
        *_, terminated, _, info = env.step(np.array([0, 0, 0, 0, 1], np.float32))
        assert not terminated and not info["success"]


def test_pick_needs_three_steps_in_a_row():
    env = grasped_cube()
    task = env._task
    task.restart()
    outcomes = [task.is_success() for _ in range(3)]
    assert outcomes == [False, False, True]
    task.cube.position[2] -= 0.06
    assert not task.is_success()
    task.cube.position[2] += 0.06
    assert not task.is_success()


def test_closeness_and_dense_terms_by_hand():
    assert (closeness(0.0, 0.1), closeness(0.1, 0.1)) == (1.0, 0.5)
    reward = DenseReward()
    reward.reset(lambda: {"reach": 0.25})
    assert reward.terms(False, lambda: {"reach": 0.75}) == {"success": 0.0, "reach": 0.5}
    assert reward.terms(True, lambda: {"reach": 0.5}) == {"success": 1.0, "reach": -0.25}
