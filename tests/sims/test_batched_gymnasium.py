"""Batched MuJoCo tasks of Gymnasium follow the single environment to the bit, however many there are."""

import contextlib

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from factories import rest_slow
from robo_rl.conformance.vector import Subject, compare
from robo_rl.environments.make import make_environment, make_vector_environment
from robo_rl.environments.vector import SequentialEnvironments
from robo_sims.gymnasium_mujoco import FAMILY

NEVER_ENDING = {"gymnasium/HalfCheetah-v5", "gymnasium/Swimmer-v5", "gymnasium/HumanoidStandup-v5"}


@pytest.mark.slow
@pytest.mark.parametrize("task", rest_slow(FAMILY.names(), fast=3))
def test_thousand_steps_and_resets_equal_single_environment(task):
    name, steps = f"gymnasium/{task}", 1010
    mode = AutoresetMode.NEXT_STEP
    with (
        contextlib.closing(make_vector_environment(name, 2, threads=2, autoreset_mode=mode)) as vector,
        contextlib.closing(SequentialEnvironments(lambda: make_environment(name), 2, autoreset_mode=mode)) as singles,
    ):
        actions = np.random.default_rng(1).uniform(-1.2, 1.2, (steps, *vector.action_space.shape)).astype(np.float32)
        ended = compare(Subject(name), "a thousand steps", vector, singles, actions)
    assert ended >= (2 if name in NEVER_ENDING else 5)


@pytest.mark.parametrize("num_envs", [1, 5, 16])
@pytest.mark.parametrize("task", ["Humanoid-v5", "InvertedDoublePendulum-v5"])
def test_sums_over_rows_do_not_depend_on_the_number_of_rows(task, num_envs):
    name = f"gymnasium/{task}"
    with (
        contextlib.closing(make_vector_environment(name, num_envs)) as vector,
        contextlib.closing(SequentialEnvironments(lambda: make_environment(name), num_envs)) as singles,
    ):
        actions = np.random.default_rng(1).uniform(-1.0, 1.0, (25, *vector.action_space.shape)).astype(np.float32)
        compare(Subject(name), "any number", vector, singles, actions)
