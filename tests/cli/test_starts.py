"""The wrapper teacher_starts: training begins in a teacher's states, evaluation does not, and a run is resumed exactly."""

from __future__ import annotations

import numpy as np
import pytest

import robo_rl
from robo_app.recipes.environments import RecipeEnvironments, environment_of
from robo_app.recipes.recipe import parse_recipe
from robo_datasets.dataset import Dataset
from robo_rl.environments.make import make_environment
from robo_rl.rollout.episode import RandomPolicy, rollout
from robo_rl.spec.environment import specification

NAME = "gymnasium/InvertedPendulum-v5"


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    """Return the folder of a teacher's episodes."""
    environment, path = make_environment(NAME), tmp_path_factory.mktemp("teacher") / "data"
    spec = specification(environment)
    with Dataset.create(path, spec).writer() as writer:
        for seed in range(4):
            writer.add(rollout(environment, RandomPolicy(spec, seed), seed=seed))
    return path


def recipe(teacher, algorithm, **learner):
    starts = {"name": "teacher_starts", "dataset": str(teacher), "every": 1, "share": 1.0}
    return {
        "name": "starts",
        "environment": {"name": NAME, "wrappers": [starts]},
        "algorithm": algorithm,
        "learner": {"network": {"hidden": [8]}, **learner},
        "steps": 64,
        "checkpoint_every": 32,
        "evaluation": {"episodes": 2, "videos": 0},
    }


def test_only_training_begins_where_the_teacher_was(teacher):
    read = parse_recipe(recipe(teacher, "sac"), source="here")
    environments = RecipeEnvironments(read)
    assert "start" in environments().reset(seed=0)[1]
    _, info = environments.make_vector(2).reset(seed=[0, 1])
    assert info["start"]["steps"].all()
    assert "start" not in environment_of(read).reset(seed=0)[1]


def trained(tmp_path, settings, *, stops):
    run = robo_rl.train({**settings, "steps": stops[0]}, out=tmp_path / str(len(stops)))
    for more in stops[1:]:
        run = robo_rl.resume(run.path, steps=more)
    return run


@pytest.mark.slow
def test_training_with_starts_is_resumed_exactly(tmp_path, teacher):
    settings = recipe(teacher, "sac", replay={"learning_starts": 10}, batch_size=8)
    first, second = (trained(tmp_path, settings, stops=stops).load().parts["learner"] for stops in ((64,), (32, 64)))
    for name, values in first["networks"]["actor"].items():
        np.testing.assert_array_equal(np.asarray(values), np.asarray(second["networks"]["actor"][name]))


def test_ppo_goes_on_with_starts_too(tmp_path, teacher):
    settings = recipe(teacher, "ppo", num_envs=2, steps_per_env=16, batch_size=16)
    assert trained(tmp_path, settings, stops=(32, 64)).load().step == 64
