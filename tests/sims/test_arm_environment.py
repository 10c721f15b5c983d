"""The arm tasks as Gymnasium environments: registration, checkers, determinism, endings, bad input."""

import contextlib
import subprocess
import sys

import gymnasium
import mujoco
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check
from stable_baselines3.common.env_checker import check_env as sb3_check

from robo_rl.environments.make import environment_names, make_environment, make_vector_environment
from robo_rl.errors import InvalidAction, InvalidSetting, UnknownName
from robo_rl.protocols.components import EnvironmentFamily, Policy
from robo_rl.spec.environment import specification
from robo_sims.arm.control import CLOSED, CONTROLS
from robo_sims.arm.environment import ArmEnv
from robo_sims.arm.family import FAMILY, NAMES
from robo_sims.arm.tasks import TASKS

EVERY = [(task, control) for task in NAMES for control in CONTROLS if (task, control) != ("ArmPick-v0", CLOSED)]


def python(code):
    return subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60, check=False)


def test_listed_names_match_existing_tasks():
    assert tuple(TASKS) == NAMES == tuple(FAMILY.names())
    assert isinstance(FAMILY, EnvironmentFamily)
    assert {f"robo/{name}" for name in NAMES} <= {name for name, problem in environment_names().items() if problem is None}


@pytest.mark.slow
def test_importing_registers_quietly_and_loads_no_simulator():
    done = python(
        "import gymnasium, sys, robo_sims; robo_sims.register(); assert 'mujoco' not in sys.modules, 'mujoco was imported'\n"
        "env = gymnasium.make('robo/ArmPick-v0', max_steps=3); env.reset(seed=0)\n"
        "print([env.step(env.action_space.sample())[3] for _ in range(3)])"
    )
    assert (done.stdout.strip(), done.stderr) == ("[False, False, True]", "")


@pytest.mark.slow
def test_gymnasium_imports_us_from_the_full_name():
    done = python("import gymnasium; print(gymnasium.make('robo_sims:robo/ArmReach-v0').unwrapped.environment_spec.name)")
    assert (done.stdout.strip(), done.stderr) == ("robo/ArmReach-v0", "")


@pytest.mark.filterwarnings("ignore:.*Box observation space m.*imum value is -?infinity:UserWarning")  # true: m and rad/s
@pytest.mark.parametrize(("task", "control"), EVERY)
def test_checkers_of_gymnasium_and_stable_baselines3(task, control):
    env = gymnasium.make(f"robo/{task}", control=control)
    gymnasium_check(env.unwrapped, skip_render_check=True)
    sb3_check(env.unwrapped)


@pytest.mark.parametrize(("task", "control"), EVERY)
def test_observations_keep_the_spec_and_the_action_spec_its_mode(task, control):
    env = make_environment(f"robo/{task}", control=control, reward="dense")
    spec = specification(env)
    assert (spec.name, spec.action.mode, spec.action.control_period) == (f"robo/{task}", control.removesuffix("_closed"), 0.05)
    assert spec.success_rule
    assert spec.instruction
    env.action_space.seed(0)
    observation, _ = env.reset(seed=0)
    for _ in range(20):
        spec.observation.validate(observation)
        observation, reward, _, _, info = env.step(env.action_space.sample())
        assert reward == pytest.approx(sum(info["reward_terms"].values()))


def episode(env, seed):
    observation, _ = env.reset(seed=seed)
    policy = env.scripted_policy(seed, noise=0.3)
    trace, done = [observation], False
    while not done:
        observation, reward, terminated, truncated, info = env.step(policy.act(observation))
        trace.append({**observation, "reward": np.array(reward)})
        done = terminated or truncated
    return trace, info


@pytest.mark.parametrize(("task", "control"), EVERY)
def test_an_episode_depends_on_nothing_but_its_seed_and_actions(task, control):
    used, fresh = ArmEnv(task, control=control), ArmEnv(task, control=control)
    episode(used, seed=1)
    first, second = episode(used, seed=2)[0], episode(fresh, seed=2)[0]
    assert len(first) == len(second)
    for here, there in zip(first, second, strict=True):
        assert all(np.array_equal(here[name], there[name]) for name in here)


