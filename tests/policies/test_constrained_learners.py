"""PPO-Lagrangian, CPO and PPO-Saute: equations by hand and by brute force, a CMDP in closed form, exact resume, refusals."""

from __future__ import annotations

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from factories import choices, make_spec
from robo_policies.learners.constrained import CostRollout
from robo_policies.learners.cpo import CPOConfig, TrustRegion, TrustRegionSettings, actor_of, solve, step_within
from robo_policies.learners.multipliers import MultiplierSettings, PIDMultiplier, relative_violation
from robo_policies.learners.ppo_lagrangian import Lagrangian, PPOLagrangianConfig
from robo_policies.learners.ppo_saute import PPOSauteConfig
from robo_rl.errors import InvalidEpisode, InvalidSetting, UnknownName
from robo_rl.rollout.vector import costs_in
from robo_rl.runs.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from robo_rl.settings import updated
from robo_rl.spec.cost import CostSpec
from robo_rl.spec.environment import ArraySpec
from robo_rl.training.on_policy import VectorStep

SMALL = {"num_envs": 4, "steps_per_env": 8, "batch_size": 16, "epochs": 2, "network": {"hidden": (8, 6)}}
STATE = ArraySpec("state", (2,))
BUDGETS = (ArraySpec("budget_a", (1,)), ArraySpec("budget_b", (1,)))
COSTS = (CostSpec("b", 4.0), CostSpec("a", 2.0, "N"))
SPEC = make_spec("costly", STATE, *BUDGETS, costs=COSTS)
CONFIGS = {
    "adam": updated(PPOLagrangianConfig(), SMALL),
    "pid": updated(PPOLagrangianConfig(), SMALL, multiplier={"kind": "pid"}),
    "cpo": updated(CPOConfig(), SMALL),
    "saute": updated(PPOSauteConfig(), SMALL),
}


class Silent:
    """An observer that keeps the newest metrics."""

    def __init__(self):
        self.metrics, self.costs = [], []

    def on_nothing(self, *_, **__):
        """Keep nothing."""

    on_step = on_nothing

    def on_episode(self, *_, costs, **__):
        """Keep the cost."""
        self.costs += [costs["c"]]

    def on_metrics(self, step, metrics):
        """Keep the metrics."""
        self.metrics.append(metrics)


def step_of(random, count=4, costs=None, unit=1.0, **changes):
    """Return a random step of environments with the costs a and b."""
    values = unit * random.random((count, 2)) if costs is None else np.asarray(costs, float)
    observations = {
        name: random.normal(size=(count, *array.shape)).astype(np.float32) for name, array in SPEC.observation.items()
    }
    none = np.zeros(count, np.bool_)
    facts = {"terminated": none, "truncated": none, "final_observations": {}, "rewards": random.normal(size=count)}
    return VectorStep(**({"observations": observations, "costs": values} | facts | changes))


def fill(learner, seed=0, unit=1.0):
    """Fill a rollout with random steps and ends of both kinds."""
    random = np.random.default_rng(seed)
    if learner.buffer.length == 0:
        learner.begin(step_of(random).observations)
    while not learner.is_ready:
        learner.act()
        terminated, truncated = random.random((2, 4)) < 0.15
        cut = int((truncated & ~terminated).sum())
        finals = step_of(random, cut).observations if cut else {}
        learner.observe(step_of(random, unit=unit, terminated=terminated, truncated=truncated, final_observations=finals))


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
        moved.append(parameters(learner))
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


