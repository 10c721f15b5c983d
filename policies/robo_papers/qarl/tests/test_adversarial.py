"""Training against an adversary: the curriculum's distribution, opposite rewards, phases, forces on bodies, resumption."""

from __future__ import annotations

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import gamma

from factories import rest_slow
from robo_papers.qarl.curricula import Gamma, GammaCurriculum, LinearCurriculum, effective_samples, expected_return, moved
from robo_papers.qarl.forces import Forces, OpposedEnv
from robo_papers.qarl.learner import TEMPERATURE, QARLConfig
from robo_policies.learners.sac import SACConfig
from robo_rl.conformance.learners import check_policy
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting, SpecMismatch, UnknownName
from robo_rl.runs.checkpoints import Checkpoint, load_checkpoint, packed, save_checkpoint
from robo_rl.settings import updated
from robo_rl.spec.environment import specification
from robo_rl.training.off_policy import online_training

PENDULUM = "gymnasium/InvertedPendulum-v5"
SMALL = {
    "network": {"hidden": (8,)},
    "batch_size": 8,
    "replay": {"learning_starts": 20, "capacity": 1000},
    "phase": 3,
    "adversary": {"phase": 2, "axes": "x"},
}


SHARED = ("network", "batch_size", "replay")
RARL = QARLConfig(curriculum="none")


class Observer:
    """Keeps returns and metrics."""

    def __init__(self):
        self.returns, self.metrics = [], []

    def on_step(self, *_):
        """Keep nothing."""

    def on_episode(self, *_, episode_return, **__):
        """Keep the return."""
        self.returns.append(episode_return)

    def on_metrics(self, step, metrics):
        """Keep the metrics."""
        self.metrics.append(metrics)


def make():
    return make_environment(PENDULUM)


# the distribution of temperatures


@pytest.mark.parametrize(("p", "q"), [((3.0, 2.0), (3.0, 2.0)), ((50.0, 1000.0), (40.0, 900.0)), ((1.5, 4.0), (2.5, 1.0))])
def test_divergence_is_that_of_the_integral(p, q):
    first, second = (gamma(shape, scale=1.0 / rate) for shape, rate in (p, q))
    expected, _ = quad(lambda x: first.pdf(x) * (first.logpdf(x) - second.logpdf(x)), 0.0, first.mean() + 40 * first.std())
    assert Gamma(*p).divergence(Gamma(*q)) == pytest.approx(expected, rel=1e-5, abs=1e-8)
    np.testing.assert_allclose(Gamma(*p).log_density(np.array([0.3, 2.0])), first.logpdf([0.3, 2.0]))


CONFIG = QARLConfig(return_bound=10.0)
START, TARGET = Gamma(50.0, 1000.0), Gamma(1.0, 1000.0)


def sampled(returns, seed=0, count=200):
    alphas = np.random.default_rng(seed).gamma(START.shape, 1.0 / START.rate, count)
    return alphas, returns(alphas)


def test_temperature_falls_within_the_trust_region():
    alphas, returns = sampled(lambda alphas: np.full(len(alphas), 20.0))
    found = moved(START, TARGET, alphas, returns, CONFIG)
    assert found.mean < START.mean and found.divergence(TARGET) < START.divergence(TARGET)
    assert found.divergence(START) <= CONFIG.trust_region + 1e-6
    assert effective_samples(found, START, alphas) >= CONFIG.least_samples


def test_expected_return_stays_above_the_bound():
    alphas, returns = sampled(lambda alphas: 10.0 + 200.0 * (alphas - 0.045))  # falls as the adversary becomes rational
    found = moved(START, TARGET, alphas, returns, CONFIG)
    assert expected_return(found, START, alphas, returns) >= 10.0 - 1e-3
    free = moved(START, TARGET, alphas, returns, replace(CONFIG, return_bound=-1e6))
    assert free.mean < found.mean


