"""Learners from recorded data: known minima, losses by hand, known values, better than cloning only by their key part."""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.optimize import brentq

from factories import make_spec, rest_slow
from robo_policies.learners.awac import AWACConfig
from robo_policies.learners.bc import BCConfig
from robo_policies.learners.cal_ql import CalQLConfig
from robo_policies.learners.chunks import ResidualNetwork
from robo_policies.learners.cql import CQLConfig
from robo_policies.learners.diffusion_bc import DiffusionBCConfig, Schedule
from robo_policies.learners.f_dvl import FDVLConfig, chi_square_loss, total_variation_loss
from robo_policies.learners.flow_bc import FlowBCConfig
from robo_policies.learners.iql import IQLConfig, cosine, expectile_loss
from robo_policies.learners.offline import OfflineNetwork
from robo_policies.learners.rebrac import ReBRACConfig, ReBRACNetwork
from robo_policies.learners.td3_bc import TD3BCConfig
from robo_policies.learners.xql import GumbelLoss, XQLConfig
from robo_rl.errors import InvalidSetting
from robo_rl.replay.recorded import RecordedReplay
from robo_rl.runs.observer import Cadence, RunRecord
from robo_rl.runs.run import Run
from robo_rl.settings import updated
from robo_rl.spec.environment import ArraySpec
from robo_rl.stopwatch import Stopwatch
from robo_rl.types import Batch, Episode

# Q of the actions of one state, evenly spread over the quantiles of Normal(0, 0.25)
Q = torch.tensor(stats.norm.ppf((np.arange(20_000) + 0.5) / 20_000, scale=0.5), dtype=torch.float64)


def minimum(loss) -> float:
    """Returns the V at which the derivative of the mean loss over Q crosses zero."""

    def slope(v: float) -> float:
        value = torch.tensor(v, dtype=torch.float64, requires_grad=True)
        loss(Q - value).mean().backward()
        return float(value.grad)

    return brentq(slope, -4.0, 4.0, xtol=1e-6)


@pytest.mark.parametrize(("expectile", "expected"), [(0.5, 0.0), (0.7, 0.169), (0.9, 0.431), (0.99, 0.860)])
def test_expectile_loss_has_its_minimum_at_the_expectile(expectile, expected):
    v = minimum(lambda d: expectile_loss(d, expectile))
    assert v == pytest.approx(expected, abs=2e-3)
    assert v == pytest.approx(stats.expectile(Q.numpy(), expectile), abs=1e-4)


@pytest.mark.parametrize("level", [0.6, 0.8, 0.95])
def test_total_variation_loss_has_its_minimum_at_a_quantile(level):
    v = minimum(lambda d: total_variation_loss(d, level))
    assert v == pytest.approx(stats.norm.ppf((2 * level - 1) / level, scale=0.5), abs=1e-3)


@pytest.mark.parametrize("temperature", [2.0, 0.5, 0.2])
def test_gumbel_loss_has_its_minimum_at_the_soft_maximum(temperature):
    v = minimum(GumbelLoss(temperature, 50.0))
    assert v == pytest.approx(temperature * math.log(np.exp(Q.numpy() / temperature).mean()), abs=1e-3)


@pytest.mark.parametrize(
    ("difference", "expected"),
    [(2.0, 0.8 * 3.0 - 0.2 * 2.0), (-1.0, 0.2), (-4.0, 0.8), (-6.0, 0.8 * 3.0 + 0.2 * 6.0)],
)
def test_chi_square_loss_by_hand(difference, expected):
    assert float(chi_square_loss(torch.tensor(difference), 0.8)) == pytest.approx(expected)


@pytest.mark.parametrize("values", [[1e4, -1e4, 0.0], [-1e4, -2e4]], ids=["huge", "all-negative"])
def test_gumbel_loss_stays_finite_where_the_exponent_is_huge(values):
    differences = torch.tensor(values, requires_grad=True)
    loss = GumbelLoss(0.01, 7.0)(differences)
    loss.sum().backward()
    assert torch.isfinite(loss).all()
    assert torch.isfinite(differences.grad).all()