@pytest.mark.slow
def test_an_episode_is_the_same_in_another_process():
    code = (
        "import numpy as np; from robo_sims.arm.environment import ArmEnv\n"
        "env = ArmEnv('ArmPick-v0'); env.reset(seed=5); actions = np.random.default_rng(0).uniform(-1, 1, (30, 5))\n"
        "states = [env.step(action)[0]['joint_position'] for action in actions]\n"
        "print(np.concatenate(states).tobytes().hex()[-400:])"
    )
    first, second = python(code), python(code)
    assert first.stdout == second.stdout != ""


def test_vector_copies_are_alike_in_and_across_processes():
    rollouts = []
    for mode in ("sync", "async"):
        copies = gymnasium.make_vec("robo/ArmPick-v0", num_envs=2, vectorization_mode=mode, max_steps=3)
        trace = [copies.reset(seed=[1, 2])[0]["joint_position"].copy()]
        for step in range(6):  # past the end of the first episodes
            observation, _, _, truncated, info = copies.step(np.full((2, 5), 0.1 * step, np.float32))
            assert truncated.tolist() == [step == 2] * 2
            assert ("stop_reason" in info) == (step == 2)
            trace.append(observation["joint_position"].copy())
        rollouts.append(np.array(trace))
        copies.close()
    np.testing.assert_array_equal(*rollouts)
    assert not np.array_equal(rollouts[0][0][0], rollouts[0][0][1])


def test_seeds_differ_and_starts_are_spread():
    env = ArmEnv("ArmPick-v0")
    starts = [env.reset(seed=seed)[0] for seed in range(40)]
    for name, least in (("object_position", 0.05), ("end_effector_position", 0.03), ("object_turn", 0.3)):
        assert (np.std([start[name] for start in starts], axis=0)[:2] > least).all(), name


def test_the_time_limit_truncates():
    env = ArmEnv("ArmPick-v0", max_steps=2)
    env.reset(seed=0)
    still = np.zeros(5, np.float32)
    assert env.step(still)[2:4] == (False, False)
    *_, terminated, truncated, info = env.step(still)
    assert (terminated, truncated, info["stop_reason"], info["success"]) == (False, True, "time_limit", False)


def test_success_terminates_and_pays_once():
    trace, info = episode(ArmEnv("ArmPick-v0"), seed=0)
    rewards = [step["reward"] for step in trace[1:]]
    assert info == {"success": True, "stop_reason": "goal", "reward_terms": {"success": 1.0}}
    assert rewards == [0.0] * (len(rewards) - 1) + [1.0]


@pytest.mark.parametrize("reward", ["sparse", "dense"])
@pytest.mark.parametrize("state", ["qpos", "qvel"])
def test_diverged_simulation_is_truncated_at_last_valid_state(state, reward):
    env = ArmEnv("ArmPick-v0", reward=reward)
    env.reset(seed=0)
    before, *_, judged = env.step(np.zeros(5, np.float32))
    getattr(env.physics.data, state)[3] = np.nan
    observation, paid, terminated, truncated, info = env.step(np.zeros(5, np.float32))
    assert (paid, terminated, truncated, info["stop_reason"]) == (0.0, False, True, "sim_diverged")
    assert info["reward_terms"] == dict.fromkeys(judged["reward_terms"], 0.0)
    assert all(np.array_equal(observation[name], before[name]) for name in before)
    assert np.isfinite(env.reset(seed=0)[0]["joint_position"]).all()
    assert not env.step(np.zeros(5, np.float32))[3]


def test_an_exploding_velocity_is_noticed_although_it_is_finite():
    env = ArmEnv("ArmPick-v0")
    env.reset(seed=0)
    env.physics.data.qvel[3] = 1e12
    with np.errstate(over="ignore"):
        assert env.step(np.zeros(5, np.float32))[4]["stop_reason"] == "sim_diverged"
    assert env.physics.model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_AUTORESET


