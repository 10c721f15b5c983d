"""Every scripted expert solves its task, in every control mode, from what a policy may observe."""

import numpy as np
import pytest

from factories import rest_slow
from robo_bench.arm_tasks import measure
from robo_rl.runs.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from robo_sims.arm.control import CLOSED, CONTROLS
from robo_sims.arm.environment import ArmEnv
from robo_sims.arm.tasks import TASKS

EVERY = [(task, control) for task, kind in TASKS.items() for control in CONTROLS if not (kind.grasps and control == CLOSED)]


@pytest.mark.parametrize(("task", "control"), rest_slow(EVERY, fast=4))
def test_experts_succeed(task, control):
    got = measure(ArmEnv(task, control=control), seeds=range(1000, 1020))
    assert got.successes >= 19, got
    assert got.mean_steps < 0.6 * TASKS[task].max_steps


@pytest.mark.slow
@pytest.mark.parametrize(("task", "control"), EVERY)
def test_experts_succeed_on_two_hundred_seeds(task, control):
    assert measure(ArmEnv(task, control=control), seeds=range(200)).successes >= 190


@pytest.mark.slow
def test_pick_survives_noise():
    assert measure(ArmEnv("ArmPick-v0"), seeds=range(1000, 1015), noise=0.3).successes >= 14


@pytest.mark.slow
@pytest.mark.parametrize("task", list(TASKS))
def test_standing_still_and_random_motion_do_not_succeed(task):
    env = ArmEnv(task)
    random = np.random.default_rng(0)
    successes = 0
    for seed in range(10):
        env.reset(seed=seed)
        done = False
        while not done:
            action = np.zeros(5) if seed % 2 else random.uniform(-1, 1, 5)
            *_, terminated, truncated, info = env.step(action)
            done = terminated or truncated
        successes += info["success"]
    assert successes <= 1


@pytest.mark.parametrize("task", list(TASKS))
def test_experts_look_at_nothing_that_a_policy_may_not_see(task):
    env = ArmEnv(task)
    observation, _ = env.reset(seed=0)
    visible = {name: observation[name] for name in env.environment_spec.observation.vectors}
    assert np.array_equal(env.scripted_policy(0).act(visible), env.scripted_policy(0).act(observation))


@pytest.mark.parametrize("task", list(TASKS))
def test_saved_expert_continues_identically(task, tmp_path):
    env = ArmEnv(task)
    expert, other = env.scripted_policy(3, noise=0.1), env.scripted_policy(99, noise=0.1)
    observation, _ = env.reset(seed=5)
    done, step = False, 0
    while not done:
        if step in (2, 8, 14):
            save_checkpoint(tmp_path, Checkpoint(step, {"expert": expert.state_dict()}))
            other.load_state_dict(load_checkpoint(tmp_path).parts["expert"])
        action = expert.act(observation)
        if step >= 2:
            assert action.tobytes() == other.act(observation).tobytes(), step
        observation, _, terminated, truncated, _ = env.step(action)
        done, step = terminated or truncated, step + 1
    assert step > 9
