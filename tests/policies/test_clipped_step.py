"""The clipped step by hand: surrogate and its gradient, divergence, Adam beside PyTorch's own."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from robo_policies.learners.clipped_step import ClippedAdam, clipped_surrogate, divergence, probability_ratio


def test_clipped_surrogate_by_hand():
    ratio = torch.tensor([1.1, 1.5, 1.5, 0.5, 0.5], requires_grad=True)
    surrogate = clipped_surrogate(ratio, torch.tensor([2.0, 2, -2, 2, -2]), 0.2, 0.2)
    np.testing.assert_allclose(surrogate.detach(), [2.2, 2.4, -3.0, 1.0, -1.6], rtol=1e-6)
    surrogate.sum().backward()  # a gain beyond the clip is worth nothing more, a loss always counts
    np.testing.assert_allclose(ratio.grad, [2.0, 0.0, -2.0, 2.0, 0.0], rtol=1e-6)


def test_each_side_has_its_own_clip():
    ratio = torch.tensor([1.25, 1.35, 0.85, 0.75])
    found = clipped_surrogate(ratio, torch.tensor([1.0, 1.0, -1.0, -1.0]), 0.2, 0.3)
    np.testing.assert_allclose(found, [1.25, 1.3, -0.85, -0.8], rtol=1e-6)


@pytest.mark.parametrize(("low", "high"), [(0.2, 0.2), (0.1, 0.4)])
def test_surrogate_equals_the_smaller_of_both_terms(low, high):
    """Eq. 7 as it is written, with its gradient."""
    random = np.random.default_rng(0)
    ratio = torch.from_numpy(random.lognormal(0.0, 0.4, 400)).requires_grad_()
    advantages = torch.from_numpy(np.append(random.normal(size=399), 0.0))
    written = torch.minimum(ratio * advantages, ratio.clamp(1.0 - low, 1.0 + high) * advantages)
    found = clipped_surrogate(ratio, advantages, low, high)
    np.testing.assert_allclose(found.detach(), written.detach())
    slopes = [torch.autograd.grad(each.sum(), ratio)[0] for each in (found, written)]
    np.testing.assert_allclose(*slopes)
    assert (slopes[0] == 0).sum() > 40 and (slopes[0] != 0).sum() > 200


def test_ratio_is_finite_however_far_the_policy_is():
    np.testing.assert_allclose(probability_ratio(torch.tensor([-1.0]), torch.tensor([-1.5])), math.exp(0.5), rtol=1e-6)
    assert probability_ratio(torch.tensor([1e4]), torch.zeros(1)).isfinite()


def test_divergence_estimates_that_of_two_normals():
    """KL(N(0, 1) || N(m, 1)) is m^2 / 2, estimated from samples of the first."""
    drawn = torch.from_numpy(np.random.default_rng(0).normal(size=200_000))
    logarithm = 0.3 * drawn - 0.5 * 0.3**2  # of the densities' ratio
    assert float(divergence(logarithm.exp())) == pytest.approx(0.045, rel=0.02)
    assert float(divergence(torch.ones(3))) == 0.0


def test_first_step_of_adam_by_hand():
    """Moments are 0.1 g and 0.001 g^2, and without their bias g and g^2: the step is lr g / (|g| + epsilon)."""
    parameter = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    adam = ClippedAdam([parameter], 0.1, epsilon=1.0)
    adam.descend((parameter * torch.tensor([3.0, -1.0])).sum())
    np.testing.assert_allclose(parameter.detach(), [1.0 - 0.1 * 3 / 4, 2.0 + 0.1 / 2], rtol=1e-6)
    np.testing.assert_allclose(torch.stack(adam.norms), [math.sqrt(10.0)], rtol=1e-6)


@pytest.mark.parametrize("max_norm", [0.5, math.inf])
def test_adam_equals_that_of_torch(max_norm):
    random = np.random.default_rng(0)
    first = [torch.from_numpy(random.normal(size=shape).astype(np.float32)) for shape in ((3, 4), (4,), (1,))]
    ours, theirs = ([torch.nn.Parameter(each.clone()) for each in first] for _ in range(2))
    adam, optimizer = ClippedAdam(ours, 1e-2, max_norm=max_norm), torch.optim.Adam(theirs, lr=1e-2, eps=1e-5)
    for scale in (1e-3, 1.0, 30.0, 0.1):
        targets = [torch.from_numpy(scale * random.normal(size=each.shape).astype(np.float32)) for each in first]
        losses = [sum((each * wanted).sum() for each, wanted in zip(found, targets, strict=True)) for found in (ours, theirs)]
        adam.descend(losses[0])
        optimizer.zero_grad()
        losses[1].backward()
        torch.nn.utils.clip_grad_norm_(theirs, max_norm)
        optimizer.step()
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine.detach(), other.detach(), rtol=2e-6, atol=1e-7)


def test_adam_goes_on_where_it_was_saved():
    parameters = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
    adams = [ClippedAdam([each], 0.1) for each in parameters]
    for _ in range(3):
        adams[0].descend((parameters[0] ** 2).sum())
    state = adams[0].state_dict()
    parameters[1].data.copy_(parameters[0].data)
    adams[1].load_state_dict(state)
    for adam, parameter in zip(adams, parameters, strict=True):
        adam.descend((parameter**2).sum())
    assert torch.equal(*parameters) and float(state["step"]) == 3.0