@pytest.mark.parametrize("speed", [1e4, 1e6, 1e8, 1e12])
@pytest.mark.parametrize("task", ["ArmPush-v0", "ArmPegInsert-v0"])
def test_arm_notices_an_object_that_was_thrown(task, speed):
    """MuJoCo warns of no velocity below 1e10, and the table is cleared for good."""
    env = ArmEnv(task)
    env.reset(seed=0)
    env.physics.data.qvel[9] = speed
    assert env.step(np.zeros(5, np.float32))[4]["stop_reason"] == "sim_diverged"
    env.reset(seed=0)
    env.physics.data.qvel[9] = 20.0  # thrown by hand
    assert not env.step(np.zeros(5, np.float32))[3]


def test_batched_arms_notice_an_object_that_was_thrown():
    with contextlib.closing(make_vector_environment("robo/ArmPush-v0", 3, threads=1)) as vector:
        vector.reset(seed=0)
        vector.datas[1].qvel[9] = 1e6
        *_, truncated, info = vector.step(np.zeros((3, 5), np.float32))
    assert truncated.tolist() == [False, True, False] and info["stop_reason"][1] == "sim_diverged"


def test_dense_reward_is_a_difference_of_potentials():
    env = ArmEnv("ArmPick-v0", reward="dense", max_steps=25)
    observation, _ = env.reset(seed=3)
    start, policy, paid = env._task.progress(), env.scripted_policy(0), dict.fromkeys(env._task.progress(), 0.0)
    for _ in range(25):
        observation, _, _, _, info = env.step(policy.act(observation))
        paid = {name: total + info["reward_terms"][name] for name, total in paid.items()}
    end = env._task.progress()
    assert paid == pytest.approx({name: end[name] - start[name] for name in end}, abs=1e-9)
    assert end["reach"] > start["reach"] + 0.3


def test_scripted_policies_are_policies_that_vary_and_repeat():
    env = ArmEnv("ArmPick-v0")
    observation, _ = env.reset(seed=0)
    policy = env.get_wrapper_attr("scripted_policy")(7)
    assert isinstance(policy, Policy)
    for _ in range(15):
        observation = env.step(policy.act(observation))[0]
    policy = env.scripted_policy(7)
    first = policy.act(observation)
    policy.reset()
    assert (first.dtype, first.shape) == (np.float32, (5,))
    assert not np.array_equal(first, policy.act(observation))  # another episode, other habits
    assert np.array_equal(first, env.scripted_policy(7).act(observation))
    noisy = env.scripted_policy(7, noise=0.5)
    assert np.array_equal(first, noisy.act(observation, deterministic=True))
    assert not np.array_equal(first, noisy.act(observation))


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"task": "ArmPikc-v0"}, UnknownName, "Unknown arm task 'ArmPikc-v0'.\n(.|\n)*did you mean 'ArmPick-v0'"),
        (
            {"control": CLOSED},
            InvalidSetting,
            "ArmPick-v0 needs fingers that move.\n(.|\n)*allowed: end_effector_delta, joint_position",
        ),
        (
            {"control": "torque"},
            UnknownName,
            "Unknown control mode 'torque'.\n(.|\n)*end_effector_delta_closed, joint_position",
        ),
        ({"reward": "spars"}, UnknownName, "Unknown reward 'spars'.\n(.|\n)*did you mean 'sparse'"),
        ({"cameras": ("side",)}, UnknownName, "Unknown camera 'side'.\n(.|\n)*front, overview, wrist"),
        ({"cameras": "front"}, InvalidSetting, "cameras must be a list.\n  got:     'front'"),
        ({"image_size": 4}, InvalidSetting, "image_size is out of range.\n  got:     4\n  allowed: integer 8 to 960"),
        ({"max_steps": 0}, InvalidSetting, "max_steps is out of range.\n  got:     0\n  allowed: integer from 1"),
        ({"action_repeat": 0}, InvalidSetting, "action_repeat is out of range.\n  got:     0\n  allowed: integer from 1"),
        (
            {"render_mode": "human"},
            InvalidSetting,
            r"Unknown render_mode.\n  got:     'human'\n  allowed: \(None, 'rgb_array', 'rgb_array_list'\)",
        ),
    ],
)
def test_wrong_arguments(arguments, error, text):
    with pytest.raises(error, match=text):
        ArmEnv(**{"task": "ArmPick-v0", **arguments})


