"""One update of each offline learner beside its equations, with everything different that could be mistaken for another.

Target networks that differ from those they follow, weights, masks and discounts that differ from row to row, two action
elements, rewards that are shifted and scaled: a learner that takes one for the other minimises another loss than expected.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from scipy import stats

from factories import axes, make_spec
from robo_policies.learners.act import ACTConfig, ACTNetwork, EnsemblingPolicy
from robo_policies.learners.awac import AWACConfig
from robo_policies.learners.bc import BCConfig
from robo_policies.learners.cal_ql import CalQLConfig
from robo_policies.learners.cql import CQLConfig
from robo_policies.learners.diffusion_bc import DiffusionBCConfig
from robo_policies.learners.f_dvl import FDVLConfig, total_variation_loss
from robo_policies.learners.flow_bc import FlowActor, FlowBCConfig
from robo_policies.learners.iql import IQLConfig, expectile_loss
from robo_policies.learners.rebrac import ReBRACConfig
from robo_policies.learners.td3_bc import TD3BCConfig
from robo_policies.learners.xql import GumbelLoss, XQLConfig
from robo_policies.networks.encoders import TensorBatch
from robo_rl.errors import InvalidSetting
from robo_rl.settings import updated
from robo_rl.spec.environment import ArraySpec
from robo_rl.types import Batch

ROWS = 6
SPEC = make_spec("plane", ArraySpec("state", (3,)), action=axes("a", "b"))
SMALL = {"network": {"hidden": (8,), "normalization_rows": 0}}
REWARDS = SMALL | {"reward_scale": 3.0}


def batch_of_all_kinds() -> Batch:
    """Returns rows of which no two fields are alike."""
    numbers = np.random.default_rng(0)

    def uniform(low: float, *shape: int) -> np.ndarray:
        return numbers.uniform(low, 1.0, (ROWS, *shape)).astype(np.float32)

    return Batch(
        observations={"state": uniform(-1, 3)},
        actions=uniform(-1, 2),
        rewards=uniform(-1),
        masks=np.array([1, 0, 1, 1, 0, 1], np.float32),
        discounts=uniform(0.5),
        next_observations={"state": uniform(-1, 3)},
        weights=uniform(0.2),
        sources=np.zeros(ROWS, np.int8),
        extras={
            "next_actions": uniform(-1, 2),
            "has_next_action": np.array([1, 1, 0, 1, 0, 0], np.bool_),
            "returns_to_go": np.array([2.0, np.nan, 0.1, -3.0, np.nan, 0.5], np.float32),
            "action_chunks": uniform(-1, 3, 2),
            "chunk_valid": np.tri(3, dtype=np.bool_)[[2, 1, 0, 2, 0, 1]],
        },
    )


def update_of(config):
    """Takes an update; returns name -> loss that was minimised, in their order, the learner before it, and that after it."""
    learner, before = config.build(SPEC, 0), config.build(SPEC, 1)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for network in (part for part in vars(learner).values() if isinstance(part, torch.nn.Module)):
            for parameter in network.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.3)
    before.load_state_dict(learner.state_dict())
    losses = {}

    def noted(name, descend, loss, *rest):
        losses[name] = loss.item()
        descend(loss, *rest)

    for name, network in learner.parts._networks.items():
        if getattr(network, "optimizer", None) is not None:
            network.descend = partial(noted, name, network.descend)
    step_once(learner)
    return losses, before, learner


@torch.enable_grad()
def step_once(learner) -> None:
    learner.update(batch_of_all_kinds())


def tensors(learner) -> TensorBatch:
    return learner.parts.batch(batch_of_all_kinds())


def least(values: torch.Tensor) -> torch.Tensor:
    """Returns the lower of both critics."""
    assert len(values) == 2 and not torch.allclose(*values)
    return torch.minimum(*values)


def weighted(data, values) -> float:
    """Returns the mean over the rows, each by its weight."""
    return (data.weights * values).mean().item()


def squared_residuals(before, data, targets, weigh=torch.square) -> float:
    """Returns the weighted squares, averaged over the rows and summed over the critics."""
    residuals = before.critic(data.observations, data.actions) - targets
    return sum(weighted(data, weigh(residual)) for residual in residuals)


def assert_stepped_down(before, after, loss) -> None:
    """The first moments of the actor's Adam after its first step are a tenth of the gradient."""
    gradients = torch.autograd.grad(loss, list(before.actor.parameters()))
    moments = after.state_dict()["optimizers"]["actor"]["mean"].values()
    gradient, mean = (torch.cat([part.flatten() for part in parts]) for parts in (gradients, moments))
    torch.testing.assert_close(mean, 0.1 * gradient, rtol=1e-4, atol=1e-5)


