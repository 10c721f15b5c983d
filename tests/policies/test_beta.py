"""The Beta distribution of actions: beside PyTorch's, by hand, at its edges, and refused for choices."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import integrate
from torch.distributions import AffineTransform, TransformedDistribution
from torch.nn.functional import softplus

from robo_policies.learners.ppo import PPOConfig
from robo_policies.networks.action_heads import EDGE, Beta
from robo_rl.errors import InvalidSetting

FLOAT = np.float32
NONE = np.zeros(0, FLOAT)


def outputs_for(alpha: float, beta: float) -> np.ndarray:
    """Returns the outputs of a network (1, 2) that make this distribution of one element."""
    return np.array([[math.log(math.expm1(alpha - 1)), math.log(math.expm1(beta - 1))]], FLOAT)


def in_torch(outputs: np.ndarray) -> torch.distributions.Beta:
    alpha, beta = (1 + softplus(torch.tensor(part, dtype=torch.float64)) for part in np.split(outputs, 2, axis=1))
    return torch.distributions.Beta(alpha, beta)


def test_densities_and_entropies_are_those_of_the_scaled_distribution_in_torch():
    random, head = np.random.default_rng(0), Beta(3)
    outputs = random.normal(0, 3, (50, 6)).astype(FLOAT)
    actions = head.draw(outputs, NONE, random)
    law = TransformedDistribution(in_torch(outputs), AffineTransform(-1.0, 2.0))  # its Jacobian is ours
    expected = law.log_prob(torch.tensor(head.executed(actions), dtype=torch.float64)).sum(1)
    np.testing.assert_allclose(head.log_density(outputs, NONE, actions), expected, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(
        head.entropy(outputs, NONE), in_torch(outputs).entropy().sum(1) + 3 * math.log(2), rtol=1e-5, atol=1e-5
    )


def test_a_distribution_by_hand():
    """Beta(2, 3) has the density 12 u (1 - u)^2 on [0, 1], half of that on [-1, 1], and its top at 1/3."""
    head, outputs = Beta(1), outputs_for(2, 3)
    assert head.log_density(outputs, NONE, np.array([[0.5]], FLOAT)) == pytest.approx(math.log(0.75), abs=1e-6)
    assert head.executed(head.mode(outputs)) == pytest.approx(-1 / 3, abs=1e-6)
    flat = np.full((1, 2), -40.0, FLOAT)  # alpha = beta = 1: every action is as likely
    assert head.entropy(flat, NONE) == pytest.approx(math.log(2), abs=1e-6)
    assert head.executed(head.mode(flat)) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("shape", [(1.5, 1.5), (2, 3), (30, 4)])
def test_all_probability_lies_between_the_bounds(shape):
    head, outputs = Beta(1), outputs_for(*shape)
    total, _ = integrate.quad(lambda a: np.exp(head.log_density(outputs, NONE, np.array([[(a + 1) / 2]], FLOAT)))[0], -1, 1)
    assert total == pytest.approx(1.0, abs=1e-4)


def test_draws_have_the_moments_of_the_distribution():
    head, random = Beta(2), np.random.default_rng(0)
    outputs = np.repeat(np.array([[2.0, -1.0, 0.5, 3.0]], FLOAT), 20_000, axis=0)
    actions, law = head.draw(outputs, NONE, random), in_torch(outputs[:1])
    np.testing.assert_allclose(actions.mean(0), law.mean[0], atol=0.01)
    np.testing.assert_allclose(actions.std(0), law.stddev[0], atol=0.01)


@pytest.mark.parametrize("pair", [(0, 0), (30, -30), (-30, 30), (-1000, -1000), (1e4, 1e4), (1e7, -1000), (-1000, 1e7)])
def test_nothing_is_infinite_at_the_edges(pair):
    head, random = Beta(1), np.random.default_rng(0)
    outputs = np.repeat(np.array([pair], FLOAT), 1000, axis=0)
    drawn = head.draw(outputs, NONE, random)
    drawn[:2, 0] = EDGE, 1 - EDGE
    assert (drawn > 0).all() and (drawn < 1).all() and (np.abs(head.executed(drawn)) <= 1).all()
    assert (np.abs(head.executed(head.mode(outputs))) <= 1).all()
    by_outputs, _ = head.backward(outputs, NONE, drawn, np.ones(1000, FLOAT), 0.1)
    for values in (head.log_density(outputs, NONE, drawn), head.entropy(outputs, NONE), by_outputs):
        assert np.isfinite(values).all() and values.dtype == FLOAT


def test_choices_have_no_beta_distribution(discrete_spec):
    with pytest.raises(
        InvalidSetting, match=r"'choice-test' are choices, which no beta distribution draws(.|\n)*leave policy out"
    ):
        PPOConfig(policy="beta").build(discrete_spec, 0)


def test_the_deviation_of_the_normal_distribution_is_not_for_beta():
    with pytest.raises(InvalidSetting, match=r"'initial_log_std' is out of range(.|\n)*0 unless policy is normal"):
        PPOConfig(policy="beta", initial_log_std=-0.5)
