"""Batched suite tasks follow the single environment to the bit; manipulation falls back on single environments."""

import contextlib
import inspect

import mujoco
import numpy as np
import pytest
from dm_control import suite
from dm_control.rl import control
from dm_control.suite import base

from robo_rl.conformance.vector import Subject, check_vector_environment, compare
from robo_rl.environments.make import make_environment, make_vector_environment
from robo_rl.environments.vector import SequentialEnvironments
from robo_sims.batched.environment import BatchedEnvironment
from robo_sims.dm_control_tasks import FAMILY, DMControlSimulation
from robo_sims.dm_control_tasks.batch import _draws_model
from robo_sims.dm_control_tasks.evaluators import NOT_VECTORIZABLE, PerEnvironmentEvaluator, VectorizedEvaluator

TASKS = [name for name in FAMILY.names() if not name.startswith("manipulation")]


def follow(task, steps, **arguments):
    """Returns the number of episodes that ended while a batch and single environments took the same steps."""
    name = f"dm_control/{task}"
    with (
        contextlib.closing(make_vector_environment(name, 2, threads=2, **arguments)) as vector,
        contextlib.closing(SequentialEnvironments(lambda: make_environment(name, **arguments), 2)) as singles,
    ):
        assert isinstance(vector, BatchedEnvironment)
        assert isinstance(vector.batch._evaluator, PerEnvironmentEvaluator) == (task in NOT_VECTORIZABLE)
        actions = np.random.default_rng(1).uniform(-1.0, 1.0, (steps, *vector.action_space.shape)).astype(np.float32)
        return compare(Subject(name, arguments), f"{steps} steps", vector, singles, actions)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["cheetah-run", "reacher-hard"])
def test_thousand_steps_and_reset_equal_single_environment(task):
    assert follow(task, 1010) == 2


@pytest.mark.slow
@pytest.mark.parametrize("task", ["cheetah-run", "finger-turn_hard"])
def test_a_repeated_action_equals_the_single_environment(task):
    assert follow(task, 510, action_repeat=2) == 2


@pytest.mark.slow
@pytest.mark.parametrize("task", ["humanoid-run", "fish-swim", "quadruped-walk", "swimmer-swimmer6"])
def test_products_and_norms_equal_the_single_environment(task):
    assert follow(task, 60) == 0


@pytest.mark.parametrize(
    "task", ["finger-spin", "finger-turn_easy", "ball_in_cup-catch", "manipulator-bring_peg", "stacker-stack_2"]
)
def test_rewards_that_need_plain_numbers_equal_the_source(task):
    simulation, random = DMControlSimulation(task), np.random.default_rng(0)
    with contextlib.closing(simulation):
        source, judge = simulation.source, VectorizedEvaluator([simulation, simulation])
        data, seen = source.physics.data, set()
        simulation.reset(0)
        start = data.qpos.copy()
        for spread in np.linspace(0.0, 0.5, 300):
            data.qpos[:] = start * random.uniform(-1.0, 1.0) + spread * random.normal(size=start.shape)
            data.qvel[:] = random.normal(size=data.qvel.shape) * 20
            mujoco.mj_forward(source.physics.model.ptr, data.ptr)
            judge.read()
            expected = float(source.task.get_reward(source.physics))
            assert judge.reward().tolist() == [expected, expected]
            seen.add(expected)
    assert len(seen) > 1


@pytest.mark.slow
def test_tasks_that_draw_no_part_of_their_model_share_it():
    for task, draws in (("cheetah-run", False), ("reacher-easy", True), ("point_mass-hard", True)):
        with contextlib.closing(DMControlSimulation(task)) as one, contextlib.closing(DMControlSimulation(task)) as other:
            assert _draws_model([one, other]) is draws


def test_no_task_ends_early_or_treats_controls_in_its_own_way():
    modules = [module for name, module in suite._DOMAINS.items() if name != "lqr"]
    tasks = [
        kind for module in modules for kind in vars(module).values() if inspect.isclass(kind) and issubclass(kind, base.Task)
    ]
    assert len(tasks) > 20
    for task in tasks:
        assert task.get_termination is control.Task.get_termination
        assert task.before_step is base.Task.before_step
        assert task.after_step is base.Task.after_step


def test_a_warning_that_is_no_divergence_is_an_error():
    with contextlib.closing(make_vector_environment("dm_control/pendulum-swingup", 2)) as vector:
        vector.reset(seed=0)
        vector.batch._members[1].advance = lambda: vector.datas[1].warning.number.__setitem__(
            mujoco.mjtWarning.mjWARN_CONTACTFULL, 1
        )
        with pytest.raises(control.PhysicsError, match=r"warned of mjWARN_CONTACTFULL in environments \[1\]"):
            vector.step(np.zeros((2, 1), np.float32))


@pytest.mark.slow
def test_manipulation_is_stepped_one_after_the_other():
    with contextlib.closing(make_vector_environment("dm_control/manipulation-reach_site_features", 2)) as vector:
        assert isinstance(vector, SequentialEnvironments)


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_every_suite_task_keeps_every_rule(task):
    check_vector_environment(f"dm_control/{task}")


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_thousand_steps_of_every_task_equal_single(task):
    assert follow(task, 1010) >= 0
