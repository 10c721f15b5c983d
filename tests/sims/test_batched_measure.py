"""The contestants of `robo-rl bench env` that simulate physics alone follow the trajectories that the batch took."""

import contextlib

import numpy as np
import pytest

from robo_rl.discovery import make_vector_environment
from robo_sims.batched.measure import MjStepAlone, MujocoRollout, record


@pytest.mark.parametrize(("name", "steps"), [("gymnasium/HalfCheetah-v5", 5), ("gymnasium/Hopper-v5", 40)])
def test_physics_alone_ends_where_the_batch_ended(name, steps):
    with contextlib.closing(make_vector_environment(name, 3, threads=1)) as vector:
        shape = (steps, *vector.action_space.shape)
        recording = record(vector, np.random.default_rng(0).uniform(-1.0, 1.0, shape).astype(np.float32))
        expected = np.stack([data.qpos for data in vector.datas])
    assert any(recording.begins) == (name == "gymnasium/Hopper-v5"), "an episode begins anew on the way"
    alone, rollout = MjStepAlone(recording, 2), MujocoRollout(recording, 2)
    assert alone.time() > 0
    np.testing.assert_array_equal(np.stack([data.qpos for data in alone._datas]), expected)
    for _ in range(2):
        assert rollout.time() > 0
        positions = rollout.states[:, 1 : 1 + recording.model.nq]  # behind the time
        np.testing.assert_allclose(positions, expected, atol=1e-5)  # without a warm start the solver ends a little elsewhere
    rollout.close()