def huber(residual: torch.Tensor) -> torch.Tensor:
    size = residual.abs()
    return torch.where(size < 20, 0.5 * size**2, 20 * (size - 10))


IMPLICIT = {
    "iql": (updated(IQLConfig(), REWARDS, reward_shift=-1.0, expectile=0.8), lambda d: expectile_loss(d, 0.8), torch.square),
    "xql": (updated(XQLConfig(), REWARDS, reward_shift=-40.0, temperature=2.0), GumbelLoss(2.0, 7.0), huber),
    "f-dvl": (
        updated(FDVLConfig(), REWARDS, reward_shift=-40.0, divergence="total-variation"),
        lambda d: total_variation_loss(d, 0.8),
        huber,
    ),
}


@pytest.mark.parametrize("name", IMPLICIT)
@torch.no_grad()
def test_implicit_learners(name):
    config, value_loss, weigh = IMPLICIT[name]
    config = replace(config, inverse_temperature=2.0, lr=0.1)
    losses, before, after = update_of(config)
    data = tensors(before)
    assert list(losses) == ["value", "actor", "critic"]
    q = least(before.target_critic(data.observations, data.actions))
    assert losses["value"] == pytest.approx(weighted(data, value_loss(q - before.value(data.observations)[0])), rel=1e-4)
    advantages = q - after.value(data.observations)[0]  # with the new V
    density = before.actor.log_density(data.observations, data.actions, torch.Generator())
    expected = -weighted(data, torch.exp(2.0 * advantages).clamp(max=100.0) * density)
    assert losses["actor"] == pytest.approx(expected, rel=1e-4)
    rewards = 3.0 * (data.rewards + config.reward_shift)
    targets = rewards + data.discounts * data.masks * after.value(data.next_observations)[0]
    assert losses["critic"] == pytest.approx(squared_residuals(before, data, targets, weigh), rel=1e-4)


def smoothed(before, data) -> torch.Tensor:
    """Returns the target policy's action with noise of deviation 0.6, at most 0.5."""
    noise = 0.6 * torch.randn((ROWS, 2), generator=before.parts.generator)
    assert (noise.abs() > 0.5).any()
    return (before.target_actor(data.next_observations) + noise.clamp(-0.5, 0.5)).clamp(-1, 1)


NOISY = {"target_noise": 0.6, "largest_noise": 0.5, "actor_every": 1, "lr": 0.1}


@torch.no_grad()
def test_td3_bc():
    losses, before, after = update_of(updated(TD3BCConfig(), SMALL, NOISY, alpha=4.0))
    data = tensors(before)
    targets = data.rewards + data.discounts * data.masks * least(
        before.target_critic(data.next_observations, smoothed(before, data))
    )
    assert losses["critic"] == pytest.approx(squared_residuals(before, data, targets), rel=1e-4)
    with torch.enable_grad():
        actions = before.actor(data.observations)
        q = after.critic(data.observations, actions)[0]  # the first critic, after its step
        cloning = (actions - data.actions).square().sum(1) / 2
        loss = (data.weights * (cloning - 4.0 * q / q.abs().mean().item())).mean()  # no gradient through the scale
        assert losses["actor"] == pytest.approx(loss.item(), rel=1e-4)
        assert_stepped_down(before, after, loss)


