"""Networks: densities that integrate to one, ensembles that agree, and the bound that LayerNorm gives."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from factories import make_spec
from robo_policies.learners import parts as parts_module
from robo_policies.learners.parts import CheckedAdam, LearnerParts, generators
from robo_policies.learners.sac import SACConfig
from robo_policies.networks.accelerated import gaussian
from robo_policies.networks.accelerated.adam import HAS_KERNEL, fused_adam, plain_adam
from robo_policies.networks.actor_critic import LOG_STD, Critics, NetworkFactory, TanhGaussianActor, squashed_gaussian
from robo_policies.networks.encoders import LARGEST_NORMALIZED, SMALLEST_STD, ObservationEncoder
from robo_policies.networks.settings import Network
from robo_rl.errors import InvalidSetting, NonFiniteUpdate
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec, ObservationSpec

GAUSSIANS = pytest.mark.parametrize(
    "squashed", [squashed_gaussian, gaussian.squashed_gaussian], ids=["reference", "accelerated"]
)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def outputs_of(*halves):
    return torch.tensor(np.concatenate([np.broadcast_to(half, halves[0].shape) for half in halves], 1), dtype=torch.float32)


@GAUSSIANS
@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (1.5, -1.0), (-0.3, 0.7)])
def test_density_of_tanh_gaussian_integrates_to_one(mean, log_std, squashed):
    actions = np.linspace(-1 + 1e-6, 1 - 1e-6, 400_001)
    noise = (np.arctanh(actions)[:, None] - mean) / np.exp(log_std)
    outputs = outputs_of(np.full_like(noise, mean), log_std)
    drawn, density = squashed(outputs, torch.tensor(noise, dtype=torch.float32), LOG_STD)
    np.testing.assert_allclose(drawn[:, 0], actions, atol=1e-5)
    assert np.trapezoid(np.exp(density.numpy()), actions) == pytest.approx(1.0, abs=2e-3)


@GAUSSIANS
def test_density_equals_the_textbook_formula_and_stays_finite(squashed):
    noise, mean, log_std = np.array([[0.3, -1.2]]), np.array([[0.4, -0.9]]), np.array([[-0.5, 0.2]])
    actions, found = squashed(outputs_of(mean, log_std), torch.tensor(noise, dtype=torch.float32), LOG_STD)
    density = np.exp(-0.5 * noise**2) / (np.exp(log_std) * np.sqrt(2 * np.pi)) / (1 - actions.numpy() ** 2)
    np.testing.assert_allclose(found, np.log(density).sum(-1), rtol=1e-5)
    _, far = squashed(outputs_of(np.array([[60.0, -60.0]]), 0.0), torch.zeros(1, 2), LOG_STD)
    assert torch.isfinite(far).all()  # the textbook formula gives infinity: tanh(60) rounds to 1


def test_gaussian_kernel_gradients_equal_autograd():
    outputs, noise = torch.randn(5, 4, generator=seeded(1)), torch.randn(5, 2, generator=seeded(2))
    outputs[0, 2], outputs[1, 3] = 5.0, -30.0  # beyond the limits of the log deviation, from which no gradient flows
    by_actions, by_densities = torch.randn(5, 2, generator=seeded(4)), torch.randn(5, generator=seeded(5))
    found = []
    for function in (squashed_gaussian, gaussian.squashed_gaussian):
        given = outputs.clone().requires_grad_()
        actions, densities = function(given, noise, LOG_STD)
        (gradient,) = torch.autograd.grad((by_actions * actions).sum() + (by_densities * densities).sum(), given)
        found.append((actions.detach(), densities.detach(), gradient))
    assert found[0][2][0, 2] == found[1][2][1, 3] == 0
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_layer_norm_bounds_q_for_actions_far_outside_the_data():
    """|Q| <= |w| sqrt(H) + |b| whatever the action: a normalised layer of H units has length sqrt(H) at most."""
    observations, direction = torch.zeros(1, 3), torch.tensor([[0.6, -0.8]])
    near, far = 1e2, 1e5
    factory = NetworkFactory(Network(hidden=(32, 32)), torch.device("cpu"), seeded())
    bounded, unbounded = (Critics(factory, 5, layer_norm=layer_norm) for layer_norm in (True, False))
    state = bounded.state_dict()
    weight, bias = (state[f"layers.linears.2.{name}"] for name in ("weight", "bias"))
    limit = weight.norm(dim=(1, 2)) * 32**0.5 + bias.abs().flatten()
    assert (bounded(observations, far * direction)[:, 0].abs() <= limit).all()
    values = {length: unbounded(observations, length * direction) for length in (near, far)}
    assert (values[far] / values[near] > 100).all()
    assert (values[far][:, 0].abs() > limit).all()


def test_encoder_reads_visible_fields_in_spec_order(spec, make_batch):
    encoder, batch = ObservationEncoder(spec), make_batch(spec, 4)
    stacked = encoder.stack(batch.observations)
    expected = np.concatenate((batch.observations["joint_position"], batch.observations["goal"]), axis=1)
    np.testing.assert_array_equal(stacked, expected)


def test_encoder_flattens_grids_of_integers():
    arrays = (ArraySpec("grid", (2, 2, 3), "uint8", 0, 10), ArraySpec("direction", (4,)))
    encoder = ObservationEncoder(EnvironmentSpec("grid-test", ObservationSpec(arrays), None))
    grid, direction = np.arange(12, dtype=np.uint8).reshape(2, 2, 3), np.ones(4, np.float32)
    stacked = encoder.stack({"grid": grid[None], "direction": direction[None]})
    assert stacked.dtype == np.float32
    assert stacked.tolist() == [[*range(12), 1, 1, 1, 1]]


def test_statistics_are_those_of_all_rows_until_enough_were_seen(spec):
    data = np.random.default_rng(0).normal(3.0, [0.5, 20.0, 0.0], (90, 3)).astype(np.float32)
    encoder = ObservationEncoder(spec, normalization_rows=60)
    for part in (data[:10], data[10:40], data[40:70], data[70:]):
        encoder.fit(torch.from_numpy(part))
    np.testing.assert_allclose(encoder.mean, data[:70].mean(0), rtol=1e-5)
    np.testing.assert_allclose(encoder.std, np.maximum(data[:70].std(0), SMALLEST_STD), rtol=1e-4)
    cpu = torch.device("cpu")
    assert encoder.tensors(np.full((1, 3), 1e6, np.float32), {}, cpu).tolist() == [[LARGEST_NORMALIZED] * 3]


def test_without_rows_the_input_is_used_as_it_is(spec):
    encoder = ObservationEncoder(spec)
    encoder.fit(torch.full((5, 3), 7.0))
    assert encoder.tensors(np.full((1, 3), 1e6, np.float32), {}, torch.device("cpu")).tolist() == [[1e6] * 3]


def test_pictures_alone_are_refused():
    camera = ArraySpec("camera_front", (2, 2, 3), "uint8", 0, 255, role="image")
    with pytest.raises(InvalidSetting, match=r"reads vectors, and 'picture-test' has none(.*\n)*.*allowed: proprioception"):
        ObservationEncoder(EnvironmentSpec("picture-test", ObservationSpec((camera,)), None))


@torch.no_grad()
def test_policy_acts_with_the_present_weights(spec, make_batch):
    parts = LearnerParts(spec, SACConfig(network=Network(hidden=(8,))), 0)
    actor = parts.add("actor", TanhGaussianActor(parts.networks, parts.encoder.size, 2), 1e-3)
    policy = parts.act_with(actor)
    batch = make_batch(spec, 2)
    first, second = ({name: value[k] for name, value in batch.observations.items()} for k in range(2))
    chosen = policy.act(first, deterministic=True)
    kept = chosen.copy()
    policy.act(second, deterministic=True)
    np.testing.assert_array_equal(chosen, kept)  # an action is not overwritten by the next
    assert chosen.dtype == np.float32
    stacked = torch.from_numpy(parts.encoder.stack(batch.observations))
    np.testing.assert_allclose(chosen, actor.mode(stacked)[0], rtol=1e-6)
    actor.load_state_dict(actor.state_dict() | {"layers.linears.1.bias": torch.ones(1, 1, 4)})
    assert (policy.act(first, deterministic=True) > chosen).all()
    policy.seed(5)
    np.testing.assert_allclose(policy.act(first), actor.draw(stacked[:1], seeded(5))[0], rtol=1e-6)


def test_generators_of_one_seed_differ_and_repeat():
    first, second = (torch.stack([torch.rand(4, generator=g) for g in generators(7, 3)]) for _ in range(2))
    assert torch.equal(first, second)
    assert len(torch.unique(first)) == 12


def test_adam_equals_that_of_torch():
    first, second = ([torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.full((2, 2), -0.5))] for _ in range(2))
    ours, theirs = CheckedAdam("loss", torch.nn.ParameterList(first), 0.01), torch.optim.Adam(second, 0.01, foreach=False)
    for step in range(20):
        ours.minimize(loss_of(first, step))
        theirs.zero_grad()
        loss_of(second, step).backward()
        theirs.step()
    for one, other in zip(first, second, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_adam_without_the_kernel_is_the_same(monkeypatch):
    assert HAS_KERNEL
    first, second = (torch.nn.ParameterList([torch.ones(3), torch.full((2, 2), -0.5)]) for _ in range(2))
    ours, plain = (CheckedAdam("loss", parameters, 0.01) for parameters in (first, second))
    for step in range(20):
        monkeypatch.setattr(parts_module, "adam", fused_adam)
        ours.minimize(loss_of(first, step))
        monkeypatch.setattr(parts_module, "adam", plain_adam)
        plain.minimize(loss_of(second, step))
    for one, other, start in zip(first, second, (1.0, -0.5), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
        assert float((one.detach() - start).abs().min()) > 0.01


@pytest.mark.parametrize("adam", [fused_adam, plain_adam])
def test_a_step_that_is_skipped_on_a_device_changes_nothing(adam):
    """What CheckedAdam does where it fetches no numbers: the first step, a later one, and one of a gradient of NaN."""
    value, moments, step = torch.ones(3), ([torch.zeros(3)], [torch.zeros(3)]), torch.zeros(())
    for wanted, gradient in ((1.0, [1.0, 2.0, 3.0]), (0.0, [1.0, 2.0, 3.0]), (1.0, [torch.nan, torch.inf, 1.0])):
        before = [each.clone() for each in (value, *moments[0], *moments[1])]
        step += 1.0 - wanted
        adam([value], [torch.tensor(gradient)], moments, step, 0.1, torch.tensor(wanted))
        for old, new in zip(before, (value, *moments[0], *moments[1]), strict=True):
            assert torch.equal(old, new) == bool(wanted)


@pytest.mark.parametrize("adam", [fused_adam, plain_adam])
def test_skipped_steps_are_refused_at_the_next_look(adam, monkeypatch):
    monkeypatch.setattr(parts_module, "adam", adam)
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = CheckedAdam("critic loss", torch.nn.ParameterList([weight]), 0.1, lambda: 7)
    optimizer.is_deferred = True
    optimizer.minimize(weight.square().sum())
    optimizer.require_finite()
    before, state = weight.detach().clone(), optimizer.state_dict()
    for _ in range(2):
        optimizer.minimize((weight * torch.nan).sum())
    assert torch.equal(weight, before) and not torch.equal(before, torch.ones(3))
    assert optimizer.state_dict()["step"] == state["step"] == 1.0
    with pytest.raises(NonFiniteUpdate, match=r"Update 7 was refused: the critic loss is not finite(.|\n)*2 steps since"):
        optimizer.require_finite()


def test_copies_of_a_network_have_no_optimiser():
    learner = SACConfig(network=Network(hidden=(8,))).build(make_spec("arm", ArraySpec("state", (3,))), 0)
    assert learner.critic.optimizer is not None and learner.target_critic.optimizer is None
    with pytest.raises(AssertionError, match="LearnerParts"):
        copy.deepcopy(learner.actor).descend(torch.zeros(()))


def test_a_loss_from_before_a_step_can_no_longer_be_minimised():
    """Its graph holds the outputs of the old parameters; the new ones would give neither the old nor the new gradient."""
    inputs, weight = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(3))
    outdated, own = (weight * inputs).square().sum(), weight.square().sum()
    CheckedAdam("loss", torch.nn.ParameterList([weight]), 0.5).minimize(own)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        CheckedAdam("loss", torch.nn.ParameterList([inputs]), 0.5).minimize(outdated)


def loss_of(parameters, step):
    return ((parameters[0] - step) ** 4).sum() * 0.01 + (parameters[1].exp() + parameters[0][:2]).sum()
