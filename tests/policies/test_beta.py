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
from robo_policies.networks.policy_value import EDGE, Beta, PolicyValueNetwork
from robo_rl.errors import InvalidSetting

FLOAT = np.float32


def outputs_for(alpha: float, beta: float) -> torch.Tensor:
    """Returns the outputs of a network (1, 2) that make this distribution of one element."""
    return torch.tensor([[math.log(math.expm1(alpha - 1)), math.log(math.expm1(beta - 1))]])


def in_torch(outputs: torch.Tensor) -> torch.distributions.Beta:
    alpha, beta = (1 + softplus(part.double()) for part in outputs.chunk(2, 1))
    return torch.distributions.Beta(alpha, beta)


def test_density_and_entropy_equal_torch_scaled_beta():
    random, head = np.random.default_rng(0), Beta(3)
    outputs = torch.from_numpy(random.normal(0, 3, (50, 6)).astype(FLOAT))
    actions = head.draw(outputs, random)
    law = TransformedDistribution(in_torch(outputs), AffineTransform(-1.0, 2.0))  # its Jacobian is ours
    expected = law.log_prob(torch.tensor(head.executed(actions), dtype=torch.float64)).sum(1)
    np.testing.assert_allclose(head.log_density(outputs, torch.from_numpy(actions)), expected, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(
        head.entropy(outputs), in_torch(outputs).entropy().sum(1) + 3 * math.log(2), rtol=1e-5, atol=1e-5
    )


def test_a_distribution_by_hand():
    """Beta(2, 3) has the density 12 u (1 - u)^2 on [0, 1], half of that on [-1, 1], and its top at 1/3."""
    head, outputs = Beta(1), outputs_for(2, 3)
    assert head.log_density(outputs, torch.tensor([[0.5]])).item() == pytest.approx(math.log(0.75), abs=1e-6)
    assert head.executed(head.mode(outputs).numpy()) == pytest.approx(-1 / 3, abs=1e-6)
    flat = torch.full((1, 2), -40.0)  # alpha = beta = 1: every action is as likely
    assert head.entropy(flat).item() == pytest.approx(math.log(2), abs=1e-6)
    assert head.executed(head.mode(flat).numpy()) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("shape", [(1.5, 1.5), (2, 3), (30, 4)])
def test_all_probability_lies_between_the_bounds(shape):
    head, outputs = Beta(1), outputs_for(*shape)
    total, _ = integrate.quad(lambda a: head.log_density(outputs, torch.tensor([[(a + 1) / 2]])).exp().item(), -1, 1)
    assert total == pytest.approx(1.0, abs=1e-4)


def test_draws_have_the_moments_of_the_distribution():
    head, random = Beta(2), np.random.default_rng(0)
    outputs = torch.tensor([[2.0, -1.0, 0.5, 3.0]]).repeat(20_000, 1)
    actions, law = head.draw(outputs, random), in_torch(outputs[:1])
    np.testing.assert_allclose(actions.mean(0), law.mean[0], atol=0.01)
    np.testing.assert_allclose(actions.std(0), law.stddev[0], atol=0.01)


@pytest.mark.parametrize("pair", [(0, 0), (30, -30), (-30, 30), (-1000, -1000), (1e4, 1e4), (1e7, -1000), (-1000, 1e7)])
def test_nothing_is_infinite_at_the_edges(pair):
    head, random = Beta(1), np.random.default_rng(0)
    outputs = torch.tensor([pair], dtype=torch.float32).repeat(1000, 1).requires_grad_()
    drawn = head.draw(outputs.detach(), random)
    drawn[:2, 0] = EDGE, 1 - EDGE
    assert (drawn > 0).all() and (drawn < 1).all() and (np.abs(head.executed(drawn)) <= 1).all()
    assert (np.abs(head.executed(head.mode(outputs.detach()).numpy())) <= 1).all()
    densities, entropies = head.log_density(outputs, torch.from_numpy(drawn)), head.entropy(outputs)
    (by_outputs,) = torch.autograd.grad(densities.sum() + 0.1 * entropies.sum(), outputs)
    for values in (densities, entropies, by_outputs):
        assert values.isfinite().all() and values.dtype == torch.float32


def test_choices_have_no_beta_distribution(discrete_spec):
    with pytest.raises(
        InvalidSetting, match=r"'choice-test' are choices, which have no beta distribution(.|\n)*leave policy out"
    ):
        PPOConfig(network=PolicyValueNetwork(distribution="beta")).build(discrete_spec, 0)


def test_beta_refuses_deviation_of_normal_distribution():
    with pytest.raises(
        InvalidSetting, match=r"'network.initial_log_std' is out of range(.|\n)*0 unless distribution is normal"
    ):
        PPOConfig(network=PolicyValueNetwork(distribution="beta", initial_log_std=-0.5))
