"""A prior policy: its density, the environment that brings it, and SAC between it and the reward."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import torch
from scipy import integrate, stats

import robo_rl
from robo_bench.trainings import Silent
from robo_papers.sac_prior.environment import PRIOR_ACTION, PriorEnv, log_prior
from robo_papers.sac_prior.learner import SACPriorConfig
from robo_policies.networks.settings import Network
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting
from robo_rl.protocols.sampling import Replay
from robo_rl.rollout.episode import RandomPolicy, rollout
from robo_rl.spec.environment import ActionSpec, ArraySpec, EnvironmentSpec, ObservationSpec, specification
from robo_rl.training.off_policy import online_training

REACH = "robo/ArmReach-v0"
SMALL = {"network": {"hidden": [8]}, "batch_size": 16, "replay": {"learning_starts": 20}}


def test_density_is_a_cut_normal():
    actions, means = np.array([[0.2, -0.9], [1.0, 0.0]]), np.array([[0.5, -1.0], [0.9, 0.1]])
    cut = stats.truncnorm((-1 - means) / 0.3, (1 - means) / 0.3, loc=means, scale=0.3)
    found = log_prior(torch.tensor(actions), torch.tensor(means), 0.3)
    np.testing.assert_allclose(found.numpy(), cut.logpdf(actions).sum(-1), rtol=1e-10)
    total, _ = integrate.quad(
        lambda a: float(log_prior(torch.tensor([a]), torch.tensor([0.97]), 0.05).exp()), -1, 1, points=[0.97]
    )
    assert total == pytest.approx(1.0, abs=1e-6)


def with_prior(settings=None, **arguments):
    return make_environment(REACH, wrappers=[{"name": "prior", **(settings or {})}], **arguments)


def test_priors_action_is_observed_by_no_policy():
    environment = with_prior(action_repeat=3)
    spec, plain = specification(environment), make_environment(REACH, action_repeat=3)
    assert spec.observation[PRIOR_ACTION].role == "privileged" and PRIOR_ACTION not in spec.observation.visible
    episode = rollout(environment, RandomPolicy(spec, 0), seed=4)
    expert = plain.get_wrapper_attr("scripted_policy")(4)
    expert.reset()
    observation, _ = plain.reset(seed=4)
    for step, action in enumerate(episode.actions):
        wanted = np.clip(expert.act(observation, deterministic=True), -1, 1)
        np.testing.assert_allclose(episode.observations[PRIOR_ACTION][step], wanted, atol=1e-6)
        observation, *_ = plain.step(action)


def test_reward_term_is_the_priors_density():
    environment = with_prior({"reward_weight": 0.1, "std": 0.5}, action_repeat=3)
    observation, _ = environment.reset(seed=0)
    action = np.full(5, 0.3, np.float32)
    wanted = 0.1 * float(log_prior(*(torch.tensor(each.astype(float)) for each in (action, observation[PRIOR_ACTION])), 0.5))
    _, reward, *_, info = environment.step(action)
    assert info["reward_terms"]["prior"] == pytest.approx(wanted) and reward == pytest.approx(wanted, abs=1e-6)


class Target(gymnasium.Env):
    """One step, paid for a place of the action: 1 - (a - 0.6)^2 / 0.08."""

    environment_spec = EnvironmentSpec(
        "test/Target", ObservationSpec((ArraySpec("x", (1,)),)), ActionSpec(("a",), (-1.0,), (1.0,), ("1",)), max_steps=1
    )
    observation_space, action_space = environment_spec.observation.space, environment_spec.action.space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return {"x": np.zeros(1, np.float32)}, {}

    def step(self, action):
        return {"x": np.zeros(1, np.float32)}, 1.0 - float((action[0] - 0.6) ** 2) / 0.08, True, False, {}


class Always:
    """A policy of one action."""

    environment_spec = Target.environment_spec

    def __init__(self, action):
        self.action = np.array([action], np.float32)

    def reset(self):
        pass

    def act(self, observation, *, deterministic=False):
        return self.action


def mean_action(kl, prior=-0.4, steps=1200):
    """Return the mean and deviation of the actions of a policy near a prior, and the temperature."""
    environment = PriorEnv(Target(), lambda seed: Always(prior))
    config = SACPriorConfig(
        network=Network(hidden=(16,), layer_norm=True),
        lr=5e-3,
        batch_size=64,
        replay=Replay(learning_starts=200),
        kl_per_action=kl,
        discount=0.0,
    )
    learner = config.build(specification(environment), 0)
    training = online_training(environment, learner, config.sampling, steps=steps, seed=0)
    training.run(Silent())
    policy = learner.policy
    seen = {"x": np.zeros(1, np.float32), PRIOR_ACTION: np.array([prior], np.float32)}
    drawn = np.array([policy.act(seen)[0] for _ in range(400)])
    return drawn.mean(), drawn.std(), float(learner.temperature.alpha())


def test_divergence_is_to_the_prior_of_that_observation():
    spec = specification(PriorEnv(Target(), lambda seed: Always(0.0)))
    learner = SACPriorConfig(network=Network(hidden=(8,))).build(spec, 0)
    means = {"prior_actions": torch.tensor([[0.5]]), "next_prior_actions": torch.tensor([[-0.5]])}
    data, features = SimpleNamespace(extras=means), torch.zeros(1, learner.parts.encoder.size)
    for following, mean in ((False, 0.5), (True, -0.5)):
        learner.parts.generator.manual_seed(0)
        actions, ratios = learner.sampled(features, data, following=following)
        learner.parts.generator.manual_seed(0)
        _, log_densities = learner.actor.sample(features, learner.parts.generator)
        expected = log_densities - log_prior(actions, torch.tensor([[mean]]), 0.3)
        np.testing.assert_allclose(ratios.detach().numpy(), expected.detach().numpy(), rtol=1e-5)


@pytest.mark.slow
def test_policy_is_the_priors_posterior():
    """Both factors are normal here: precisions add, and means are weighed by them (cut tails move them little)."""
    found = {}
    for kl in (0.3, 8.0):
        mean, deviation, alpha = mean_action(kl)
        prior, reward = 1 / 0.3**2, 1 / (0.04 * alpha)
        assert mean == pytest.approx((-0.4 * prior + 0.6 * reward) / (prior + reward), abs=0.1)
        assert deviation == pytest.approx((prior + reward) ** -0.5, abs=0.08)
        found[kl] = mean, alpha
    assert found[8.0][0] == pytest.approx(0.6, abs=0.15) and found[0.3][0] < found[8.0][0] - 0.2
    assert found[0.3][1] > 5 * found[8.0][1]


def test_environments_without_a_prior_are_refused(tmp_path):
    with pytest.raises(InvalidSetting, match="no prior"):
        robo_rl.train({"environment": {"name": REACH}, "algorithm": "sac-prior", "learner": SMALL}, steps=30, out=tmp_path)
    for changes in ({"std": 0.01}, {"reward_weight": -1.0}):
        with pytest.raises(InvalidSetting, match="no such prior"):
            with_prior(changes)
    with pytest.raises(InvalidSetting, match="no such prior"):
        make_environment("tabular/Trap-v0", wrappers=[{"name": "prior"}])
    for changes in ({"prior_std": 0.0}, {"kl_per_action": 0.0}, {"replay": {"n_step": 3}}):
        with pytest.raises(InvalidSetting):
            replace(SACPriorConfig(), **changes)


@pytest.mark.slow
def test_resume_is_exact(tmp_path):
    recipe = {
        "environment": {"name": REACH, "arguments": {"action_repeat": 3, "max_steps": 12}, "wrappers": [{"name": "prior"}]},
        "algorithm": "sac-prior",
        "learner": SMALL,
        "evaluation": {"episodes": 1, "videos": 0},
        "checkpoint_every": 40,
    }
    whole = robo_rl.train(recipe, steps=80, out=tmp_path / "whole")
    rest = robo_rl.resume(robo_rl.train(recipe, steps=40, out=tmp_path / "half").path, steps=80)
    states = [run.load().parts["learner"]["networks"]["actor"] for run in (whole, rest)]
    for name, value in states[0].items():
        np.testing.assert_array_equal(np.asarray(value), np.asarray(states[1][name]))
