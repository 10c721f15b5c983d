"""Each wrapper gives what its source gives: the same numbers in the same order, and the source's own rules."""

import gymnasium
import mujoco
import numpy as np
import pytest
from dm_control import manipulation, suite
from metaworld.env_dict import ALL_V3_ENVIRONMENTS

from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.evaluation.evaluation import evaluate
from robo_rl.spec.environment import specification
from robo_sims.gymnasium_mujoco import FAMILY as GYMNASIUM


def actions(environment, count, seed=0):
    random = np.random.default_rng(seed)
    return random.uniform(-1.0, 1.0, (count, *environment.action_space.shape)).astype(np.float32)


def flat(observation):
    return np.concatenate([value.ravel() for value in observation.values()])


@pytest.mark.parametrize("task", GYMNASIUM.names())
def test_gymnasium_equals_its_source_bit_for_bit(task):
    ours, source = make_environment(f"gymnasium/{task}"), gymnasium.make(task)
    observation, expected = ours.reset(seed=3)[0], source.reset(seed=3)[0]
    for action in actions(ours, 120):
        observation, reward, terminated, truncated, _ = ours.step(action)
        command = specification(ours).action.to_physical(action).astype(np.float32)
        expected, expected_reward, *ends, _ = source.step(command)
        assert (reward, terminated, truncated) == (expected_reward, *ends)
        if terminated or truncated:  # episodes without a seed go on alike too
            observation, expected = ours.reset()[0], source.reset()[0]
        np.testing.assert_array_equal(flat(observation), expected.astype(np.float32))


def test_gymnasium_specs_say_what_the_source_documents():
    cheetah = specification(make_environment("gymnasium/HalfCheetah-v5"))
    units = [(array.name, array.size, array.unit) for array in cheetah.observation.values()]
    assert units == [
        ("root_height", 1, "m"),
        ("root_angle", 1, "rad"),
        ("joint_position", 6, "rad"),
        ("root_velocity", 2, "m/s"),
        ("root_angular_velocity", 1, "rad/s"),
        ("joint_velocity", 6, "rad/s"),
    ]
    assert cheetah.action.names == ("bthigh", "bshin", "bfoot", "fthigh", "fshin", "ffoot")
    assert (cheetah.action.mode, cheetah.action.control_period, cheetah.max_steps) == ("joint_torque", 0.05, 1000)
    humanoid = specification(make_environment("gymnasium/Humanoid-v5")).action
    assert (set(humanoid.low), set(humanoid.high)) == ({-0.4}, {0.4})


def test_gymnasium_reward_is_the_sum_of_its_terms():
    environment = make_environment("gymnasium/HalfCheetah-v5")
    environment.reset(seed=0)
    _, reward, *_, info = environment.step(actions(environment, 1)[0])
    assert set(info["reward_terms"]) == {"forward", "ctrl"}
    assert reward == pytest.approx(sum(info["reward_terms"].values()))


def test_gymnasium_fall_is_a_failure():
    environment = make_environment("gymnasium/Hopper-v5")
    environment.reset(seed=0)
    ends = [environment.step(action) for action in actions(environment, 15)]
    while not ends[-1][2]:
        ends.append(environment.step(actions(environment, 1)[0]))
    assert ends[-1][3] is False
    assert ends[-1][4]["stop_reason"] == "failure"


@pytest.mark.parametrize("task", ["cheetah-run", "finger-turn_hard", "humanoid-walk"])
def test_suite_equals_its_source(task):
    ours = make_environment(f"dm_control/{task}")
    source = suite.load(*task.split("-"), task_kwargs={"random": 11})
    observation, expected = ours.reset(seed=11)[0], source.reset().observation
    for action in actions(ours, 40):
        assert list(observation) == list(expected)
        for name, value in expected.items():
            np.testing.assert_array_equal(observation[name], np.atleast_1d(np.asarray(value, np.float32)))
        observation, reward, *_ = ours.step(action)
        step = source.step(action.astype(np.float64))
        expected = step.observation
        assert reward == step.reward


@pytest.mark.slow
@pytest.mark.parametrize(("task", "repeat"), [("cheetah-run", 2), ("manipulation-reach_site_features", 3)])
def test_repeats_sum_rewards_and_keep_the_length(task, repeat):
    ours, once = make_environment(f"dm_control/{task}", action_repeat=repeat), make_environment(f"dm_control/{task}")
    spec, single = specification(ours), specification(once)
    assert spec.max_steps == single.max_steps // repeat
    assert spec.action.control_period == pytest.approx(single.action.control_period * repeat)
    observation, expected = ours.reset(seed=3)[0], once.reset(seed=3)[0]
    for action in actions(ours, spec.max_steps):
        np.testing.assert_array_equal(flat(observation), flat(expected))
        observation, reward, _, truncated, _ = ours.step(action)
        steps = [once.step(action) for _ in range(repeat)]
        expected = steps[-1][0]
        assert reward == sum(step[1] for step in steps)
    assert truncated


