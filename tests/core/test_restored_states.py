"""States of recorded episodes are restored by their seeds and actions, and one that is not there is an error."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from robo_rl.environments.make import make_environment
from robo_rl.environments.restored_states import require_teacher, restored
from robo_rl.errors import SimulationFailed, SpecMismatch
from robo_rl.extras import returns_to_go
from robo_rl.rollout.episode import RandomPolicy, rollout
from robo_rl.spec.environment import specification

NAME = "gymnasium/Hopper-v5"


@pytest.fixture(scope="module")
def episodes():
    """Return five episodes of random actions."""
    environment = make_environment(NAME)
    spec = specification(environment)
    return [rollout(environment, RandomPolicy(spec, seed), seed=seed) for seed in range(5)]


@pytest.mark.parametrize("steps", [1, 5])
def test_restored_state_goes_on_bit_for_bit(episodes, steps):
    environment = make_environment(NAME)
    for episode in episodes:
        observation, _ = restored(environment, episode, steps)
        for step in range(steps, len(episode)):
            for name, values in episode.observations.items():
                np.testing.assert_array_equal(observation[name], values[step])
            observation, reward, terminated, *_ = environment.step(episode.actions[step])
            assert np.float32(reward) == episode.rewards[step]
        assert terminated


def test_changed_simulation_is_an_error(episodes):
    wrong = replace(episodes[0], actions=-episodes[0].actions)
    with pytest.raises(SimulationFailed, match="record the teacher again"):
        restored(make_environment(NAME), wrong, 3)


def test_episodes_of_other_environments_are_refused():
    with pytest.raises(SpecMismatch, match="another environment"):
        require_teacher(make_environment("gymnasium/HalfCheetah-v5"), specification(make_environment(NAME)))


def test_returns_to_go_by_hand():
    np.testing.assert_allclose(returns_to_go(np.array([1.0, 2.0, 4.0]), 0.5), [3.0, 4.0, 4.0])