def test_below_the_bound_the_return_is_raised():
    alphas, returns = sampled(lambda alphas: 100.0 * alphas)  # about 5
    found = moved(START, TARGET, alphas, returns, CONFIG)
    assert found.mean > START.mean and found.divergence(START) <= CONFIG.trust_region + 1e-6


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("slope", [-150.0, 0.0, 150.0])
def test_each_step_keeps_both_constraints(seed, slope):
    random = np.random.default_rng(100 + seed)
    present = Gamma(float(random.uniform(0.8, 60.0)), float(random.uniform(200.0, 1500.0)))
    alphas = random.gamma(present.shape, 1.0 / present.rate, 30)
    returns = 12.0 + slope * (alphas - alphas.mean()) + random.normal(0.0, 2.0, 30)
    assert returns.mean() >= CONFIG.return_bound
    target = Gamma(present.rate * 0.001, present.rate)
    found = moved(present, target, alphas, returns, CONFIG)
    nodes = gamma(found.shape, scale=1.0 / found.rate).ppf((np.arange(200_000) + 0.5) / 200_000)  # not by the closed form
    divergence = float(np.mean(found.log_density(nodes) - present.log_density(nodes)))
    assert divergence <= CONFIG.trust_region + 1e-2
    weights = gamma.pdf(alphas, found.shape, scale=1 / found.rate) / gamma.pdf(alphas, present.shape, scale=1 / present.rate)
    assert (weights * returns).sum() / weights.sum() >= CONFIG.return_bound - 1e-3
    assert found.divergence(target) < present.divergence(target)


def test_trust_region_is_used_up_above_the_bound():
    alphas, returns = sampled(lambda alphas: np.full(len(alphas), 20.0))
    found = moved(START, TARGET, alphas, returns, replace(CONFIG, least_samples=0.0))
    assert 0.9 * CONFIG.trust_region < found.divergence(START) <= CONFIG.trust_region


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["hold", "raise"])
def test_noisy_returns_below_the_bound_narrow_nothing(rule):
    curriculum = GammaCurriculum(QARLConfig(return_bound=500.0, rollouts=10, below_bound=rule))
    random, start = np.random.default_rng(0), curriculum.present
    for _ in range(200):
        curriculum.finish(curriculum.draw(random), float(random.normal(100.0, 40.0)), 0.0)
    assert curriculum.present.rate == start.rate and (curriculum.present == start) == (rule == "hold")
    for _ in range(300):
        curriculum.finish(curriculum.draw(random), 900.0, 0.0)
    assert curriculum.mean < 0.04 * start.mean


def test_below_a_bound_reached_before_the_distribution_waits():
    config = replace(CONFIG, rollouts=20, below_bound="raise")
    curriculum, random = GammaCurriculum(config), np.random.default_rng(0)

    def block(gain):
        for _ in range(20):
            alpha = curriculum.draw(random)
            curriculum.finish(alpha, gain * alpha, 0.0)
        return curriculum.present

    first = block(20.0)  # a return of about 1
    assert first.mean > START.mean and not curriculum.was_reached
    second = block(2000.0)
    assert second.mean < first.mean and curriculum.was_reached
    assert block(20.0) == second
    again = GammaCurriculum(CONFIG)
    again.load_state_dict(curriculum.state_dict())
    assert again.was_reached and again.state_dict() == curriculum.state_dict()


def test_few_effective_samples_shorten_a_step():
    alphas, returns = sampled(lambda alphas: np.full(len(alphas), 20.0), count=30)
    wide = moved(START, TARGET, alphas, returns, replace(CONFIG, least_samples=0.0, trust_region=50.0))
    careful = moved(START, TARGET, alphas, returns, replace(CONFIG, least_samples=0.5, trust_region=50.0))
    assert effective_samples(wide, START, alphas) < 0.5 <= effective_samples(careful, START, alphas)
    assert careful.mean < START.mean


def test_mean_temperature_falls_from_step_to_step():
    curriculum, random, means = GammaCurriculum(replace(CONFIG, rollouts=20)), np.random.default_rng(0), []
    for _ in range(200):
        means.append(curriculum.finish(curriculum.draw(random), 20.0, 0.0)["adversary/mean_temperature"])
    assert means == sorted(means, reverse=True) and means[-1] < 0.2 * means[0]
    again = GammaCurriculum(CONFIG)
    again.load_state_dict(curriculum.state_dict())
    assert again.state_dict() == curriculum.state_dict()


def test_linear_schedules_end_at_their_strongest():
    force = LinearCurriculum(QARLConfig(curriculum="force", ramp=0.5))
    heat = LinearCurriculum(QARLConfig(curriculum="temperature", ramp=0.5))
    random = np.random.default_rng(0)
    assert (force.force, heat.draw(random)) == (0.0, 0.05)
    for each in (force, heat):
        each.finish(0.0, 0.0, 0.25)
    assert force.force == 0.5 and heat.draw(random) == pytest.approx(0.0255)
    for each in (force, heat):
        each.finish(0.0, 0.0, 0.9)
    assert force.force == 1.0 and heat.draw(random) == pytest.approx(0.001) == force.draw(random)


# forces