def test_hidden_vectors_are_privileged():
    observation = specification(make_environment("dm_control/reacher-easy", hides_state=True)).observation
    assert {array.role for array in observation.arrays} == {"privileged"}


@pytest.mark.parametrize("repeat", [0, 1001])
def test_an_action_that_outlasts_the_episode_is_refused(repeat):
    with pytest.raises(InvalidSetting, match="action_repeat is out of range") as raised:
        make_environment("dm_control/cheetah-run", action_repeat=repeat)
    assert "1 to 1000" in str(raised.value)


@pytest.mark.slow
def test_manipulation_equals_its_source_and_keeps_250_steps():
    ours = make_environment("dm_control/manipulation-lift_brick_features")
    source = manipulation.load("lift_brick_features", seed=0)
    source.random_state.seed(5)
    observation, step = ours.reset(seed=5)[0], source.reset()
    spec = specification(ours)
    assert (spec.max_steps, spec.action.mode, spec.action.control_period) == (250, "joint_velocity", 0.04)
    for action in actions(ours, 10):
        for name, value in step.observation.items():
            np.testing.assert_array_equal(observation[name.replace("/", "_")], value[0].astype(np.float32))
        observation, reward, *_ = ours.step(action)
        step = source.step(spec.action.to_physical(action))
        assert reward == step.reward


@pytest.mark.slow
def test_reassembly_ignores_previous_episode_order():
    environment = make_environment("dm_control/manipulation-reassemble_5_bricks_random_order_features")
    orders = [environment.reset(seed=seed)[0]["desired_order"].tolist() for seed in (7, 7, 8, 7)]
    assert orders[0] == orders[1] == orders[3] != orders[2]


@pytest.mark.parametrize("task", ["reach-v3", "peg-insert-side-v3", "door-open-v3"])
def test_metaworld_equals_its_source(task):
    ours = make_environment(f"metaworld/{task}")
    source = ALL_V3_ENVIRONMENTS[task]()
    source._partially_observable, source._freeze_rand_vec = False, False
    source.seeded_rand_vec = source._set_task_called = True
    del source.sawyer_observation_space
    source.seed(4)
    observation, expected = ours.reset(seed=4)[0], source.reset()[0]
    for action in actions(ours, 30):
        np.testing.assert_array_equal(flat(observation), expected.astype(np.float32))
        observation, reward, _, _, info = ours.step(action)
        expected, expected_reward, _, _, expected_info = source.step(action)
        assert (reward, info["success"]) == (expected_reward, bool(expected_info["success"]))


def test_metaworld_goal_depends_on_seed_alone():
    environment = make_environment("metaworld/reach-v3")
    before = np.random.get_state()[1].copy()  # noqa: NPY002 (the source's habit under test)
    goals = [environment.reset(seed=seed)[0]["goal_position"].tolist() for seed in (0, 1, 0)]
    assert goals[0] == goals[2] != goals[1]
    assert environment.reset()[0]["goal_position"].tolist() not in goals
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_metaworld_action_repeat_changes_rate_reach_and_length():
    spec = specification(make_environment("metaworld/reach-v3", action_repeat=4))
    assert spec.action.control_period == pytest.approx(0.05)
    assert spec.action.high == pytest.approx((0.04, 0.04, 0.04, 1.0))
    assert spec.max_steps == 125
    once, repeated = (make_environment("metaworld/reach-v3", action_repeat=count) for count in (1, 4))
    once.reset(seed=0)
    repeated.reset(seed=0)
    action = np.array([0.5, -1.0, 0.25, 1.0], np.float32)
    steps = [once.step(action) for _ in range(4)]
    observation, reward, *_ = repeated.step(action)
    np.testing.assert_array_equal(flat(observation), flat(steps[-1][0]))
    assert reward == pytest.approx(sum(step[1] for step in steps))


@pytest.mark.parametrize(
    ("arguments", "words"), [({"reward": "sprase"}, "Unknown reward"), ({"action_repeat": 0}, "action_repeat")]
)
def test_metaworld_wrong_settings(arguments, words):
    with pytest.raises(InvalidSetting, match=words):
        make_environment("metaworld/reach-v3", **arguments)


