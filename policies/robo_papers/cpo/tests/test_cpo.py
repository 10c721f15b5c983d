"""CPO: its step by brute force, a CMDP in closed form, exact resume, refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from costly import EXACT, SMALL, SPEC, check_it_goes_on_exactly, fill, step_of, trained
from robo_papers.cpo.learner import CPOConfig, TrustRegion, TrustRegionSettings, actor_of, solve, step_within
from robo_rl.errors import InvalidSetting
from robo_rl.settings import updated
from robo_rl.spec.cost import CostSpec

SETTINGS = updated(CPOConfig(), SMALL)


@pytest.mark.slow
def test_cpo_keeps_the_limit_of_a_known_cmdp():
    means, (first, second) = trained(updated(CPOConfig(), EXACT, trust_region={"max_kl": 0.005}))
    assert means["cost"] == pytest.approx(0.6, rel=0.1)
    assert first > 0.9 and second == pytest.approx(0.2, abs=0.15)


def problem(seed, size=5):
    random = np.random.default_rng(seed)
    root = random.normal(size=(size, size))
    return random.normal(size=size), random.normal(size=size), root @ root.T + 0.5 * np.eye(size), random


def best(g, b, h, c, delta):
    """Return the optimum by a general solver."""
    limits = [
        {"type": "ineq", "fun": lambda x: delta - 0.5 * x @ h @ x, "jac": lambda x: -h @ x},
        {"type": "ineq", "fun": lambda x: -(b @ x + c), "jac": lambda _: -b},
    ]
    starts = 0.01 * np.vstack((g, -b, -b * c))
    tries = [minimize(lambda x: -g @ x, start, jac=lambda _: -g, constraints=limits) for start in starts]
    return max((each.x for each in tries if each.success), key=lambda x: g @ x)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("share", [-0.9, -0.5, -0.1, 0.0, 0.1, 0.5, 0.9])
def test_step_is_the_optimum(seed, share):
    g, b, h, _ = problem(seed)
    delta = 0.02
    c = share * np.sqrt(2 * delta * b @ np.linalg.solve(h, b))  # beyond +-1 the plane does not cut the trust region
    to = torch.from_numpy
    found = step_within(to(g), to(b), c, delta, lambda v: torch.linalg.solve(to(h), v)).step.numpy()
    wanted = best(g, b, h, c, delta)
    assert 0.5 * found @ h @ found <= delta * (1 + 1e-6) and b @ found + c <= 1e-6
    assert g @ found == pytest.approx(g @ wanted, rel=1e-4, abs=1e-5)


def test_step_outside_the_plane_only_lowers_the_cost():
    g, b, h, _ = problem(0)
    s = b @ np.linalg.solve(h, b)
    to = torch.from_numpy
    found = step_within(to(g), to(b), 1.5 * np.sqrt(2 * 0.02 * s), 0.02, lambda v: torch.linalg.solve(to(h), v))
    assert found.kind == "recovery"
    np.testing.assert_allclose(found.step, -np.sqrt(2 * 0.02 / s) * np.linalg.solve(h, b))


def test_step_far_inside_is_that_of_a_trust_region():
    g, b, h, _ = problem(1)
    to = torch.from_numpy
    for gradient, violation in ((b, -10.0), (0.0 * b, -0.1), (b, -np.inf)):
        found = step_within(to(g), to(gradient), violation, 0.02, lambda v: torch.linalg.solve(to(h), v))
        up = np.linalg.solve(h, g)
        assert found.kind == "free"
        np.testing.assert_allclose(found.step, np.sqrt(2 * 0.02 / (g @ up)) * up)


def test_conjugate_gradients_solve():
    g, _, h, _ = problem(2)
    found = solve(lambda v: torch.from_numpy(h) @ v, torch.from_numpy(g), 10)
    np.testing.assert_allclose(found, np.linalg.solve(h, g), rtol=1e-6)


def stepped(horizon, cost, *, reward=float, limit=10.0, mean_cost=10.5, **settings):
    """Return CPO after a rollout of episodes of some length with a cost of each step for positive actions."""
    spec = replace(SPEC, costs=(CostSpec("a", limit),))
    plain = {"normalize": {"costs": False}, "discount": 0.0, **settings}
    config = updated(CPOConfig(), plain, num_envs=4, steps_per_env=32, batch_size=128, epochs=1, network={"hidden": (8,)})
    learner = config.build(spec, 0)
    costs_of = learner.constraint.costs
    costs_of.critic.weight.detach().zero_()  # no values, so that advantages are costs
    random = np.random.default_rng(0)
    learner.begin(step_of(random).observations)
    for number in range(32):
        executed = learner.act()[:, 0]
        costs = cost * (1.0 + (executed > 0))[:, None]
        ends = np.full(4, (number + 1) % horizon == 0)
        learner.observe(step_of(random, costs=costs, terminated=ends, rewards=np.array([reward(each) for each in executed])))
    costs_of.per_episode = np.array([mean_cost])
    costs_of.rollout.finished = costs_of.rollout.finished[:0]
    learner.update()
    return learner


def parameters(learner):
    return torch.cat([each.detach().reshape(-1) for each in actor_of(learner.networks)]).numpy()


def test_cpo_step_scales_with_horizon_and_cost():
    short, long, double = stepped(8, 1.0), stepped(16, 0.5), stepped(16, 1.0)
    assert min(learner.constraint.newest["train/step_share"] for learner in (short, long, double)) > 0.0
    np.testing.assert_allclose(parameters(short), parameters(long), rtol=1e-4, atol=1e-6)
    assert not np.allclose(parameters(short), parameters(double), rtol=1e-4, atol=1e-6)  # a cost that did double


def test_cpo_step_is_the_same_in_any_unit_of_the_cost():
    unit, paid = 1e-5, {"reward": lambda executed: 1.0 + (executed > 0)}
    plain, scaled = stepped(8, 1.0, **paid), stepped(8, unit, limit=10.0 * unit, mean_cost=10.5 * unit, **paid)
    assert plain.constraint.newest["train/step_share"] > 0.0
    np.testing.assert_allclose(parameters(scaled), parameters(plain), rtol=1e-3, atol=1e-6)


def test_cpo_respects_the_largest_relative_violation():
    """Cost a is at four times its limit of 0.05, cost b a tenth above its limit of 4."""
    spec = replace(SPEC, costs=(CostSpec("b", 4.0), CostSpec("a", 0.05)))
    learner = updated(CPOConfig(), SMALL, normalize={"costs": False}).build(spec, 0)
    fill(learner)
    region = learner.constraint
    region.costs.per_episode = np.array([0.2, 4.4])
    advantages = torch.stack([torch.full((32,), 1.0), torch.full((32,), -1.0)], 1)
    region.costs.advantages = lambda vectors, buffer: advantages
    region.judge(torch.zeros(32), torch.zeros(0), learner.buffer)
    assert region._violation == pytest.approx(3.0) and bool((region._cost_gains > 0.0).all())


def test_above_the_limit_a_step_may_cost_reward():
    """The reward is the cost, so that a lower cost is a lower reward."""
    learner = stepped(8, 1.0, reward=lambda executed: 1.0 + (executed > 0), mean_cost=10.2)
    metrics = learner.constraint.newest
    assert metrics["train/recovery"] == 0.0 and metrics["train/step_share"] > 0.0


def test_margin_of_standard_errors_tightens_the_constraint():
    region = updated(CPOConfig(), SMALL, standard_errors=2.0).constraint(SPEC, 0)
    assert np.isneginf(region.violations).all(), "no episode has ended"
    region.costs.rollout.finished = np.array([[1.0, 4.0], [3.0, 4.0], [2.0, 4.0], [2.0, 4.0]])
    region.adapt()
    deviation = np.sqrt(2.0 / 3.0)  # of 1, 3, 2, 2
    np.testing.assert_allclose(region.violations, [2.0 + 2.0 * deviation / 2.0 - 2.0, 0.0])
    region.costs.rollout.finished = np.array([[2.0, 4.0]])  # one episode has no deviation
    region.adapt()
    np.testing.assert_allclose(region.violations, [0.0, 0.0])


@pytest.mark.parametrize("length", [0, 5])
def test_saved_and_loaded_gives_the_same_next_update(length, tmp_path):
    check_it_goes_on_exactly(SETTINGS, length, tmp_path)


def test_cpo_settings_out_of_range_are_named():
    with pytest.raises(InvalidSetting, match="shrink"):
        CPOConfig(trust_region=TrustRegionSettings(shrink=1.0))
    assert isinstance(SETTINGS.build(SPEC, 0).constraint, TrustRegion)