def test_force_accelerates_the_body_that_it_pushes():
    environment = make()
    forces = Forces(environment, ["pole"], "x", 10.0)
    environment.reset(seed=0)
    data, model = (environment.get_wrapper_attr(name) for name in ("data", "model"))
    forces.push(np.array([0.5]))
    assert data.xfrc_applied[model.body("pole").id].tolist() == [5.0, 0, 0, 0, 0, 0]
    forces.push(np.array([-7.0]))  # beyond the limit
    assert data.xfrc_applied[:, 0].tolist() == [0.0, 0.0, -10.0]


@pytest.mark.parametrize(
    ("name", "bodies", "axes", "limit", "kind"),
    [
        ("hazards/Point-v0", (), "x", 1.0, InvalidSetting),
        (PENDULUM, ("arm",), "x", 1.0, UnknownName),
        (PENDULUM, (), "", 1.0, InvalidSetting),
        (PENDULUM, (), "xx", 1.0, InvalidSetting),
        (PENDULUM, (), "w", 1.0, InvalidSetting),
        (PENDULUM, (), "x", -1.0, InvalidSetting),
        (PENDULUM, (), "x", float("nan"), InvalidSetting),
    ],
)
def test_unusable_forces_are_one_error(name, bodies, axes, limit, kind):
    with pytest.raises(kind):
        Forces(make_environment(name), bodies, axes, limit)


class Still:
    """Policy that does nothing."""

    def __init__(self, spec):
        self.environment_spec = spec

    def reset(self):
        """Do nothing."""

    def act(self, observation, *, deterministic=False):
        """Return no action."""
        return np.zeros(self.environment_spec.action.size, np.float32)


def test_adversary_earns_the_opposite_and_acts_by_forces():
    environment = make()
    opposed = OpposedEnv(environment, Still(specification(environment)), Forces(environment, ["pole"], "x", 20.0))
    lengths = []
    for force in (0.0, 1.0):
        opposed.reset(seed=1)
        total, steps, is_over = 0.0, 0, False
        while not is_over:
            _, reward, terminated, truncated, info = opposed.step(np.full(1, force, np.float32))
            total, steps, is_over = total + reward, steps + 1, terminated or truncated
        assert total == -(steps - 1) and "success" not in info
        lengths.append(steps)
    assert lengths[1] < lengths[0]
    with pytest.raises(SpecMismatch):
        OpposedEnv(make(), Still(specification(make_environment("hazards/Point-v0"))), Forces(make(), (), "x", 1.0))


# the training


def test_the_adversary_is_paid_the_opposite_of_each_step():
    training, steps, opposed = updated(RARL, SMALL).training(make, steps=60, seed=0), [], []
    for replay, seen in ((training.replay, steps), (training.opposed_replay, opposed)):
        add = replay.add
        replay.add = lambda step, seen=seen, add=add: seen.append(step) or add(step)
    training.run(Observer())
    assert len(steps) == len(opposed) == training.step == 60
    for own, other in zip(steps, opposed, strict=True):
        assert own.reward == -other.reward and own.observation is other.observation
        assert own.action.shape == other.action.shape == (1,) and own.action != other.action


@pytest.mark.slow
def test_one_learns_at_a_time():
    training, seen = updated(RARL, SMALL).training(make, steps=400, seed=0), []
    update, oppose = training.learner.update, training.adversary.update
    training.learner.update = lambda batch: seen.append((training.episodes, "policy")) or update(batch)
    training.adversary.update = lambda batch: seen.append((training.episodes, "adversary")) or oppose(batch)
    training.run(Observer())
    assert {who for _, who in seen} == {"policy", "adversary"}
    assert all((episode % 5 >= 3) == (who == "adversary") for episode, who in seen)


@pytest.mark.slow
def test_without_force_nothing_pushes_and_only_the_policy_learns():
    training = updated(RARL, SMALL, adversary={"force": 0.0}).training(make, steps=150, seed=0)
    before = training.adversary.state_dict()["updates"]
    training.run(Observer())
    assert training.adversary.state_dict()["updates"] == before == 0 and training.learner.parts.updates > 100
    assert not training.environment.get_wrapper_attr("data").xfrc_applied.any()


@pytest.mark.parametrize(
    "config",
    rest_slow([updated(QARLConfig(), SMALL, adversary={"force": 0.0}), updated(RARL, SMALL, adversary={"force": 0.0})]),
    ids=["qarl", "rarl"],
)
def test_without_force_it_is_plain_sac_bit_for_bit(config):
    opposed, plain = config.training(make, steps=150, seed=3), Observer()
    opposed.run(seen := Observer())
    environment, learner = make(), updated(SACConfig(), {name: SMALL[name] for name in SHARED}).build(specification(make()), 3)
    online_training(environment, learner, learner.config.sampling, steps=150, seed=3).run(plain)
    assert seen.returns == plain.returns and len(seen.returns) > 5
    mine, other = packed(opposed.learner.state_dict()), packed(learner.state_dict())
    assert learner.parts.updates > 100 and mine == other