@pytest.mark.parametrize("task", ["reach-v3", "peg-insert-side-v3", "pick-place-v3", "drawer-open-v3"])
def test_metaworld_expert_reaches_the_goal_of_a_sparse_task(task):
    environment = make_environment(f"metaworld/{task}", reward="sparse")
    policy = environment.get_wrapper_attr("scripted_policy")(0)
    successes = 0
    for seed in range(3):
        policy.reset()
        observation, _ = environment.reset(seed=seed)
        terminated = truncated = False
        rewards = []
        while not (terminated or truncated):
            observation, reward, terminated, truncated, info = environment.step(policy.act(observation))
            rewards.append(reward)
        if info["success"]:
            assert (terminated, info["stop_reason"]) == (True, "goal")
            assert sum(rewards) == rewards[-1] == 1.0
        successes += info["success"]
    assert successes >= 2


def test_metaworld_expert_is_evaluated_as_a_policy():
    environment = make_environment("metaworld/reach-v3", reward="sparse")
    evaluation = evaluate(environment.scripted_policy(0), environment, seeds=[0])
    assert evaluation.successes == (True,)


def test_metaworld_expert_noise_comes_from_its_seed():
    environment = make_environment("metaworld/reach-v3")
    observation, _ = environment.reset(seed=0)
    experts = [environment.scripted_policy(seed, noise=0.3) for seed in (0, 0, 1)]
    one, same, other = (expert.act(observation) for expert in experts)
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)
    exact = environment.scripted_policy(5).act(observation)
    np.testing.assert_array_equal(experts[0].act(observation, deterministic=True), exact)


def test_families_without_experts_say_so():
    with pytest.raises(AttributeError, match="scripted_policy"):
        make_environment("gymnasium/Reacher-v5").get_wrapper_attr("scripted_policy")


@pytest.mark.parametrize("task", ["FetchReach-v4", "FetchPush-v4"])
def test_fetch_equals_its_source(task):
    ours, source = make_environment(f"gymnasium_robotics/{task}"), gymnasium.make(task)
    observation, expected = ours.reset(seed=2)[0], source.reset(seed=2)[0]
    for action in actions(ours, 50):
        whole = np.concatenate([expected[name] for name in ("observation", "achieved_goal", "desired_goal")])
        np.testing.assert_array_equal(flat(observation), whole.astype(np.float32))
        observation, reward, terminated, truncated, info = ours.step(action)
        expected, expected_reward, *ends, expected_info = source.step(action)
        assert (reward, terminated, truncated) == (expected_reward, *ends)
        assert info["success"] == bool(expected_info["is_success"])
    assert info["stop_reason"] == "time_limit"


DOOR = "AdroitHandDoorSparse-v1"


def test_door_equals_its_source():
    ours, source = make_environment(f"gymnasium_robotics/{DOOR}"), gymnasium.make(DOOR)
    observation, expected = ours.reset(seed=2)[0], source.reset(seed=2)[0]
    for action in actions(ours, 200):
        np.testing.assert_array_equal(flat(observation), expected.astype(np.float32))
        observation, reward, terminated, truncated, info = ours.step(action)
        expected, expected_reward, *ends, expected_info = source.step(action)
        assert (reward, terminated, truncated) == (expected_reward, *ends)
        assert info["success"] == bool(expected_info["success"])
    assert info["stop_reason"] == "time_limit"


def test_door_begins_in_a_state_once():
    environment = make_environment(f"gymnasium_robotics/{DOOR}", max_steps=3)
    usual = environment.reset(seed=2)[0]
    state = {"qpos": np.zeros(30), "qvel": np.zeros(30), "door_body_pos": np.array([-0.1, 0.4, 0.3])}
    state["qpos"][-2:] = 1.4, 0.2
    environment.unwrapped.simulation.start_from(state)
    observation = environment.reset(seed=2)[0]
    assert observation["door_position"] == np.float32(1.4) and observation["door_is_open"] == 1
    assert environment.step(np.zeros(28, np.float32))[4]["success"]
    np.testing.assert_array_equal(flat(environment.reset(seed=2)[0]), flat(usual))


def test_fetch_velocities_are_metres_per_step():
    """The documentation says m/s; the source multiplies by the control period, so the spec says m."""
    environment = make_environment("gymnasium_robotics/FetchReach-v4")
    environment.reset(seed=0)
    for _ in range(5):
        observation, *_ = environment.step(np.array([0.0, 1.0, 0.0, 0.0], np.float32))
    model, data = environment.unwrapped.model, environment.unwrapped.data
    jacobian = np.zeros((3, model.nv))
    mujoco.mj_jacSite(model, data, jacobian, None, model.site("robot0:grip").id)
    velocity = jacobian @ data.qvel  # [m/s]
    assert velocity[1] > 0.1
    np.testing.assert_allclose(observation["gripper_velocity"], velocity * 0.04, rtol=1e-5, atol=1e-7)
    assert specification(environment).observation["gripper_velocity"].unit == "m"