def test_a_family_names_the_nearest_task():
    with pytest.raises(UnknownName, match="did you mean 'ArmPush-v0'"):
        FAMILY.make("ArmPusch-v0")


def time_runs_out(env):
    while not env.step(np.zeros(5, np.float32))[3]:
        pass


def simulation_diverges(env):
    env.physics.data.qvel[3] = np.nan
    assert env.step(np.zeros(5, np.float32))[3]


def expert_succeeds(env):
    assert episode(env, seed=0)[1]["stop_reason"] == "goal"


@pytest.mark.parametrize("end", [time_runs_out, simulation_diverges, expert_succeeds])
def test_stepping_needs_an_episode_under_way(end):
    env = ArmEnv("ArmPick-v0", max_steps=200)
    still, words = np.zeros(5, np.float32), r"over or has not begun: call reset\(\) before step\(\)"
    with pytest.raises(gymnasium.error.ResetNeeded, match=words):
        env.step(still)
    env.reset(seed=0)
    end(env)
    with pytest.raises(gymnasium.error.ResetNeeded, match=words):
        env.step(still)
    env.reset(seed=1)
    env.step(still)


def test_bad_actions():
    env = ArmEnv("ArmPick-v0")
    env.reset(seed=0)
    with pytest.raises(InvalidAction, match="NaN or infinity"):
        env.step(np.array([0, 0, np.nan, 0, 0], np.float32))
    with pytest.raises(InvalidAction, match=r"wrong shape.\n  got:     \[4\]"):
        env.step(np.zeros(4, np.float32))


def test_a_repeated_displacement_is_one_motion_divided():
    once, thrice = ArmEnv("ArmReach-v0"), ArmEnv("ArmReach-v0", action_repeat=3)
    action = np.array([0.5, -0.5, 0.2, 0.1, 1.0], np.float32)
    once.reset(seed=3), thrice.reset(seed=3)
    for _ in range(3):
        expected = once.step(action)[0]
    got = thrice.step(action)[0]
    np.testing.assert_allclose(got["joint_position"], expected["joint_position"], atol=1e-6)
    spec, repeated = once.environment_spec, thrice.environment_spec
    assert str(repeated.action.control_period) == "0.15"  # a product of binary fractions would print 0.15000000000000002
    np.testing.assert_allclose(repeated.action.high[:4], 3 * np.array(spec.action.high[:4]))
    assert repeated.max_steps == 20 and spec.max_steps == 60


def test_with_closed_fingers_no_action_lets_go_of_the_peg():
    held, free = (ArmEnv("ArmPegInsert-v0", control=mode, action_repeat=3) for mode in (CLOSED, "end_effector_delta"))
    assert held.environment_spec.action.names == free.environment_spec.action.names[:4]
    random, dropped = np.random.default_rng(0), []
    for env in (held, free):
        env.reset(seed=0)
        for _ in range(6):
            observation = env.step(random.uniform(-1, 1, env.action_space.shape))[0]
        dropped.append(np.linalg.norm(observation["peg_position"] - observation["end_effector_position"]) > 0.15)
    assert dropped == [False, True]


@pytest.mark.slow
@pytest.mark.parametrize("control", [mode for mode in CONTROLS if mode != CLOSED])
def test_the_expert_masters_repeated_actions(control):
    env = ArmEnv("ArmPick-v0", control=control, action_repeat=3)
    outcomes = []
    for seed in range(20):
        observation, info = env.reset(seed=seed)
        policy, over = env.scripted_policy(seed), False
        while not over:
            observation, _, terminated, truncated, info = env.step(policy.act(observation))
            over = terminated or truncated
        outcomes.append(info["success"])
    assert sum(outcomes) >= 19
