"""The rule that stops trials: what is far behind is stopped from its second seed on, the best hardly ever."""

from __future__ import annotations

import numpy as np
import pytest

from robo_app.sweeps.stopping import Score, Stopping, score
from robo_rl.evaluation.evaluation import Evaluation
from robo_rl.evaluation.statistics import rate_error

EPISODES = 20


def rule(trials=8, risk=0.05, seeds=3):
    return Stopping(risk=risk, trials=trials, seeds=seeds, steps=100, every=10, grace=0.3)


def rate(value, generator):
    wins = generator.binomial(EPISODES, np.clip(value, 0.0, 1.0))
    return Score(wins / EPISODES, rate_error(wins, EPISODES), True)


def sweep(means, scatter, generator, rule):
    """Trains one trial after the other, seed by seed, and returns at how many seeds each was stopped; 0 for none."""
    courses, stopped = {}, {}
    for trial, mean in enumerate(means):
        courses[trial], stopped[trial] = {}, 0
        for seed in range(rule.seeds):
            own = mean + generator.normal(0.0, scatter)
            for step in rule.places:
                courses[trial].setdefault(step, {})[seed] = rate(own, generator)
                if not stopped[trial] and rule.verdict(trial, courses) is not None:
                    stopped[trial] = seed + 1
            if stopped[trial]:
                break
    return stopped


@pytest.mark.slow
def test_trials_that_are_equally_good_all_go_on():
    generator = np.random.default_rng(0)
    found = [sweep([0.7] * 8, 0.1, generator, rule()) for _ in range(12)]
    assert sum(map(bool, (seeds for each in found for seeds in each.values()))) == 0


def test_the_best_of_different_trials_is_never_stopped():
    generator = np.random.default_rng(2)
    for _ in range(8):
        means = generator.uniform(0.2, 0.9, 8)
        found = sweep(means, 0.08, generator, rule())
        assert not found[int(np.argmax(means))]


def test_the_test_of_equal_trials_would_notice_a_careless_rule():
    generator = np.random.default_rng(0)
    found = [sweep([0.7] * 8, 0.1, generator, rule(risk=0.99, trials=1)) for _ in range(2)]
    assert any(seeds for each in found for seeds in each.values())


def test_far_behind_trial_gets_no_third_seed():
    found = sweep([0.9, 0.85, 0.5, 0.05, 0.0, 0.05, 0.95, 0.0], 0.05, np.random.default_rng(1), rule())
    assert [found[trial] for trial in (3, 4, 5, 7)] == [2, 2, 2, 2]
    assert [found[trial] for trial in (0, 1, 6)] == [0, 0, 0]


def course(*rates, step=50):
    return {step: {seed: Score(each, rate_error(each * EPISODES, EPISODES), True) for seed, each in enumerate(rates)}}


def test_one_seed_alone_is_never_judged_and_few_seeds_hardly():
    good = {number: course(0.9, 0.95, 1.0) for number in range(4)}
    assert rule().verdict(9, good | {9: course(0.0)}) is None
    assert rule().verdict(9, {0: course(0.95, 1.0), 9: course(0.0, 0.0)}) is None, "two pairs of seeds tell little of scatter"
    verdict = rule().verdict(9, good | {9: course(0.0, 0.0)})
    assert verdict.better in good and verdict.interval.high < verdict.better_interval.low < 1.0
    assert verdict.interval.low == 0.0 and str(verdict).startswith("step 50: 0% [0%, ")


def test_seeds_that_lie_far_apart_protect_all_trials():
    wild = {number: course(0.0, 1.0, 1.0) for number in range(4)}
    assert rule().verdict(9, wild | {9: course(0.0, 0.0)}) is None, "so may its third seed"


def test_grace_no_risk_and_no_evaluations_stop_none():
    good = {number: course(0.9, 0.95, 1.0, step=20) for number in range(4)}
    assert rule().verdict(9, good | {9: course(0.0, 0.0, step=20)}) is None
    assert rule().places == [30, 40, 50, 60, 70, 80, 90] and rule(risk=0.0).places == rule(seeds=1).places == []


def test_the_looks_share_the_risk():
    assert rule().confidence == pytest.approx(1 - 2 * 0.05 / (8 * 7 * 2))


def test_a_score_is_success_or_else_the_return():
    told = ("e", "0", None, (0, 1), (3.0, 5.0), (1, 1))
    with_success = Evaluation(*told, (True, False), ("end",) * 2, deterministic=True, duration=0.0)
    without = Evaluation(*told, (None, None), ("end",) * 2, deterministic=True, duration=0.0)
    assert score(with_success) == Score(0.5, rate_error(1, 2), True)
    assert score(without) == Score(4.0, pytest.approx(1.0), False)