@pytest.mark.slow
def test_kitchen_equals_its_source_and_states_its_real_limits():
    goals = ("microwave", "kettle")
    ours = make_environment("gymnasium_robotics/FrankaKitchen-v1", goals=goals)
    source = gymnasium.make("FrankaKitchen-v1", tasks_to_complete=list(goals), disable_env_checker=True)
    spec = specification(ours)
    assert spec.instruction == "open the microwave, move the kettle to the top burner"
    assert set(spec.action.high) == {2.0}  # twice what the documentation says: the source scales by act_rng
    assert (spec.max_steps, spec.action.units[0], spec.action.units[-1]) == (280, "rad/s", "m/s")
    observation, expected = ours.reset(seed=1)[0], source.reset(seed=1)[0]
    for action in actions(ours, 5):
        parts = [expected["observation"], *(expected[f"{kind}_goal"][g] for kind in ("achieved", "desired") for g in goals)]
        np.testing.assert_array_equal(flat(observation), np.concatenate(parts).astype(np.float32))
        observation, reward, *_ = ours.step(action)
        expected, expected_reward, *_ = source.step(action.astype(np.float64))
        assert reward == expected_reward


def test_kitchen_action_is_a_velocity_of_two_radians_per_second():
    environment = make_environment("gymnasium_robotics/FrankaKitchen-v1")
    environment.reset(seed=0)
    action = np.zeros(9, np.float32)
    action[6] = 0.2
    commanded = []
    for _ in range(5):
        environment.step(action)
        commanded.append(environment.data.ctrl[6])
    assert np.diff(commanded).mean() / 0.08 == pytest.approx(0.4, abs=0.2)  # 0.2 x 2 rad/s, with the source's own noise


def test_kitchen_unknown_goal():
    with pytest.raises(UnknownName, match="Unknown goal of the kitchen 'microwaves'") as caught:
        make_environment("gymnasium_robotics/FrankaKitchen-v1", goals=["microwaves"])
    assert caught.value.close == ["microwave"]


LEFT, RIGHT, FORWARD = 0, 1, 2


def test_minigrid_reaches_the_goal():
    environment = make_environment("minigrid/MiniGrid-Empty-5x5-v0")
    observation, info = environment.reset(seed=0)
    assert info == {"instruction": "get to the green goal square"}
    assert observation["direction"].tolist() == [1, 0, 0, 0]
    assert observation["grid"].shape == (7, 7, 3)
    for action in (FORWARD, FORWARD, RIGHT):
        observation, *_ = environment.step(action)
    assert observation["direction"].tolist() == [0, 1, 0, 0]
    environment.step(FORWARD)
    _, reward, terminated, truncated, info = environment.step(FORWARD)
    assert (terminated, truncated, info["success"], info["stop_reason"]) == (True, False, True, "goal")
    assert 0.9 < reward < 1.0


def test_minigrid_lava_is_a_failure():
    environment = make_environment("minigrid/MiniGrid-DistShift1-v0")
    environment.reset(seed=0)
    terminated = False
    while not terminated:
        _, reward, terminated, _, info = environment.step(FORWARD)
    assert (reward, info["success"], info["stop_reason"]) == (0.0, False, "failure")


def test_minigrid_mission_follows_seed_at_every_step():
    environment = make_environment("minigrid/MiniGrid-GoToDoor-5x5-v0")
    missions = {environment.reset(seed=seed)[1]["instruction"] for seed in range(8)}
    assert len(missions) > 2
    info = environment.reset(seed=3)[1]
    assert environment.step(LEFT)[4]["instruction"] == info["instruction"]


def test_babyai_keeps_the_time_limit_of_its_mission():
    environment = make_environment("minigrid/BabyAI-GoToLocal-v0")
    assert specification(environment).max_steps is None
    environment.reset(seed=0)
    steps = [environment.step(LEFT)]
    while not (steps[-1][2] or steps[-1][3]):
        steps.append(environment.step(LEFT))
    assert len(steps) == 64  # one mission in one room of 8 x 8 cells
    assert (*steps[-1][2:4], steps[-1][4]["stop_reason"]) == (False, True, "time_limit")