def test_gumbel_loss_by_hand():
    """Exponents 1, 7 (clipped: no gradient) and -1, all relative to the largest."""
    differences = torch.tensor([2.0, 20.0, -2.0], requires_grad=True)
    loss = GumbelLoss(2.0, 7.0)(differences)
    exponents = np.array([1.0, 7.0, -1.0])
    np.testing.assert_allclose(loss.detach(), (np.exp(exponents) - exponents - 1) / math.exp(7), rtol=1e-5)
    loss.sum().backward()
    np.testing.assert_allclose(
        differences.grad, [(math.e - 1) / 2 / math.exp(7), 0, (1 / math.e - 1) / 2 / math.exp(7)], rtol=1e-4
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FDVLConfig(level=0.5), "between 0.5 and 1"),
        (lambda: FDVLConfig(divergence="reverse-KL"), "chi-square or total-variation"),
        (lambda: IQLConfig(expectile=1.0), "between 0 and 1"),
        (lambda: XQLConfig(temperature=0.0), "above 0"),
        (lambda: TD3BCConfig(actor_every=0), "1 or more"),
        (lambda: CQLConfig(actions_sampled=0), "1 or more"),
    ],
)
def test_settings_out_of_range_are_refused(make, message):
    with pytest.raises(InvalidSetting, match=message):
        make()


# ------------------------------------------------------------------------------------------------ losses by hand
STATES = make_spec("three-states", ArraySpec("state", (3,)))


def batch_of(rewards, masks, *, states=None, actions=None, following=None, discount=0.8, **more) -> Batch:
    """Returns a batch of one-hot states; each state leads to the next one unless told."""
    size = len(rewards)
    states = np.arange(size) % 3 if states is None else np.asarray(states)
    following = (states + 1) % 3 if following is None else np.asarray(following)
    if actions is None:
        actions = np.random.default_rng(0).uniform(-1, 1, (size, 1))
    one_hot = np.eye(3, dtype=np.float32)
    return Batch(
        observations={"state": one_hot[states]},
        actions=np.asarray(actions, np.float32),
        rewards=np.asarray(rewards, np.float32),
        masks=np.asarray(masks, np.float32),
        discounts=np.full(size, discount, np.float32),
        next_observations={"state": one_hot[following]},
        weights=np.ones(size, np.float32),
        sources=np.zeros(size, np.int8),
        extras={"next_actions": np.zeros((size, 1), np.float32), "has_next_action": np.ones(size, np.bool_), **more},
    )


def tensors(learner, batch):
    return learner.parts.batch(batch)


def test_advantage_weights_are_limited():
    learner = IQLConfig(network=OfflineNetwork(hidden=(8,), normalization_rows=0)).build(STATES, 0)
    data = tensors(learner, batch_of([0.0, 0.0], [1, 1]))
    densities = learner.actor.log_density(data.observations, data.actions, learner.parts.generator)
    expected = -(densities[0] * math.exp(3.0 * 0.5) + densities[1] * 100.0) / 2
    loss = learner.actor_loss(data.observations, data, torch.tensor([0.5, 50.0]))
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_gaussian_density_is_that_of_the_normal_distribution():
    learner = IQLConfig(network=OfflineNetwork(hidden=(8,), normalization_rows=0)).build(STATES, 0)
    data = tensors(learner, batch_of([0.0] * 3, [1] * 3))
    with torch.no_grad():
        learner.actor.log_std.fill_(-1.0)
        mean = learner.actor.mode(data.observations).numpy()
        density = learner.actor.log_density(data.observations, data.actions, learner.parts.generator)
    expected = stats.norm.logpdf(data.actions.numpy(), mean, math.exp(-1.0)).sum(-1)
    np.testing.assert_allclose(density, expected, rtol=1e-5)


def test_td3_bc_weighs_the_critic_by_its_mean_size():
    learner = TD3BCConfig(network=OfflineNetwork(hidden=(8,), normalization_rows=0), alpha=2.5).build(STATES, 0)
    data = tensors(learner, batch_of([0.0] * 4, [1] * 4))
    with torch.no_grad():
        actions = learner.actor(data.observations)
        q = learner.critic(data.observations, actions)[0].numpy()
    cloning = ((actions - data.actions).numpy() ** 2).mean(1)
    expected = (cloning - 2.5 / np.abs(q).mean() * q).mean()
    assert learner.regulariser.actor_loss(learner, data.observations, data).item() == pytest.approx(expected, rel=1e-5)


