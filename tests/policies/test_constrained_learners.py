"""PPO-Lagrangian: equations by hand, a CMDP in closed form, exact resume, refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from costly import COSTS, EXACT, SMALL, SPEC, check_it_goes_on_exactly, fill, step_of, trained
from robo_policies.learners.constrained import CostRollout
from robo_policies.learners.multipliers import MultiplierSettings, PIDMultiplier, relative_violation
from robo_policies.learners.ppo_lagrangian import Lagrangian, PPOLagrangianConfig
from robo_rl.errors import InvalidEpisode, InvalidSetting, UnknownName
from robo_rl.rollout.vector import costs_in
from robo_rl.settings import updated
from robo_rl.spec.cost import CostSpec

CONFIGS = {
    "adam": updated(PPOLagrangianConfig(), SMALL),
    "pid": updated(PPOLagrangianConfig(), SMALL, multiplier={"kind": "pid"}),
}


# costs of a rollout


def test_costs_of_ended_episodes_are_those_of_their_last_step():
    infos = {
        "costs": {"a": np.array([1.0, 0.0]), "_a": np.array([True, False])},
        "final_info": {"costs": {"a": np.array([0.0, 5.0]), "_a": np.array([False, True])}},
    }
    assert costs_in(infos, ["a"], 2).tolist() == [[1.0], [5.0]]
    plain = {"cost": np.array([1.0, 2.0]), "_cost": np.array([True, True])}
    assert costs_in(plain, ["cost"], 2).tolist() == [[1.0], [2.0]]


@pytest.mark.parametrize(
    ("infos", "kind", "said"),
    [
        ({}, InvalidSetting, "needs constraint costs"),
        ({"costs": {"b": np.ones(1), "_b": np.ones(1, bool)}}, InvalidSetting, "not all"),
        ({"costs": {"a": np.ones(1), "_a": np.zeros(1, bool)}}, InvalidSetting, "not all"),
        ({"costs": {"a": np.array([np.nan]), "_a": np.ones(1, bool)}}, InvalidEpisode, "none"),
        ({"costs": {"a": np.array([-1.0]), "_a": np.ones(1, bool)}}, InvalidEpisode, "none"),
    ],
)
def test_costs_that_are_missing_or_none_are_refused(infos, kind, said):
    with pytest.raises(kind, match=said):
        costs_in(infos, ["a"], 1)


def test_cost_advantages_by_hand():
    config = replace(CONFIGS["adam"], num_envs=1, steps_per_env=3, batch_size=3, discount=0.5, cost_gae_lambda=0.5)
    rollout = CostRollout(updated(config, normalize={"costs": False}), 2)
    rollout.costs[:, 0] = [[1, 0], [2, 0], [3, 0]]
    rollout.final_values[:, 0] = [[0, 0], [8, 0], [0, 0]]
    values = np.array([[[1, 0]], [[2, 0]], [[7, 0]], [[4, 0]]], np.float32)
    third, second = 3 + 0.5 * 4 - 7, 2 + 0.5 * 8 - 2
    first = 1 + 0.5 * 2 - 1 + 0.25 * second
    advantages = rollout.advantages(values, np.array([[False], [True], [False]]))
    np.testing.assert_allclose(advantages[:, 0, 0], [first, second, third], rtol=1e-6)
    assert not advantages[..., 1].any()


def test_episode_costs_are_undiscounted_sums_of_ended_episodes():
    learner, random = CONFIGS["adam"].build(SPEC, 0), np.random.default_rng(0)
    learner.begin(step_of(random).observations)
    for number in range(8):
        ends = np.array([number == 4, False, number == 7, False])
        learner.act()
        learner.observe(step_of(random, costs=[[1, 0], [2, 0], [3, 1], [4, 0]], terminated=ends))
    costs = learner.constraint.costs
    assert costs.rollout.finished.tolist() == [[5.0, 0.0], [24.0, 8.0]]
    metrics = learner.update()
    assert costs.per_episode.tolist() == [14.5, 4.0]
    assert (metrics["train/cost_rate_a"], metrics["train/cost_rate_b"]) == (2.5, 0.25)
    assert costs.rollout.finished.shape == (0, 2)


# multipliers


@pytest.mark.parametrize("kind", ["adam", "pid"])
def test_an_update_is_the_same_in_any_unit_of_the_cost(kind):
    moved = []
    for unit in (1.0, 1e-3, 1e-6):
        spec = replace(SPEC, costs=(CostSpec("b", 4.0 * unit), CostSpec("a", 2.0 * unit)))
        learner = updated(CONFIGS[kind], multiplier={"initial": 0.5}).build(spec, 0)
        for rollout in range(2):
            fill(learner, rollout, unit)
            learner.update()
        moved.append(torch.cat([each.detach().reshape(-1) for each in learner.networks.parameters()]).numpy())
    np.testing.assert_allclose(moved[1:], [moved[0]] * 2, rtol=1e-3, atol=1e-5)


def test_lagrangian_weighs_advantages():
    constraint = CONFIGS["adam"].constraint(SPEC, 0)
    for multiplier, value in zip(constraint.multipliers, (0.5, 1.0), strict=True):
        multiplier.load_state_dict(multiplier.state_dict() | {"value": value})
    weighed = constraint.weighed(torch.tensor([1.0, 2.0]), torch.tensor([[2.0, 0.0], [0.0, 3.0]]))
    np.testing.assert_allclose(weighed, [0.0, -0.4], atol=1e-6)


def test_multiplier_grows_only_beyond_the_limit():
    constraint = CONFIGS["adam"].constraint(SPEC, 0)
    constraint.costs.per_episode = np.array([3.0, 1.0])  # limits 2 and 4
    for _ in range(5):
        constraint.ascend()
    first, second = (multiplier.value for multiplier in constraint.multipliers)
    assert first == pytest.approx(5 * 0.035, rel=1e-3) and second == 0.0


def overshoot(**gains):
    """Return how far below the limit 1 a cost falls that follows the multiplier slowly."""
    multiplier = PIDMultiplier(MultiplierSettings(kind="pid", smoothing=0.0, delay=1, **gains))
    cost, seen = 3.0, []
    for _ in range(400):
        multiplier.update(cost - 1.0)
        cost += 0.05 * (3.0 - 2.0 * multiplier.value - cost)
        seen.append(cost)
    assert abs(seen[-1] - 1.0) < 0.05
    return 1.0 - min(seen)


def test_pid_overshoots_less_than_the_integral_alone():
    assert 0.0 <= overshoot(kp=0.5, ki=0.05, kd=0.0) < 0.5 * overshoot(kp=0.0, ki=0.05, kd=0.0)


@pytest.mark.slow
def test_pid_lagrangian_finds_mix_and_multiplier_of_a_known_cmdp():
    means, (first, second) = trained(
        updated(PPOLagrangianConfig(), EXACT, multiplier={"kind": "pid", "initial": 0.3, "kp": 0.15, "ki": 0.03, "kd": 0.15})
    )
    assert means["cost"] == pytest.approx(0.6, rel=0.05)
    assert means["train/multiplier_c"] == pytest.approx(0.5, rel=0.1)
    assert first > 0.9 and second == pytest.approx(0.2, abs=0.15)


@pytest.mark.slow
def test_adam_lagrangian_keeps_the_limit_of_a_known_cmdp():
    means, (first, second) = trained(updated(PPOLagrangianConfig(), EXACT, multiplier={"lr": 0.01, "initial": 0.3}))
    assert 0.4 < means["cost"] < 0.7  # it swings around the limit
    assert first > 0.9 and second < 0.9


@pytest.mark.slow
def test_frozen_multiplier_violates_a_known_cmdp():
    means, _ = trained(updated(PPOLagrangianConfig(), EXACT, multiplier={"lr": 0.0}), 20_000)
    assert means["cost"] > 0.9


@pytest.mark.slow
def test_flipped_cost_violates_a_known_cmdp(monkeypatch):
    plain = Lagrangian.weighed
    monkeypatch.setattr(Lagrangian, "weighed", lambda self, gains, costs: plain(self, gains, -costs))
    means, _ = trained(updated(PPOLagrangianConfig(), EXACT, multiplier={"lr": 0.01, "initial": 0.3}), 20_000)
    assert means["cost"] > 0.9


# saving, and settings


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("length", [0, 5])
def test_saved_and_loaded_gives_the_same_next_update(name, length, tmp_path):
    check_it_goes_on_exactly(CONFIGS[name], length, tmp_path)


@pytest.mark.parametrize(
    ("changes", "costs", "kind", "said"),
    [
        ({}, (), InvalidSetting, "declares no constraint cost"),
        ({"limits": {"c": 1}}, COSTS, UnknownName, "cost of costly"),
        ({"limits": {"a": "1 m"}}, COSTS, InvalidSetting, "another unit"),
        ({"limits": {"a": "1 per step"}}, COSTS, InvalidSetting, "per step"),
    ],
)
def test_limits_that_are_none_are_refused(changes, costs, kind, said):
    config = updated(CONFIGS["adam"], changes)
    with pytest.raises(kind, match=said):
        config.build(replace(SPEC, costs=costs), 0)


def test_limits_of_the_learner_replace_those_of_the_environment():
    costs = replace(CONFIGS["adam"], limits={"a": "7 N per episode"}).constraint(SPEC, 0).costs
    assert costs.limits == {"a": 7.0, "b": 4.0} and costs.bounds.tolist() == [7.0, 4.0]
    plain = replace(CONFIGS["adam"], limits={"cost": 25}).constraint(replace(SPEC, costs=()), 0).costs
    assert plain.limits == {"cost": 25.0} and plain.names == ("cost",)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"cost_lr": 0.0}, "cost_lr"),
        ({"cost_gae_lambda": 2.0}, "cost_gae_lambda"),
        ({"network": {"convolutions": (4,)}}, "convolutions"),
    ],
)
def test_settings_out_of_range_are_named(settings, said):
    with pytest.raises(InvalidSetting, match=said):
        updated(CONFIGS["adam"], settings)


@pytest.mark.parametrize("unit", [0.001, 1.0, 1000.0])
def test_violations_are_the_same_in_any_unit(unit):
    assert relative_violation(3.0 * unit, 2.0 * unit, 10.0) == pytest.approx(0.5)
    assert relative_violation(0.0, 2.0 * unit, 10.0) == pytest.approx(-1.0)
    assert relative_violation(900.0 * unit, 2.0 * unit, 10.0) == 10.0
    assert relative_violation(0.3, 0.0, 10.0) == pytest.approx(0.3)
