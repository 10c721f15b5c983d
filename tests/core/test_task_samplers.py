"""Samplers of training tasks, and the levels that they draw from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from robo_rl.environments.levels import FIRST_LEVEL, MOST_LEVELS, SPLITS, level_seed, split_of
from robo_rl.environments.task_samplers import SamplerRule, sampler_of
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.evaluation.evaluation import FIRST_SEED
from robo_rl.training.step_sources import episode_seed

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


def test_success_is_a_running_mean():
    sampler = made("uniform", count=2, rate=0.3)
    fed(sampler, [1, 0], task=1)
    np.testing.assert_allclose(sampler.success, [0.5, (0.5 + 0.3 * 0.5) * 0.7])
    assert sampler.seen.tolist() == [0, 2]


def test_frontier_moves_up_and_down():
    sampler = made("frontier", count=3)
    assert fed(sampler, [1] * 7) == [0, 0, 0, 1, 1, 1, 2]
    assert fed(sampler, [0] * 7)[-1] < 2  # down again after its success rate has fallen below 0.1
    for _ in range(50):
        fed(sampler, [1])
    assert sampler.position == 2 and sampler.metrics["curriculum/frontier"] == 1.0


def test_splits_never_meet():
    ranges = [range(FIRST_LEVEL[split], FIRST_LEVEL[split] + MOST_LEVELS) for split in SPLITS]
    assert all(one[-1] < other[0] or other[-1] < one[0] for one in ranges for other in ranges if one is not other)
    assert level_seed("test", 0) == FIRST_SEED and split_of(level_seed("validation", 7)) == "validation"
    assert all(split_of(episode_seed(seed, index)) is None for seed in range(20) for index in range(20))
    for split, level in (("train", -1), ("train", MOST_LEVELS), ("exam", 0)):
        with pytest.raises(InvalidSetting, match="no such level"):
            level_seed(split, level)


def test_bad_rules_are_refused():
    with pytest.raises(UnknownName, match="frontier"):
        made("frontir")
    for changes in ({"uniform_share": 1.5}, {"rate": float("nan")}, {"least_episodes": 0}):
        with pytest.raises(InvalidSetting):
            replace(ONLY_RULE, **changes)