@torch.no_grad()
def test_rebrac():
    losses, before, after = update_of(updated(ReBRACConfig(), REWARDS, NOISY, actor_penalty=0.4, critic_penalty=0.7))
    data, batch = tensors(before), batch_of_all_kinds()
    following = smoothed(before, data)
    penalty = (following - torch.from_numpy(batch.extras["next_actions"])).square().sum(1) * torch.from_numpy(
        batch.extras["has_next_action"]
    )
    next_q = least(before.target_critic(data.next_observations, following)) - 0.7 * penalty
    targets = 3.0 * data.rewards + data.discounts * data.masks * next_q
    assert losses["critic"] == pytest.approx(squared_residuals(before, data, targets), rel=1e-4)
    with torch.enable_grad():
        actions = before.actor(data.observations)
        q = least(after.critic(data.observations, actions))
        cloning = (actions - data.actions).square().sum(1)
        loss = (data.weights * (0.4 * cloning - q / q.abs().mean().item())).mean()
        assert losses["actor"] == pytest.approx(loss.item(), rel=1e-4)
        assert_stepped_down(before, after, loss)


@torch.no_grad()
def test_td3_moves_actor_and_targets_at_every_second_update():
    learner = updated(TD3BCConfig(), SMALL, tau=0.25).build(SPEC, 0)
    for name in ("actor", "critic"):
        for parameter in getattr(learner, name).parameters():
            parameter.add_(1.0)
    moving = [learner.actor, learner.target_actor, learner.target_critic]
    start = [[value.clone() for value in network.parameters()] for network in moving]
    step_once(learner)
    torch.testing.assert_close([list(network.parameters()) for network in moving], start, rtol=0, atol=0)
    step_once(learner)
    for target, online, old in ((moving[1], learner.actor, start[1]), (moving[2], learner.critic, start[2])):
        for new, followed, value in zip(target.parameters(), online.parameters(), old, strict=True):
            torch.testing.assert_close(new, 0.75 * value + 0.25 * followed)


@torch.no_grad()
def test_awac():
    losses, before, after = update_of(updated(AWACConfig(), REWARDS, temperature=0.02, lr=0.1))
    data, generator = tensors(before), before.parts.generator
    following = before.actor.draw(data.next_observations, generator)
    targets = 3.0 * data.rewards + data.discounts * data.masks * least(before.target_critic(data.next_observations, following))
    assert losses["critic"] == pytest.approx(squared_residuals(before, data, targets), rel=1e-4)
    own = before.actor.draw(data.observations, generator)
    advantages = least(after.critic(data.observations, data.actions)) - least(after.critic(data.observations, own))
    weights = torch.exp(advantages / 0.02).clamp(max=100.0)
    assert (weights == 100.0).any() and (weights < 100.0).any()
    density = before.actor.log_density(data.observations, data.actions, generator)
    assert losses["actor"] == pytest.approx(-weighted(data, weights * density), rel=1e-4)


CONSERVATIVE = {"alpha": 2.0, "actions_sampled": 5, "initial_temperature": 0.3, "actor_lr": 0.1, "lr": 0.1}


def cql_losses(before, least_values) -> dict[str, torch.Tensor]:
    """Returns the losses of a step, in the order in which they draw."""
    data, generator = tensors(before), before.parts.generator
    own, density = before.actor.sample(data.observations, generator)
    logarithm = before.temperature.log_alpha
    temperature = -logarithm * (density.mean() - 2)  # the target entropy is -2, for two action elements
    stepped = logarithm - 0.1 * torch.sign(-(density.mean() - 2))  # Adam's first step is the sign of the gradient
    following = before.actor.sample(data.next_observations, generator)[0]
    next_q = least(before.target_critic(data.next_observations, following))
    bellman = squared_residuals(before, data, 3.0 * data.rewards + data.discounts * data.masks * next_q)
    before.least_values = lambda data: least_values
    excess = before.soft_maximum(data.observations, data) - before.critic(data.observations, data.actions)
    conservative = 2.0 * (data.weights * excess).mean(1).sum()
    actor = data.weights * (stepped.exp() * density - least(before.critic(data.observations, own)))
    return {"temperature": temperature, "actor": actor.mean(), "critic": bellman + conservative}


