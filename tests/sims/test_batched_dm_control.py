"""Batched suite tasks follow the single environment to the bit; manipulation falls back on single environments."""

import contextlib

import numpy as np
import pytest

from robo_rl.discovery import make_environment, make_vector_environment
from robo_rl.vector import SequentialEnvironments
from robo_rl.vector_conformance import Subject, check_vector_environment, compare
from robo_sims.batched.environment import BatchedEnvironment
from robo_sims.dm_control_tasks import FAMILY


@pytest.mark.parametrize("task", ["cheetah-run", "reacher-hard"])
def test_a_thousand_steps_and_a_reset_equal_the_single_environment(task):
    name = f"dm_control/{task}"
    with (
        contextlib.closing(make_vector_environment(name, 2, threads=2)) as vector,
        contextlib.closing(SequentialEnvironments(lambda: make_environment(name), 2)) as singles,
    ):
        assert isinstance(vector, BatchedEnvironment)
        actions = np.random.default_rng(1).uniform(-1.0, 1.0, (1010, *vector.action_space.shape)).astype(np.float32)
        assert compare(Subject(name), "a thousand steps", vector, singles, actions) == 2


def test_manipulation_is_stepped_one_after_the_other():
    with contextlib.closing(make_vector_environment("dm_control/manipulation-reach_site_features", 2)) as vector:
        assert isinstance(vector, SequentialEnvironments)


@pytest.mark.slow
@pytest.mark.parametrize("task", [name for name in FAMILY.names() if not name.startswith("manipulation")])
def test_every_suite_task_keeps_every_rule(task):
    check_vector_environment(f"dm_control/{task}")