@pytest.mark.slow
def test_policy_is_asked_for_the_temperature_of_the_curriculum():
    config = updated(QARLConfig(), SMALL, rollouts=2, return_bound=1.0)
    training = config.training(make, steps=200, seed=0)
    assert training.policy.temperature == pytest.approx(1.0)
    training.run(Observer())
    relative = training.curriculum.mean / config.first_temperature
    assert relative < 0.9 and training.policy.temperature == pytest.approx(relative)
    restored = config.restored_policy(make, seed=0, state=training.state_dict())
    assert restored.temperature == pytest.approx(relative)
    again = config.training(make, steps=200, seed=0)
    again.load_state_dict(training.state_dict())
    assert again.policy.temperature == pytest.approx(relative)
    ramp = updated(QARLConfig(), SMALL, curriculum="temperature").training(make, steps=200, seed=0)
    ramp.run(Observer())
    assert ramp.policy.temperature == pytest.approx(ramp.curriculum.mean / 0.05)


@pytest.mark.slow
def test_temperature_of_each_row_counts():
    training = updated(QARLConfig(), SMALL, first_temperature=0.5).training(make, steps=150, seed=0)
    training.run(Observer())
    batch = training.opposed_replay.sample(8)
    relative = batch.observations[TEMPERATURE][:, 0]
    np.testing.assert_allclose(batch.extras["alpha"], relative * 0.5, rtol=1e-5)
    assert len({*relative.tolist()}) > 1
    adversary, state = training.adversary, training.adversary.parts.generator.get_state()
    data = adversary.parts.batch(batch)

    def targets(alphas):
        adversary.parts.generator.set_state(state)
        rows = replace(data, extras={"alpha": torch.as_tensor(alphas, dtype=torch.float32)})
        return adversary.critic_target(rows, adversary.objective.entropy_weight(torch.ones(1), rows)).numpy()

    mixed = targets(batch.extras["alpha"])
    for row, alpha in enumerate(batch.extras["alpha"]):
        np.testing.assert_allclose(mixed[row], targets(np.full(8, alpha))[row], rtol=1e-5)
        assert mixed[row] != targets(np.full(8, alpha + 1.0))[row] or batch.masks[row] == 0


@pytest.mark.slow
@pytest.mark.parametrize("config", [updated(RARL, SMALL), updated(QARLConfig(), SMALL, rollouts=2)], ids=["rarl", "qarl"])
def test_policy_conforms_and_is_restored(config, tmp_path):
    training = config.training(make, steps=120, seed=0)
    training.run(Observer())
    spec = specification(make())
    check_policy(training.policy, spec)
    save_checkpoint(tmp_path, Checkpoint(120, training.state_dict()))
    state = load_checkpoint(tmp_path).parts
    restored = config.restored_policy(make, seed=0, state=state)
    observation, _ = make().reset(seed=5)
    np.testing.assert_array_equal(
        restored.act(observation, deterministic=True), training.policy.act(observation, deterministic=True)
    )
    again = config.training(make, steps=200, seed=0)
    again.load_state_dict(state)
    again.run(Observer())
    assert again.step == 200 and again.resumed == "warm" and again.episodes > training.episodes


@pytest.mark.parametrize(
    "settings",
    [
        {"adversary": {"force": -1.0}},
        {"phase": 0},
        {"last_temperature": 1.0},
        {"last_temperature": 0.0},
        {"rollouts": 1},
        {"trust_region": 0.0},
        {"ramp": 0.0},
        {"curriculum": "quantal"},
    ],
)
def test_wrong_settings_are_one_error(settings):
    with pytest.raises(InvalidSetting):
        updated(QARLConfig(), SMALL, settings)


def test_environments_end_where_steps_do():
    class Counted(gymnasium.Wrapper):
        steps = 0

        def step(self, action):
            Counted.steps += 1
            return self.env.step(action)

    updated(RARL, SMALL).training(lambda: Counted(make()), steps=77, seed=0).run(Observer())
    assert Counted.steps == 77


@pytest.mark.slow
def test_an_episode_cut_by_the_last_step_is_not_reported():
    training, seen = (
        updated(RARL, SMALL).training(lambda: make_environment("gymnasium/Pusher-v5"), steps=150, seed=0),
        Observer(),
    )
    training.run(seen)  # episodes of 100 steps
    assert len(seen.returns) == training.episodes == 1