@pytest.mark.parametrize(
    ("config", "least_values"),
    [
        (updated(CQLConfig(), REWARDS, CONSERVATIVE), [-math.inf] * ROWS),
        (
            updated(CalQLConfig(), REWARDS, CONSERVATIVE),
            [6.0, -math.inf, 0.3, -9.0, -math.inf, 1.5],
        ),  # scaled as the rewards are
    ],
    ids=["cql", "cal-ql"],
)
def test_cql(config, least_values):
    losses, before, after = update_of(config)
    expected = cql_losses(before, torch.tensor(least_values))
    assert losses == pytest.approx({name: float(loss.detach()) for name, loss in expected.items()}, rel=1e-4)
    assert_stepped_down(before, after, expected["actor"])  # through the critics that the loss was made with


@torch.no_grad()
def test_only_what_the_policy_would_do_is_bounded_below():
    """One uniform action, one of pi(s) and one of pi(s'), all three in s: the bound of Cal-QL lies under the last two only."""
    learner = updated(CalQLConfig(), SMALL, actions_sampled=1).build(SPEC, 0)
    other = updated(CalQLConfig(), SMALL, actions_sampled=1).build(SPEC, 0)
    data = tensors(learner)
    bound = torch.tensor([5.0, -math.inf] * (ROWS // 2))
    learner.least_values = lambda data: bound
    found = learner.soft_maximum(data.observations, data)
    uniform = 2 * torch.rand((ROWS, 2), generator=other.parts.generator) - 1
    exponents = [other.critic(data.observations, uniform) + 2 * math.log(2)]
    for states in (data.observations, data.next_observations):
        actions, density = other.actor.sample(states, other.parts.generator)
        exponents.append(torch.maximum(other.critic(data.observations, actions), bound) - density)
    expected = torch.logsumexp(torch.stack(exponents), 0) - math.log(3)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_bc():
    losses, before, _ = update_of(updated(BCConfig(), SMALL))
    data = tensors(before)
    errors = (before.actor.mode(data.observations) - data.actions).square().sum(1) / 2
    assert losses["actor"] == pytest.approx(weighted(data, errors), rel=1e-5)


def chunk_means(errors) -> torch.Tensor:
    """Returns the mean of errors (B, H) over the valid actions of each chunk."""
    valid = torch.from_numpy(batch_of_all_kinds().extras["chunk_valid"])
    return torch.stack([(row * mask).sum() / mask.sum() for row, mask in zip(errors, valid, strict=True)])


@torch.no_grad()
@pytest.mark.parametrize("times", ["beta", "uniform"])
def test_flow(times):
    losses, before, after = update_of(
        updated(FlowBCConfig(), SMALL, chunk=3, executed=1, tau=0.25, time_distribution=times, lr=0.1)
    )
    data, generator = tensors(before), before.parts.generator
    noise, draws = torch.randn((ROWS, 6), generator=generator), torch.rand(ROWS, generator=generator)
    time = draws if times == "uniform" else torch.from_numpy(0.999 * (1 - stats.beta(1.5, 1).ppf(draws.numpy()))).float()
    clean = torch.from_numpy(batch_of_all_kinds().extras["action_chunks"]).flatten(1)
    noisy = (1 - time[:, None]) * noise + time[:, None] * clean
    errors = (before.velocity(noisy, 1000 * time, data.observations) - (clean - noise)).square().view(ROWS, 3, 2).sum(2) / 2
    assert losses["velocity"] == pytest.approx(weighted(data, chunk_means(errors)), rel=1e-4)
    for new, old, online in zip(*(n.parameters() for n in (after.averaged, before.averaged, after.velocity)), strict=True):
        torch.testing.assert_close(new, 0.75 * old + 0.25 * online)


@torch.no_grad()
def test_flow_integrates_a_known_field_exactly():
    """The velocity towards one chunk, (x* - x) / (1 - t), has straight paths: any number of Euler steps ends at x*."""
    wanted = torch.tensor([0.1, -0.7, 0.3, 0.9])
    for steps in (1, 2, 10):
        actor = FlowActor(lambda x, time, _: (wanted - x) / (1 - time[:, None] / 1000), steps, 2, 2)
        drawn = actor.draw(torch.zeros(5, 3), torch.Generator().manual_seed(0))
        torch.testing.assert_close(drawn, wanted.view(1, 2, 2).expand(5, -1, -1), atol=1e-5, rtol=0)


@torch.no_grad()
def test_act():
    config = updated(
        ACTConfig(), SMALL, chunk=3, network={"token_size": 8, "heads": 2, "latent": 3, "encoder_layers": 1}, kl_weight=7.0
    )
    losses, before, after = update_of(config)
    data, batch, network = tensors(before), batch_of_all_kinds(), before.network
    chunks, valid = (torch.from_numpy(batch.extras[name]) for name in ("action_chunks", "chunk_valid"))
    tokens = network.tokens(before.parts.encoder(data.observations))
    mean, log_variance = network.encode(tokens, chunks, valid)
    spoilt = torch.where(valid[:, :, None], chunks, 5.0)
    torch.testing.assert_close(network.encode(tokens, spoilt, valid), (mean, log_variance))  # padding is not read
    noise = torch.randn((ROWS, 3), generator=before.parts.generator)
    posterior = torch.distributions.Normal(mean, (log_variance / 2).exp())
    divergence = torch.distributions.kl_divergence(posterior, torch.distributions.Normal(0.0, 1.0)).sum(1)
    decoded = network.decode(tokens, posterior.mean + posterior.stddev * noise)
    errors = chunk_means((decoded - chunks).abs().sum(2) / 2)
    assert losses["network"] == pytest.approx(weighted(data, errors + 7.0 * divergence), rel=1e-4)
    assert not torch.equal(
        after.parts.encoder.network.vectors["state"].weight, before.parts.encoder.network.vectors["state"].weight
    )


class Counting:
    """An actor that predicts 0.1, 0.2, 0.3 on its first call, 1.1, 1.2, 1.3 on its second and so on, times 0.1."""

    def __init__(self):
        self.calls = -1

    def mode(self, observations):
        self.calls += 1
        return torch.tensor([[[0.1 * self.calls + 0.01 * step] * 2 for step in (1, 2, 3)]])

    def draw(self, observations, generator):
        return self.mode(observations)


def test_act_averages_overlapping_chunks():
    learner = updated(ACTConfig(), SMALL, chunk=3, network={"token_size": 8, "heads": 2}, ensembling=0.5).build(SPEC, 0)
    policy = EnsemblingPolicy(learner.parts, Counting())
    observation = {"state": np.zeros(3, np.float32)}
    acted = [float(policy.act(observation)[0]) for _ in range(4)]
    w = [1.0, math.exp(-0.5), math.exp(-1.0)]  # the oldest prediction weighs most
    expected = [
        0.01,
        (w[0] * 0.02 + w[1] * 0.11) / sum(w[:2]),
        (w[0] * 0.03 + w[1] * 0.12 + w[2] * 0.21) / sum(w),
        (w[0] * 0.13 + w[1] * 0.22 + w[2] * 0.31) / sum(w),
    ]
    assert acted == pytest.approx(expected, abs=1e-6)
    policy.reset()
    assert float(policy.act(observation)[0]) == pytest.approx(0.41, abs=1e-6)


def test_act_refuses_frozen_convolutions():
    with pytest.raises(InvalidSetting, match="frozen_convolutions"):
        ACTConfig(network=ACTNetwork(convolutions=(4,), frozen_convolutions="weights.safetensors"))


def test_act_executes_chunks_without_averaging():
    learner = updated(ACTConfig(), SMALL, chunk=3, network={"token_size": 8, "heads": 2}, executed=2).build(SPEC, 0)
    policy = EnsemblingPolicy(learner.parts, Counting())
    acted = [float(policy.act({"state": np.zeros(3, np.float32)})[0]) for _ in range(5)]
    assert acted == pytest.approx([0.01, 0.02, 0.11, 0.12, 0.21], abs=1e-6)


@torch.no_grad()
def test_diffusion():
    config = updated(DiffusionBCConfig(), SMALL, chunk=3, executed=1, noise_levels=5, tau=0.25, lr=0.1)
    losses, before, after = update_of(config)
    data, batch, generator = tensors(before), batch_of_all_kinds(), before.parts.generator
    noise = torch.randn((ROWS, 6), generator=generator)
    level = torch.randint(5, (ROWS,), generator=generator)
    share = torch.cumprod(1 - before.schedule.betas, 0)[level][:, None]
    noisy = share.sqrt() * torch.from_numpy(batch.extras["action_chunks"]).flatten(1) + (1 - share).sqrt() * noise
    errors = (before.denoiser(noisy, level, data.observations) - noise).square().view(ROWS, 3, 2).sum(2) / 2
    assert losses["denoiser"] == pytest.approx(weighted(data, chunk_means(errors)), rel=1e-4)
    for new, old, online in zip(*(n.parameters() for n in (after.averaged, before.averaged, after.denoiser)), strict=True):
        torch.testing.assert_close(new, 0.75 * old + 0.25 * online)
    after.averaged.load_state_dict(before.averaged.state_dict())  # only the other network has moved now, which does not act
    drawn = [learner.actor.draw(data.observations, torch.Generator().manual_seed(0)) for learner in (before, after)]
    torch.testing.assert_close(*drawn)


def test_gaussian_actors_drop_units_and_keep_their_mean():
    learner = updated(IQLConfig(), SMALL, {"network": {"hidden": (4000,)}}, actor_dropout=0.4).build(SPEC, 0)
    first, last = learner.actor.layers.linears
    hidden = torch.relu(first(torch.ones(1, 1, 3)))
    seen = []
    last.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0].detach()))
    learner.actor.log_density(torch.ones(1, 3), torch.zeros(1, 2), torch.Generator().manual_seed(0))
    alive = hidden > 0
    kept = seen[0][alive] != 0
    assert stats.binomtest(int(kept.sum()), int(alive.sum()), 0.6).pvalue > 1e-3
    torch.testing.assert_close(seen[0][alive][kept], hidden[alive][kept].detach() / 0.6)
    learner.actor.mode(torch.ones(1, 3))
    torch.testing.assert_close(seen[1], hidden.detach())


