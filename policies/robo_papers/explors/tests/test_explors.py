"""ExploRS: the learned reward's gradient by hand, the bonus, and a chain that the reward alone does not solve."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from factories import make_episode
from robo_papers.explors.learner import ExploRSConfig, ExploRSNetwork, accumulated, centred
from robo_papers.explors.study import SETTINGS, Chain, successes
from robo_rl.errors import InvalidSetting
from robo_rl.settings import updated


def learner(**settings):
    return updated(ExploRSConfig(), SETTINGS, settings).build(Chain.environment_spec, 0)


def episode(places, actions, rewards):
    seen = {"place": np.eye(10, dtype=np.float32)[places]}
    return make_episode(seen, actions=np.array(actions), rewards=np.array(rewards, np.float32))


PLAYED = episode([0, 1, 2, 1], [1, 1, 0], [0.0, 0.0, 1.0])


def test_actions_are_wanted_as_much_as_they_become_likelier():
    """Along the gradient of the task, the densities change as finite differences say."""
    made = learner()
    features, actions = made.actor.inputs([PLAYED])
    slope = made.slope(features, actions, np.array([1.0, 0.0, -1.0]))
    wanted = made.wanted(slope, features, actions)
    before = made.actor.log_densities(features, actions).detach().numpy()
    with torch.no_grad():
        for name, parameter in made.actor.network.named_parameters():
            parameter.add_(1e-3 * slope[name])
    after = made.actor.log_densities(features, actions).detach().numpy()
    np.testing.assert_allclose(wanted, (after - before) / 1e-3, atol=2e-3)
    assert wanted[0] > 0 > wanted[2]


def test_weights_of_steps_sum_those_before():
    np.testing.assert_allclose(accumulated(np.array([1.0, 0.0, -2.0]), 0.5), [1.0, 0.5, -1.75])
    assert centred(np.full(3, 7.0)).tolist() == [0.0] * 3
    np.testing.assert_allclose(centred(np.array([1.0, 3.0])), [-1.0, 1.0])


def test_learned_reward_rises_where_the_task_wants_more():
    made = learner(reward_lr=0.05)
    features, actions = made.actor.inputs([PLAYED])
    made._before = features.detach(), actions, [3]
    pairs = made.pairs(features, actions)
    assert not made.reward(pairs).detach().numpy().any()  # 0 at first
    slope = made.slope(features, actions, np.array([1.0, 0.0, 0.0]))  # the first step is to be taken more often
    weights = accumulated(made.wanted(slope, features, actions), made.config.discount)
    for _ in range(50):
        made._learn_reward(slope)
    found = made.reward(pairs).detach().numpy()
    assert (np.sign(found) == np.sign(weights)).all() and np.abs(found).max() <= made.config.reward_limit


def test_bonus_falls_with_visits():
    made = learner(bonus=0.5, visits=2.0)
    first = made.bonuses(PLAYED)
    np.testing.assert_allclose(first, 0.5)  # none was seen when the episode came
    second = made.bonuses(PLAYED)
    np.testing.assert_allclose(second, 0.5 * np.sqrt(2.0 / np.array([4.0, 3.0, 4.0])))
    again = learner()
    again.load_state_dict(made.state_dict())
    assert again.counts == made.counts
    fresh = learner()
    fresh.load_state_dict(learner().state_dict())
    assert not fresh.counts


@pytest.mark.slow
def test_both_solve_a_chain_that_the_reward_alone_does_not():
    alone = np.mean(successes(1, 9000, bonus=0.0, reward_lr=0.0)[-100:])
    both = np.mean(successes(1, 9000)[-100:])
    assert alone < 0.1 and both > 0.9


@pytest.mark.slow
def test_a_reward_against_the_gradient_does_not(monkeypatch):
    plain = successes(1, 9000)
    monkeypatch.setattr("robo_papers.explors.learner.accumulated", lambda wanted, discount: -accumulated(wanted, discount))
    turned = successes(1, 9000)
    assert np.mean(turned) < np.mean(plain) - 0.2


def test_bad_settings_have_one_clear_error():
    with pytest.raises(InvalidSetting, match="engine"):
        ExploRSConfig(network=ExploRSNetwork(engine="accelerated"))
    for settings in ({"cell": 0.0}, {"bonus": -1.0}, {"reward_limit": 0.0}):
        with pytest.raises(InvalidSetting):
            updated(ExploRSConfig(), settings)