def test_rebrac_penalises_only_recorded_next_actions():
    config = ReBRACConfig(network=ReBRACNetwork(hidden=(8,), normalization_rows=0), critic_penalty=0.5, target_noise=0.0)
    learner = config.build(STATES, 0)
    known = {"next_actions": np.full((2, 1), 0.7, np.float32), "has_next_action": np.array([True, False])}
    batch = batch_of([1.0, 1.0], [1, 1], **known)
    data = tensors(learner, batch)
    with torch.no_grad():
        actions = learner.target_actor(data.next_observations)
        q = learner.target_critic(data.next_observations, actions).min(0).values
        target = learner.critic_target(data)
    penalty = ((actions - 0.7) ** 2)[:, 0] * torch.tensor([1.0, 0.0])
    np.testing.assert_allclose(target, 1.0 + 0.8 * (q - 0.5 * penalty), rtol=1e-5)


def test_soft_maximum_estimates_the_integral_of_the_critic():
    """With many actions sampled the estimate is log of the integral of exp Q over [-1, 1], found here on a grid."""
    learner = CQLConfig(network=OfflineNetwork(hidden=(8,), normalization_rows=0), actions_sampled=4000).build(STATES, 0)
    data = tensors(learner, batch_of([0.0] * 2, [1] * 2))
    grid = torch.linspace(-1, 1, 2001)[:, None]
    with torch.no_grad():
        estimate = learner.soft_maximum(data.observations, data)
        for row in range(2):
            q = learner.critic(data.observations[row].expand(len(grid), -1), grid)
            exact = torch.log(torch.trapezoid(torch.exp(q), grid[:, 0], dim=-1))
            np.testing.assert_allclose(estimate[:, row], exact, atol=0.05)


def test_cal_ql_never_pushes_below_what_was_reached():
    """Where the recorded return is above all values, the policy's own actions get no gradient; without a bound they do."""
    config = CalQLConfig(network=OfflineNetwork(hidden=(8,), normalization_rows=0), actions_sampled=3)
    learner, batch = config.build(STATES, 0), batch_of([0.0] * 2, [1] * 2, returns_to_go=np.array([1e3, np.nan], np.float32))
    bound = learner.least_values(learner.parts.batch(batch))
    assert bound.tolist() == [1e3, -math.inf]
    data = tensors(learner, batch)
    reached, unknown = learner.soft_maximum(data.observations, data).mean(0)
    assert reached.item() > 990
    assert unknown.item() < 10


# ------------------------------------------------------------------------------------------------ what they learn
LEARNERS = {
    "iql": IQLConfig(expectile=0.5),
    "xql": XQLConfig(temperature=5.0, value_layer_norm=False),
    "f-dvl": FDVLConfig(divergence="total-variation", level=0.7, value_layer_norm=False),
    "td3-bc": TD3BCConfig(),
    "rebrac": ReBRACConfig(critic_penalty=0.0),
    "awac": AWACConfig(),
    "cql": CQLConfig(alpha=0.0, actions_sampled=1),
}
QUICK = {"network": {"hidden": (32,), "normalization_rows": 0}, "lr": 1e-2, "tau": 0.2, "batch_size": 48}


def true_values(ends: bool) -> np.ndarray:
    """Solves V = r + 0.8 P V for rewards 0.5, -1, 2 along a chain that ends or begins again."""
    to_next = np.roll(np.eye(3), 1, axis=1)
    to_next[2] *= not ends
    return np.linalg.solve(np.eye(3) - 0.8 * to_next, [0.5, -1.0, 2.0])


