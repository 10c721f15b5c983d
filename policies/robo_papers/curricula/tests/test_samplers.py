"""Samplers of tasks: their rules by hand, their state, and what they make of a student that learns."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from robo_papers.curricula.samplers import fitted_logistic
from robo_papers.curricula.study import KINDS, opened
from robo_rl.entry_points import known
from robo_rl.environments.task_samplers import SamplerRule, sampler_of
from robo_rl.errors import InvalidSetting, UnknownName

ONLY_RULE = SamplerRule(uniform_share=0.0, least_episodes=3)


def made(name, count=5, **changes):
    return sampler_of(count, replace(ONLY_RULE, sampler=name, **changes))


def fed(sampler, outcomes, task=None):
    """Report outcomes of a task, by default of the one that the sampler draws; return the tasks."""
    random, drawn = np.random.default_rng(0), []
    for success in outcomes:
        drawn.append(sampler.sample(random) if task is None else task)
        sampler.report(drawn[-1], success=bool(success), score=float(success))
    return drawn


def frequencies(sampler, draws=6000):
    random = np.random.default_rng(1)
    return np.bincount([sampler.sample(random) for _ in range(draws)], minlength=sampler.count) / draws


@pytest.mark.parametrize("name", known("task_samplers"))
def test_state_goes_on_with_the_same_draws(name):
    one, other = made(name, uniform_share=0.3), made(name, uniform_share=0.3)
    fed(one, np.random.default_rng(2).random(60) < 0.5)
    other.load_state_dict(one.state_dict())
    outcomes = np.random.default_rng(3).random(60) < 0.6
    assert fed(one, outcomes) == fed(other, outcomes)
    json.dumps({key: np.asarray(value).tolist() for key, value in one.state_dict().items()})


@pytest.mark.parametrize("name", known("task_samplers"))
def test_uniform_share_reaches_every_task(name):
    sampler = made(name, uniform_share=1.0)
    assert frequencies(sampler).min() > 0.17


def test_learnability_follows_p_times_one_minus_p():
    sampler = made("learnability", count=4)
    sampler.success = np.array([0.0, 0.5, 0.9, 1.0])
    weights = np.array([0.0, 0.25, 0.09, 0.0])
    np.testing.assert_allclose(frequencies(sampler), weights / weights.sum(), atol=0.02)


@pytest.mark.slow
def test_replay_weights_by_hand():
    sampler = made("replay", count=3, settings={"rank_power": 1.0, "staleness": 0.2})
    sampler.surprise, sampler.last, sampler.seen = np.array([0.1, 0.5, 0.3]), np.array([10, 6, 8]), np.ones(3, np.int64)
    by_rank, by_age = np.array([1 / 3, 1.0, 1 / 2]), np.array([0.0, 4.0, 2.0])
    expected = 0.8 * by_rank / by_rank.sum() + 0.2 * by_age / 6
    np.testing.assert_allclose(sampler.weights(np.arange(3)), expected)
    np.testing.assert_allclose(frequencies(sampler), expected, atol=0.02)


def test_replay_draws_new_tasks_by_their_share():
    sampler = made("replay", count=4)
    fed(sampler, [1], task=2)
    assert frequencies(sampler)[2] == pytest.approx(0.25, abs=0.02)


def test_logistic_finds_the_task_of_one_half():
    sampler, random = made("logistic", count=11), np.random.default_rng(0)
    for task in random.integers(11, size=48):
        sampler.report(int(task), success=bool(task < 4), score=0.0)
    assert sampler.sample(random) in (3, 4)
    for task in random.integers(11, size=48):
        sampler.report(int(task), success=bool(task < 9), score=0.0)
    assert sampler.sample(random) in (8, 9)  # what is older than its memory counts no more


def test_logistic_fit_is_that_of_a_solver():
    random = np.random.default_rng(0)
    places, outcomes = random.random(40), (random.random(40) < 0.4).astype(float)

    def loss(found):
        margins = found[0] * places + found[1]
        return np.sum(np.logaddexp(0.0, margins) - outcomes * margins) + 0.05 * np.square(found).sum()

    np.testing.assert_allclose(fitted_logistic(places, outcomes), minimize(loss, np.zeros(2)).x, atol=1e-4)
    assert np.isfinite(fitted_logistic(places, np.ones(40))).all()


@pytest.mark.slow
def test_a_lock_opens_sooner_with_a_frontier_of_hints():
    found = {name: [opened(KINDS[name](), seed) for seed in (0, 1)] for name in ("`frontier`", "`uniform`")}
    assert all(2 * frontier[0] < uniform[0] for frontier, uniform in zip(*found.values(), strict=True))
    assert opened(KINDS["none"](), 0) is None


def test_bad_settings_are_refused():
    for name, settings in {"replay": {"rank_power": 0.0}, "logistic": {"memory": -1}}.items():
        with pytest.raises(InvalidSetting):
            made(name, settings=settings)
    with pytest.raises(UnknownName, match=r"curriculum\.settings"):
        made("replay", settings={"memory": 3})