class TwoStates(gymnasium.Env):
    """One decision: state 0 pays 1 and state 1 pays 0.5 for action 1, which costs 1 in both; action 0 pays and costs nothing.

    With the limit 0.6 the best policy takes action 1 always in state 0, with probability 0.2 in state 1; the multiplier is 0.5.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 (Gymnasium's own style)

    def __init__(self):
        self.environment_spec = make_spec("two", STATE, action=choices("no", "yes"), max_steps=1, costs=(CostSpec("c", 0.6),))
        self.observation_space, self.action_space = self.environment_spec.observation.space, self.environment_spec.action.space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = int(self.np_random.integers(2))
        return {"state": np.eye(2, dtype=np.float32)[self.state]}, {}

    def step(self, action):
        taken = float(action)
        reward = taken * (1.0, 0.5)[self.state]
        return {"state": np.eye(2, dtype=np.float32)[self.state]}, reward, True, False, {"costs": {"c": taken}}


def probabilities(policy):
    """Return the probability of action 1 in both states."""
    learner = policy._learner
    outputs = learner.outputs(learner.buffer.observations.scaled(np.eye(2, dtype=np.float32)), {})
    return torch.softmax(outputs, 1)[:, 1].tolist()


EXACT = {
    **{"num_envs": 16, "steps_per_env": 32, "batch_size": 128, "epochs": 4, "network": {"hidden": (8,)}, "lr": 2e-3},
    **{"entropy_coefficient": 0.05, "normalize": {"observations": False, "rewards": False, "costs": False}},
}


def trained(config, steps=60_000):
    """Return mean multiplier and episode cost of the last half, and the mean of probabilities."""
    observer = Silent()
    training = config.training(TwoStates, steps=steps, seed=0)
    training.run(observer)
    late = observer.metrics[len(observer.metrics) // 2 :]
    means = {name: float(np.mean([each[name] for each in late])) for name in late[-1] if name.startswith("train/")}
    means["cost"] = float(np.mean(observer.costs[len(observer.costs) // 2 :]))
    return means, probabilities(training.policy)


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


@pytest.mark.slow
def test_cpo_keeps_the_limit_of_a_known_cmdp():
    means, (first, second) = trained(updated(CPOConfig(), EXACT, trust_region={"max_kl": 0.005}))
    assert means["cost"] == pytest.approx(0.6, rel=0.1)
    assert first > 0.9 and second == pytest.approx(0.2, abs=0.15)


# the step of CPO


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
    learner = updated(CONFIGS["cpo"], normalize={"costs": False}).build(spec, 0)
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


# Saute


def test_saute_replaces_rewards_once_the_budget_is_spent():
    config = updated(CONFIGS["saute"], normalize={"rewards": False}, unsafe_reward=-3.0)
    learner, random = config.build(SPEC, 0), np.random.default_rng(0)
    learner.begin(step_of(random).observations)
    for number in range(8):
        ends = np.array([False, number == 3, False, False])
        learner.act()
        costs = [[0.5, 0], [1, 0], [0, 1], [0, 0]]  # limits 2 and 4
        learner.observe(step_of(random, costs=costs, terminated=ends, rewards=np.ones(4)))
    spent = learner.buffer.rewards < 0
    assert spent[:, 0].tolist() == [False] * 4 + [True] * 4
    assert spent[:, 1].tolist() == [False, False, True, True] * 2  # a new episode has a new budget
    assert spent[:, 2].tolist() == [False] * 4 + [True] * 4
    assert not spent[:, 3].any() and set(np.unique(learner.buffer.rewards)) == {-3.0, 1.0}


def test_saute_needs_a_budget():
    with pytest.raises(InvalidSetting, match=r"shows no budget(.|\n)*wrappers\.constrained\.budgets"):
        CONFIGS["saute"].build(make_spec("blind", STATE, costs=COSTS), 0)


# saving, and settings


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("length", [0, 5])
def test_saved_and_loaded_gives_the_same_next_update(name, length, tmp_path):
    learner = CONFIGS[name].build(SPEC, 3)
    fill(learner)
    learner.update()
    random = np.random.default_rng(5)
    for _ in range(length):
        learner.act()
        learner.observe(step_of(random))
    save_checkpoint(tmp_path / "state", Checkpoint(1, learner.state_dict()))
    other = CONFIGS[name].build(SPEC, 4)
    other.load_state_dict(load_checkpoint(tmp_path / "state").parts)
    fill(learner, 1)
    fill(other, 1)
    assert learner.update() == other.update()
    for first, second in zip(learner.networks.parameters(), other.networks.parameters(), strict=True):
        assert torch.equal(first, second)


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


def test_cpo_settings_out_of_range_are_named():
    with pytest.raises(InvalidSetting, match="shrink"):
        CPOConfig(trust_region=TrustRegionSettings(shrink=1.0))
    assert isinstance(CONFIGS["cpo"].build(SPEC, 0).constraint, TrustRegion)


@pytest.mark.parametrize("unit", [0.001, 1.0, 1000.0])
def test_violations_are_the_same_in_any_unit(unit):
    assert relative_violation(3.0 * unit, 2.0 * unit, 10.0) == pytest.approx(0.5)
    assert relative_violation(0.0, 2.0 * unit, 10.0) == pytest.approx(-1.0)
    assert relative_violation(900.0 * unit, 2.0 * unit, 10.0) == 10.0
    assert relative_violation(0.3, 0.0, 10.0) == pytest.approx(0.3)