@pytest.mark.slow
@pytest.mark.parametrize("ends", rest_slow([True, False]))
@pytest.mark.parametrize("name", LEARNERS)
def test_three_states_reach_their_known_values(name, ends):
    """Rewards do not depend on actions, so that every method has to find the same values; and a mask ends the task."""
    learner = updated(LEARNERS[name], QUICK).build(STATES, 0)
    state = np.arange(48) % 3
    batch = batch_of(np.array([0.5, -1.0, 2.0])[state], np.where(ends & (state == 2), 0.0, 1.0))
    for _ in range(320):
        learner.update(batch)
    with torch.no_grad():
        values = learner.critic(torch.eye(3), torch.zeros(3, 1))
    np.testing.assert_allclose(values.numpy(), [true_values(ends)] * 2, atol=0.2)


def one_step(seed: int = 0, size: int = 256) -> Batch:
    """Actions of a clumsy demonstrator around -0.2; the reward is best at 0.5, and every episode has one step."""
    actions = np.clip(np.random.default_rng(seed).normal(-0.2, 0.5, (size, 1)), -1, 1)
    rewards = 4.0 - 8.0 * (actions[:, 0] - 0.5) ** 2
    return batch_of(rewards, np.zeros(size), states=np.zeros(size, int), actions=actions)


BETTER_THAN_CLONING = {
    "iql": (IQLConfig(), {"inverse_temperature": 0.0}),
    "xql": (XQLConfig(temperature=2.0), {"inverse_temperature": 0.0}),
    "f-dvl": (FDVLConfig(), {"inverse_temperature": 0.0}),
    "f-dvl-total-variation": (FDVLConfig(divergence="total-variation"), {"inverse_temperature": 0.0}),
    "td3-bc": (TD3BCConfig(), {"alpha": 0.0}),
    "rebrac": (ReBRACConfig(), {"actor_penalty": 1e6}),
    "awac": (AWACConfig(), {"temperature": 1e6}),
    "cql": (CQLConfig(alpha=0.1, actions_sampled=4, actor_lr=1e-2), {"alpha": 1e4}),
}


def learnt_action(config) -> float:
    learner = config.build(STATES, 0)
    batches = [one_step(seed) for seed in range(10)]
    for update in range(120):
        learner.update(batches[update % 10])
    action = learner.policy.act({"state": np.eye(3, dtype=np.float32)[0]}, deterministic=True)
    return float(action[0])


def test_actor_rate_follows_cosine_then_is_constant():
    assert [cosine(2.0, update, 4) for update in (0, 1, 2, 3)] == pytest.approx(
        [2.0, 1 + math.sqrt(0.5), 1.0, 1 - math.sqrt(0.5)]
    )
    assert [cosine(2.0, update, 4) for update in (4, 5, 900)] == [2.0, 2.0, 2.0]
    assert cosine(2.0, 0, 0) == 2.0


@pytest.mark.parametrize(("updates", "moved"), [(0, 1e-2), (2, 5e-3)])
def test_second_update_is_halved_at_half_cosine(updates, moved):
    """Adam moves a parameter whose gradient stays the same by the learning rate; the last layer's bias is such a one."""
    config = IQLConfig(
        network=OfflineNetwork(hidden=(8,), normalization_rows=0), lr=1e-2, actor_decay_updates=updates, inverse_temperature=0.0
    )
    learner = config.build(STATES, 0)
    batch = batch_of([0.0] * 3, [1] * 3, actions=np.full((3, 1), 50.0))
    positions = []
    for _ in range(3):
        positions.append(float(learner.actor.state_dict()["layers.linears.1.bias"]))
        learner.update(batch)
    assert positions[2] - positions[1] == pytest.approx(moved, rel=0.05)


def test_cloning_repeats_the_mean_action():
    assert learnt_action(BCConfig(network=OfflineNetwork(hidden=(32,)), lr=1e-2)) == pytest.approx(-0.2, abs=0.07)


@pytest.mark.slow
@pytest.mark.parametrize("name", BETTER_THAN_CLONING)
def test_methods_exceed_recorded_actions_by_their_key_part(name):
    config, without = BETTER_THAN_CLONING[name]
    config = updated(config, QUICK)
    assert learnt_action(config) > 0.15
    assert learnt_action(replace(config, **without)) < 0.0


