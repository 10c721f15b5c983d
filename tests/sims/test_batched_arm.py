"""Batched arm tasks follow the single environment to the bit, through contacts, successes and failures."""

import contextlib

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from factories import rest_slow
from robo_rl.conformance.vector import Subject, require_same
from robo_rl.environments.make import make_environment, make_vector_environment
from robo_rl.environments.vector import SequentialEnvironments
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.spec.environment import ArraySpec
from robo_sims.arm.batch import build
from robo_sims.arm.environment import ArmEnv
from robo_sims.arm.tasks import TASKS
from robo_sims.arm.tasks.reach import Reach
from robo_sims.batched.environment import BatchedEnvironment

CASES = [
    ("ArmReach-v0", {"reward": "dense"}, 1000),
    ("ArmPush-v0", {"reward": "dense"}, 1000),
    ("ArmPick-v0", {"reward": "dense"}, 1000),
    ("ArmPick-v0", {"control": "joint_position"}, 500),
    ("ArmPick-v0", {"action_repeat": 4, "reward": "dense"}, 200),
    ("ArmReach-v0", {"action_repeat": 3, "control": "joint_position"}, 150),
    ("ArmPegInsert-v0", {"reward": "dense"}, 1000),
    ("ArmPegInsert-v0", {"action_repeat": 2}, 200),
    ("ArmPegInsert-v0", {"action_repeat": 3, "control": "end_effector_delta_closed"}, 150),
]


class Experts:
    """One noisy expert for each environment, which begins anew with each episode."""

    def __init__(self, singles):
        self.policies = [single.scripted_policy(index, noise=0.005) for index, single in enumerate(singles.envs)]

    def act(self, observation, over):
        actions = []
        for index, policy in enumerate(self.policies):
            if over[index]:
                policy.reset()
            actions.append(policy.act({name: value[index] for name, value in observation.items()}))
        return np.stack(actions)


@pytest.mark.slow
@pytest.mark.parametrize(("task", "arguments", "steps"), rest_slow(CASES, fast=3))
def test_experts_episodes_equal_the_single_environment(task, arguments, steps):
    subject, mode = Subject(f"robo/{task}", arguments), AutoresetMode.SAME_STEP
    with (
        contextlib.closing(make_vector_environment(subject.name, 2, threads=2, autoreset_mode=mode, **arguments)) as vector,
        contextlib.closing(
            SequentialEnvironments(lambda: make_environment(subject.name, **arguments), 2, autoreset_mode=mode)
        ) as singles,
    ):
        experts, over, reasons = Experts(singles), np.zeros(2, bool), set()
        result, expected = vector.reset(seed=11), singles.reset(seed=11)
        for _ in range(steps // 2):
            action = experts.act(expected[0], over)
            result, expected = vector.step(action), singles.step(action)
            require_same(subject, "experts", "on the way", result, expected)
            over = expected[2] | expected[3]
            reasons |= set(result[4].get("final_info", {}).get("stop_reason", ())) - {None}
    assert "goal" in reasons


class Hover(Reach):
    """A task that nothing but this class knows of."""

    held_steps = 2
    observation = (ArraySpec("height", (1,), unit="m", frame="base"),)

    def observe(self):
        return {"height": self.arm.gripper_position[..., 2:]}

    def holds(self):
        return self.arm.gripper_position[..., 2] > 0.25

    def progress(self):
        return {"rise": self.arm.gripper_position[..., 2] / 0.25}


def test_arm_task_of_one_class_is_batched(monkeypatch):
    monkeypatch.setitem(TASKS, "ArmHover-v0", Hover)
    subject, mode = Subject("robo/ArmHover-v0", {}), AutoresetMode.SAME_STEP
    with (
        contextlib.closing(build("ArmHover-v0", 3, reward="dense", autoreset_mode=mode)) as vector,
        contextlib.closing(
            SequentialEnvironments(lambda: ArmEnv("ArmHover-v0", reward="dense"), 3, autoreset_mode=mode)
        ) as singles,
    ):
        require_same(subject, "rising", "reset", vector.reset(seed=0), singles.reset(seed=0))
        action, successes = np.tile(np.array([0, 0, 1, 0, 0], np.float32), (3, 1)), 0
        for _ in range(30):
            result, expected = vector.step(action), singles.step(action)
            require_same(subject, "rising", "on the way", result, expected)
            successes += int(expected[2].sum())
    assert successes > 3


def test_make_vec_builds_the_batch():
    vector = gymnasium.make_vec("robo/ArmPick-v0", num_envs=4, vectorization_mode="vector_entry_point", reward="dense")
    with contextlib.closing(vector):
        assert isinstance(vector.unwrapped, BatchedEnvironment)
        assert vector.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
        observation, infos = vector.reset(seed=0)
        assert observation["object_position"].shape == (4, 3)
        assert infos["success"].tolist() == [False] * 4
        infos = vector.step(np.zeros((4, 5), np.float32))[4]
        assert set(infos["reward_terms"]) == {"success", "reach", "grasp", "lift"} | {"_success", "_reach", "_grasp", "_lift"}


def test_settings_are_the_single_environments():
    with pytest.raises(UnknownName, match="Unknown argument of robo/ArmReach-v0 'action_repeats'"):
        make_vector_environment("robo/ArmReach-v0", 2, action_repeats=2)
    with pytest.raises(UnknownName, match="Unknown control mode 'joint_velocity'"):
        make_vector_environment("robo/ArmReach-v0", 2, control="joint_velocity")
    with pytest.raises(InvalidSetting, match="action_repeat is out of range"):
        make_vector_environment("robo/ArmReach-v0", 2, action_repeat=0)