@pytest.mark.parametrize(
    ("config", "network", "is_normalised"),
    [
        (updated(IQLConfig(), SMALL), "value", False),
        (updated(XQLConfig(), SMALL), "value", True),
        (updated(FDVLConfig(), SMALL), "value", True),
        (updated(TD3BCConfig(), SMALL), "critic", False),
        (updated(ReBRACConfig(), SMALL), "critic", True),
    ],
)
@torch.no_grad()
def test_layer_norm_stands_where_the_authors_have_it(config, network, is_normalised):
    """What a hidden layer says ten times as loud is the same after LayerNorm."""
    learner = updated(config, network={"engine": "reference"}).build(SPEC, 0)
    data, values = tensors(learner), getattr(learner, network)
    inputs = (data.observations,) if network == "value" else (data.observations, data.actions)
    quiet = values(*inputs)
    for parameter in values.layers.linears[0].parameters():
        parameter.mul_(10.0)
    assert torch.allclose(values(*inputs), quiet, atol=1e-3) == is_normalised


@torch.no_grad()
def test_the_spread_of_a_gaussian_actor_is_limited():
    actor, observations = updated(IQLConfig(), SMALL).build(SPEC, 0).actor, torch.zeros(1, 3)
    for log_std, limited in ((-80.0, -5.0), (1.5, 1.5), (80.0, 2.0)):
        actor.log_std.fill_(log_std)
        at_mean = actor.log_density(observations, actor.mode(observations), torch.Generator())
        assert at_mean.item() == pytest.approx(-2 * limited - math.log(2 * math.pi), rel=1e-4)


@torch.no_grad()
def test_a_deterministic_actor_explores_around_its_action():
    actor, observations = updated(TD3BCConfig(), SMALL, exploration=0.07).build(SPEC, 0).actor, torch.zeros(4000, 3)
    deviations = (actor.draw(observations, torch.Generator().manual_seed(0)) - actor.mode(observations)).numpy()
    assert deviations.std() == pytest.approx(0.07, rel=0.05)
    assert np.abs(deviations.mean(0)).max() < 0.01
