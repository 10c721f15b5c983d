"""The contestants of `robo-rl bench env` that simulate physics alone follow the trajectories that the batch took."""

import contextlib
import subprocess
import sys

import numpy as np
import pytest

from robo_bench.simulation import MjStepAlone, MujocoRollout, record
from robo_rl.environments.make import make_vector_environment


@pytest.mark.parametrize(("name", "steps"), [("gymnasium/HalfCheetah-v5", 5), ("gymnasium/Hopper-v5", 40)])
def test_physics_alone_ends_where_the_batch_ended(name, steps):
    with contextlib.closing(make_vector_environment(name, 3, threads=1)) as vector:
        shape = (steps, *vector.action_space.shape)
        recording = record(vector, np.random.default_rng(0).uniform(-1.0, 1.0, shape).astype(np.float32))
        expected = np.stack([data.qpos for data in vector.datas])
    assert any(recording.begins) == (name == "gymnasium/Hopper-v5"), "an episode begins anew on the way"
    alone, rollout = MjStepAlone(recording, 2), MujocoRollout(recording, 2)
    assert alone.run() == 3 * steps
    np.testing.assert_array_equal(np.stack([data.qpos for data in alone._datas]), expected)
    for _ in range(2):
        rollout.begin()
        assert rollout.run() == 3 * steps
        positions = rollout.states[:, 1 : 1 + recording.model.nq]  # behind the time
        np.testing.assert_allclose(positions, expected, atol=1e-5)  # without a warm start the solver ends a little elsewhere
    rollout.close()


@pytest.mark.slow
def test_rollout_survives_a_common_end_of_all_episodes():
    """The call with no environment at all crashed the process, 1,000 steps into each trial of HalfCheetah."""
    program = """
import contextlib, dataclasses, numpy as np
from robo_rl.environments.make import make_vector_environment
from robo_bench.simulation import MujocoRollout, record
with contextlib.closing(make_vector_environment("gymnasium/HalfCheetah-v5", 2, threads=1)) as vector:
    recording = record(vector, np.zeros((4, *vector.action_space.shape), np.float32))
both = dict(enumerate(recording.first))
rollout = MujocoRollout(dataclasses.replace(recording, begins=[{}, {}, {}, both]), 1)
rollout.run()
positions = rollout.states[:, 1 : 1 + recording.model.nq]
np.testing.assert_array_equal(positions, np.array(recording.first)[:, : recording.model.nq])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