# ------------------------------------------------------------------------------------------------ diffusion
def two_ways(size: int = 256) -> Batch:
    """From one state the demonstrator goes left twice or right twice, never in between; the last chunks are cut short."""
    side = np.where(np.arange(size) % 2 == 0, -0.8, 0.8).astype(np.float32)
    chunks = np.repeat(side[:, None, None], 2, axis=1)
    valid = np.ones((size, 2), np.bool_)
    valid[: size // 4, 1] = False
    chunks[: size // 4, 1] = 0.0  # beyond the end: must not be learnt
    more = {"action_chunks": chunks, "chunk_valid": valid}
    return batch_of(np.zeros(size), np.ones(size), states=np.zeros(size, int), actions=side[:, None], **more)


DRAWN = {"network": {"hidden": (64, 64), "normalization_rows": 0}, "chunk": 2, "executed": 2, "lr": 3e-3, "tau": 0.05}
DRAWING = {
    "diffusion": updated(DiffusionBCConfig(), DRAWN, noise_levels=10),
    "flow": updated(FlowBCConfig(), DRAWN),
    "flow-uniform": updated(FlowBCConfig(), DRAWN, time_distribution="uniform"),
}


@pytest.mark.slow
@pytest.mark.parametrize("config", DRAWING.values(), ids=DRAWING)
def test_drawn_chunks_keep_to_one_of_two_ways(config):
    """Cloning by squared errors goes between them."""
    learner, batch, state = config.build(STATES, 0), two_ways(), {"state": np.eye(3, dtype=np.float32)[0]}
    for _ in range(250):
        learner.update(batch)
    chunks = learner.actor.draw(torch.eye(3)[:1].expand(200, -1), torch.Generator().manual_seed(0))[:, :, 0].numpy()
    near = np.abs(np.abs(chunks) - 0.8) < 0.3
    assert near.all(1).mean() > 0.85
    assert (np.sign(chunks[:, 0]) == np.sign(chunks[:, 1])).mean() > 0.9
    assert 0.25 < (chunks[:, 0] > 0).mean() < 0.75
    cloned = BCConfig(network=OfflineNetwork(hidden=(32,)), lr=1e-2).build(STATES, 0)
    for _ in range(100):
        cloned.update(batch)
    assert abs(float(cloned.policy.act(state)[0])) < 0.2


def test_noise_that_is_known_is_taken_off_exactly():
    """With the true noise predicted at every level, what is drawn is the clean chunk."""
    schedule, generator = Schedule(20), torch.Generator().manual_seed(0)
    clean = torch.rand((50, 3), generator=generator) * 2 - 1
    chunks = torch.randn((50, 3), generator=generator)
    for level in reversed(range(20)):
        left = schedule.left[level]
        noise = (chunks - left.sqrt() * clean) / (1 - left).sqrt()
        chunks = schedule.less_noisy(chunks, noise, level, torch.randn(chunks.shape, generator=generator))
    np.testing.assert_allclose(chunks, clean, atol=1e-4)
    assert schedule.left[-1] < 0.02
    assert schedule.left[0] > 0.95


def test_chunks_are_executed_in_part_and_forgotten_at_a_reset():
    learner = DiffusionBCConfig(
        network=ResidualNetwork(hidden=(8,), normalization_rows=0), chunk=4, executed=2, noise_levels=3
    ).build(STATES, 0)
    state, other = ({"state": np.eye(3, dtype=np.float32)[k]} for k in (0, 1))
    learner.policy.reset()
    first = [learner.policy.act(state, deterministic=True), learner.policy.act(other, deterministic=True)]
    learner.policy.reset()
    again = [learner.policy.act(state, deterministic=True), learner.policy.act(state, deterministic=True)]
    np.testing.assert_array_equal(first, again)  # the second action was decided with the first
    saved = learner.policy.state_dict()
    third = learner.policy.act(other, deterministic=True)
    learner.policy.reset()
    learner.policy.load_state_dict(saved)
    np.testing.assert_array_equal(learner.policy.act(other, deterministic=True), third)


@pytest.mark.parametrize(("executed", "draws"), [(1, 6), (2, 3), (4, 2)])
def test_a_new_chunk_is_drawn_once_so_many_actions_were_executed(executed, draws, monkeypatch):
    config = DiffusionBCConfig(
        network=ResidualNetwork(hidden=(8,), normalization_rows=0), chunk=4, executed=executed, noise_levels=3
    )
    learner, drawn = config.build(STATES, 0), []
    draw = learner.actor.draw
    monkeypatch.setattr(learner.actor, "draw", lambda *arguments: drawn.append(draw(*arguments)) or drawn[-1])
    actions = [learner.policy.act({"state": np.eye(3, dtype=np.float32)[0]}) for _ in range(6)]
    assert len(drawn) == draws
    np.testing.assert_array_equal(actions, np.concatenate([chunk[0, :executed] for chunk in drawn])[:6])


def test_sampled_chunks_repeat_with_their_seed():
    policy = (
        DiffusionBCConfig(network=ResidualNetwork(hidden=(8,), normalization_rows=0), chunk=4, executed=2, noise_levels=3)
        .build(STATES, 0)
        .policy
    )
    state, played = {"state": np.eye(3, dtype=np.float32)[0]}, []
    for seed in (5, 5, 6):
        policy.seed(seed)
        policy.reset()
        played.append(np.stack([policy.act(state) for _ in range(3)]))
    np.testing.assert_array_equal(played[0], played[1])
    assert not np.allclose(played[0], played[2])


def test_an_evaluation_leaves_the_running_chunk_alone(tmp_path):
    """A run looks at its policy in the middle of a training episode, which must go on with its own plan."""
    policy = (
        DiffusionBCConfig(network=ResidualNetwork(hidden=(8,), normalization_rows=0), chunk=4, executed=3, noise_levels=3)
        .build(STATES, 0)
        .policy
    )
    state, other = ({"state": np.eye(3, dtype=np.float32)[k]} for k in (0, 1))

    def look(policy):
        policy.reset()
        policy.act(other)
        return SimpleNamespace(metrics={}, to_json=dict)

    policy.act(state)
    saved = policy.state_dict()
    planned = policy.act(state)
    policy.load_state_dict(saved)
    training = SimpleNamespace(policy=policy, stopwatch=Stopwatch(), state_dict=dict)
    shown = SimpleNamespace(update=lambda *_: None)
    with (
        Run.create(tmp_path, recipe_name="looked-at", seed=0, recipe="{}", spec=STATES) as run,
        closing(RunRecord(run, Cadence(1, 1, 1000), look, shown)) as record,
    ):
        record.on_step(1, training)
        np.testing.assert_array_equal(policy.act(state), planned)


# ------------------------------------------------------------------------------------------------ time limits
def endless(terminated: bool) -> list[Episode]:
    """A task that costs 1 at every step and never ends, recorded in episodes of three steps: cut, or taken for ended."""
    one_hot = np.eye(3, dtype=np.float32)
    episode = Episode(
        observations={"state": one_hot[[0, 1, 2, 0]]},
        actions=np.zeros((3, 1), np.float32),
        policy_actions=np.zeros((3, 1), np.float32),
        rewards=np.full(3, -1.0, np.float32),
        sources=np.zeros(3, np.int8),
        timestamps=np.arange(4.0),
        terminated=terminated,
        truncated=not terminated,
        stop_reason="time_limit",
        success=None,
        seed=0,
        spec_fingerprint=STATES.fingerprint,
    )
    return [episode] * 8


@pytest.mark.parametrize("name", ["iql", "td3-bc"])
@pytest.mark.slow
def test_a_time_limit_is_not_an_end(name):
    """The value is -1 / (1 - 0.8) = -5 where the limit bootstraps; with the mask set there, none is below -2.5."""

    def values(terminated: bool) -> np.ndarray:
        learner = updated(LEARNERS[name], QUICK, discount=0.8).build(STATES, 0)
        replay = RecordedReplay.of(STATES, endless(terminated), 0)
        for _ in range(320):
            learner.update(replay.sample(48, 1, 0.8))
        with torch.no_grad():
            return learner.critic(torch.eye(3), torch.zeros(3, 1)).numpy()

    np.testing.assert_allclose(values(terminated=False), -5.0, atol=0.4)
    assert values(terminated=True).min() > -2.6
