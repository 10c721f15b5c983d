"""Generalised advantage estimation by hand, and beside the sum that defines it."""

from __future__ import annotations

import numpy as np
import pytest

from robo_rl.training.advantages import episode_advantages, generalized_advantages

HALVES = {"discount": 0.5, "gae_lambda": 0.5}
RULE = {"discount": 0.9, "gae_lambda": 0.8}


@pytest.mark.parametrize("final_value", [0.0, 8.0])
def test_an_end_has_the_value_that_is_given_for_it(final_value):
    """Four steps, the second of which ends an episode: by the task, whose value is 0, or by the clock."""
    rewards, values = np.ones(4, np.float32), np.array([1, 2, 7, 4, 5], np.float32)
    ended, finals = np.array([False, True, False, False]), np.array([9, final_value, 9, 9], np.float32)
    last, second = 1 + 0.5 * 5 - 4, 1 + 0.5 * final_value - 2
    expected = [1 + 0.5 * 2 - 1 + 0.25 * second, second, 1 + 0.5 * 4 - 7 + 0.25 * last, last]
    found = generalized_advantages(rewards, values, **HALVES, ended=ended, final_values=finals)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert found.dtype == np.float32


def test_a_sum_ends_before_a_step_without_a_reward():
    rewards, values = np.ones(3), np.array([1.0, 2.0, 7.0, 4.0])
    never = np.zeros(3, np.bool_)
    valid = np.array([True, False, True])
    found = generalized_advantages(rewards, values, **HALVES, ended=never, final_values=np.zeros(3), valid=valid)
    np.testing.assert_allclose(found, [1 + 0.5 * 2 - 1, 0.0, 1 + 0.5 * 4 - 7])


def test_recursion_equals_the_sum_that_defines_it():
    """Eq. 16 as a double sum, for several environments and costs of each."""
    random, shape = np.random.default_rng(0), (24, 3, 2)
    rewards, values = random.normal(size=shape), random.normal(size=(25, 3, 2))
    ended = random.random((24, 3, 1)) < 0.15
    finals = random.normal(size=shape)
    expected = np.zeros(shape)
    for row in np.ndindex(3, 2):
        for start in range(24):
            for step in range(start, 24):
                is_end = ended[step, row[0], 0]
                following = finals[(step, *row)] if is_end else values[(step + 1, *row)]
                residual = rewards[(step, *row)] + 0.9 * following - values[(step, *row)]
                expected[(start, *row)] += 0.72 ** (step - start) * residual
                if is_end:
                    break
    np.testing.assert_allclose(generalized_advantages(rewards, values, **RULE, ended=ended, final_values=finals), expected)


def test_an_episode_that_was_cut_keeps_the_value_beyond():
    rewards, values = np.array([0.0, 1.0]), np.array([0.5, 0.2, 7.0])
    first, second = 0.9 * 0.2 - 0.5, 1.0 - 0.2
    np.testing.assert_allclose(episode_advantages(rewards, values, **RULE, terminated=True), [first + 0.72 * second, second])
    cut = 1.0 + 0.9 * 7.0 - 0.2  # a time limit is no end
    np.testing.assert_allclose(episode_advantages(rewards, values, **RULE, terminated=False), [first + 0.72 * cut, cut])
    assert values[-1] == 7.0 and episode_advantages(np.zeros(0), np.ones(1), **RULE, terminated=False).size == 0
