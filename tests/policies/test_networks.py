"""Networks: densities that integrate to one, ensembles that agree, and the bound that LayerNorm gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from robo_policies.learners.learning import ActorPolicy, CheckedAdam, generators
from robo_policies.networks.networks import (
    LARGEST_NORMALIZED,
    SMALLEST_STD,
    ObservationEncoder,
    QEnsemble,
    TanhGaussianActor,
    tanh_gaussian_log_density,
)
from robo_rl.errors import InvalidSetting
from robo_rl.spec import ArraySpec, EnvironmentSpec, ObservationSpec


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (1.5, -1.0), (-0.3, 0.7)])
def test_density_of_tanh_gaussian_integrates_to_one(mean, log_std):
    actions = np.linspace(-1 + 1e-6, 1 - 1e-6, 400_001)
    unbounded = np.arctanh(actions)[:, None]
    noise = (unbounded - mean) / np.exp(log_std)
    density = np.exp(tanh_gaussian_log_density(unbounded, noise, np.full_like(noise, log_std)))
    assert np.trapezoid(density, actions) == pytest.approx(1.0, abs=2e-3)


def test_density_equals_the_textbook_formula_and_stays_finite_far_out():
    noise = np.array([[0.3, -1.2]])
    unbounded, log_std = np.array([[0.4, -0.9]]), np.array([[-0.5, 0.2]])
    density = np.exp(-0.5 * noise**2) / (np.exp(log_std) * np.sqrt(2 * np.pi)) / (1 - np.tanh(unbounded) ** 2)
    expected = np.log(density).sum(-1)
    np.testing.assert_allclose(tanh_gaussian_log_density(unbounded, noise, log_std), expected)
    far = tanh_gaussian_log_density(np.array([[60.0, -60.0]]), noise, log_std)
    assert np.isfinite(far).all()  # the textbook formula gives infinity: tanh(60) rounds to 1


def test_sampled_density_belongs_to_the_sampled_action():
    actor = TanhGaussianActor(3, 2, (8,), seeded())
    observations = torch.randn(5, 3, generator=seeded(1)).numpy()
    actions, log_densities = actor.sample(observations, seeded(2))
    mean, log_std = actor.distribution(observations)
    unbounded = np.arctanh(actions)
    expected = tanh_gaussian_log_density(unbounded, (unbounded - mean) / np.exp(log_std), log_std)
    np.testing.assert_allclose(log_densities, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(actor.draw(torch.from_numpy(observations), seeded(2)), actions, rtol=1e-6)


def test_derivatives_of_sampled_actions_and_densities_equal_those_of_autograd():
    actor = TanhGaussianActor(3, 2, (8,), seeded())
    actor.network.layers[-1].bias[0, 0, 3] = 5.0  # beyond the largest log deviation, where no gradient flows
    observations = torch.randn(5, 3, generator=seeded(1))
    actor.sample(observations.numpy(), seeded(2), keep=True)
    actor.sample(observations.numpy(), seeded(3))  # what is not kept must not disturb
    by_actions, by_log_densities = torch.randn(5, 2, generator=seeded(4)), torch.randn(5, generator=seeded(5))
    actor.backward(by_actions.numpy(), by_log_densities.numpy())

    parameters = [
        array.clone().requires_grad_() for layer in actor.network.layers for array in (layer.weight[0], layer.bias[0])
    ]
    hidden = torch.relu(observations @ parameters[0] + parameters[1])
    mean, log_std = (hidden @ parameters[2] + parameters[3]).chunk(2, -1)
    normal = torch.distributions.Normal(mean, log_std.clamp(-20, 2).exp())
    unbounded = mean + normal.stddev * torch.randn(5, 2, generator=seeded(2))
    actions = torch.tanh(unbounded)
    squash = 2.0 * (np.log(2.0) - unbounded - torch.nn.functional.softplus(-2.0 * unbounded))
    log_densities = (normal.log_prob(unbounded) - squash).sum(-1)
    total = (by_actions * actions).sum() + (by_log_densities * log_densities).sum()
    expected = torch.cat([part.flatten() for part in torch.autograd.grad(total, parameters)])
    torch.testing.assert_close(actor.network.gradient, expected, rtol=1e-3, atol=1e-4)


def test_layer_norm_bounds_q_for_actions_far_outside_the_data():
    """|Q| <= |w| sqrt(H) + |b| whatever the action: a normalised layer of H units has length sqrt(H) at most."""
    observations, direction = np.zeros((1, 3), np.float32), np.float32([[0.6, -0.8]])
    near, far = 1e2, 1e5
    bounded, unbounded = (QEnsemble(5, (32, 32), 2, layer_norm, seeded()) for layer_norm in (True, False))
    last = bounded.network.layers[-1]
    limit = (last.weight.norm(dim=(1, 2)) * 32**0.5 + last.bias.abs().flatten()).numpy()
    assert (np.abs(bounded.values(observations, np.float32(far) * direction)[:, 0]) <= limit).all()
    values = {length: unbounded.values(observations, np.float32(length) * direction) for length in (near, far)}
    growth = values[far] / values[near]
    assert (growth > 100).all()
    assert (np.abs(values[far][:, 0]) > limit).all()


def test_encoder_takes_what_a_policy_may_see_in_the_order_of_the_spec(spec, make_batch):
    encoder, batch = ObservationEncoder(spec), make_batch(spec, 4)
    stacked = encoder(encoder.stack(batch.observations))
    expected = np.concatenate((batch.observations["joint_position"], batch.observations["goal"]), axis=1)
    np.testing.assert_array_equal(stacked.numpy(), expected)
    row = np.zeros(3, np.float32)
    encoder.write({name: value[2] for name, value in batch.observations.items()}, row)
    np.testing.assert_array_equal(row, expected[2])


def test_encoder_flattens_grids_of_integers():
    arrays = (ArraySpec("grid", (2, 2, 3), "uint8", 0, 10), ArraySpec("direction", (4,)))
    encoder = ObservationEncoder(EnvironmentSpec("grid-test", ObservationSpec(arrays), None))
    grid, direction = np.arange(12, dtype=np.uint8).reshape(2, 2, 3), np.ones(4, np.float32)
    stacked = encoder.stack({"grid": grid[None], "direction": direction[None]})
    assert stacked.dtype == torch.float32
    assert stacked.tolist() == [[*range(12), 1, 1, 1, 1]]
    row = np.zeros(16, np.float32)
    encoder.write({"grid": grid, "direction": direction}, row)
    assert row.tolist() == stacked[0].tolist()


def test_statistics_are_those_of_all_rows_until_enough_were_seen(spec):
    data = np.random.default_rng(0).normal(3.0, [0.5, 20.0, 0.0], (90, 3)).astype(np.float32)
    encoder = ObservationEncoder(spec, normalization_rows=60)
    for part in (data[:10], data[10:40], data[40:70], data[70:]):
        encoder.fit(torch.from_numpy(part))
    np.testing.assert_allclose(encoder.mean, data[:70].mean(0), rtol=1e-5)
    np.testing.assert_allclose(encoder.std, np.maximum(data[:70].std(0), SMALLEST_STD), rtol=1e-4)
    assert encoder(torch.full((1, 3), 1e6)).tolist() == [[LARGEST_NORMALIZED] * 3]


def test_without_rows_the_input_is_used_as_it_is(spec):
    encoder = ObservationEncoder(spec)
    encoder.fit(torch.full((5, 3), 7.0))
    assert encoder(torch.full((1, 3), 1e6)).tolist() == [[1e6] * 3]


def test_pictures_alone_are_refused():
    camera = ArraySpec("camera_front", (2, 2, 3), "uint8", 0, 255, role="image")
    with pytest.raises(InvalidSetting, match=r"reads vectors, and 'picture-test' has none(.*\n)*.*allowed: proprioception"):
        ObservationEncoder(EnvironmentSpec("picture-test", ObservationSpec((camera,)), None))


def test_policy_acts_with_the_present_weights(spec, make_batch):
    encoder = ObservationEncoder(spec)
    actor = TanhGaussianActor(encoder.size, 2, (8,), seeded())
    policy = ActorPolicy(spec, encoder, actor, seeded(5))
    batch = make_batch(spec, 2)
    first, second = ({name: value[k] for name, value in batch.observations.items()} for k in range(2))
    chosen = policy.act(first, deterministic=True)
    kept = chosen.copy()
    policy.act(second, deterministic=True)
    np.testing.assert_array_equal(chosen, kept)  # an action is not overwritten by the next
    assert chosen.dtype == np.float32
    np.testing.assert_allclose(chosen, actor.mode(encoder.stack(batch.observations))[0], rtol=1e-6)
    actor.network.layers[-1].bias.add_(1.0)
    assert (policy.act(first, deterministic=True) > chosen).all()
    expected = actor.draw(encoder.stack(batch.observations)[:1], seeded(5))[0]
    np.testing.assert_allclose(policy.act(first), expected, rtol=1e-6)


def test_generators_of_one_seed_differ_from_each_other_and_repeat():
    first, second = (torch.stack([torch.rand(4, generator=g) for g in generators(7, 3)]) for _ in range(2))
    assert torch.equal(first, second)
    assert len(torch.unique(first)) == 12


def test_adam_equals_that_of_torch():
    first, second = ([torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.full((2, 2), -0.5))] for _ in range(2))
    ours, theirs = CheckedAdam("loss", first, 0.01), torch.optim.Adam(second, 0.01, foreach=False)
    for step in range(20):
        ours.minimize(loss_of(first, step), step)
        theirs.zero_grad()
        loss_of(second, step).backward()
        theirs.step()
    for one, other in zip(first, second, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_a_loss_from_before_a_step_can_no_longer_be_minimised():
    """Its graph holds the outputs of the old parameters; the new ones would give neither the old nor the new gradient."""
    inputs, weight = torch.ones(3, requires_grad=True), torch.nn.Parameter(torch.ones(3))
    outdated, own = (weight * inputs).square().sum(), weight.square().sum()
    CheckedAdam("loss", [weight], 0.5).minimize(own, 0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        CheckedAdam("loss", [inputs], 0.5).minimize(outdated, 0)


def loss_of(parameters, step):
    return ((parameters[0] - step) ** 4).sum() * 0.01 + (parameters[1].exp() + parameters[0][:2]).sum()
