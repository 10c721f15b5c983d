"""Starts in a teacher's states: restored bit for bit, drawn alike by cluster, cut, and the same again with the same seed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from factories import make_episode
from robo_rl.environments import starts
from robo_rl.environments.levels import level_seed
from robo_rl.environments.make import make_environment
from robo_rl.environments.starts import StartRule, TeacherStarts, clustered, starts_of
from robo_rl.errors import InvalidSetting, SimulationFailed, SpecMismatch
from robo_rl.extras import returns_to_go
from robo_rl.rollout.episode import RandomPolicy, rollout
from robo_rl.spec.environment import specification

NAME = "gymnasium/Hopper-v5"
RULE = StartRule(share=1.0, every=3, clusters=3, longest=5)


@pytest.fixture(scope="module")
def teacher():
    """Return a spec and ten episodes of random actions."""
    environment = make_environment(NAME)
    spec = specification(environment)
    return spec, [rollout(environment, RandomPolicy(spec, seed), seed=seed) for seed in range(10)]


def made(teacher, rule=RULE, name=NAME):
    spec, episodes = teacher
    return TeacherStarts(make_environment(name), episodes, rule, spec)


def test_restored_state_goes_on_bit_for_bit(teacher):
    environment = made(teacher)
    for seed in range(12):
        observation, info = environment.reset(seed=seed)
        episode = next(each for each in teacher[1] if each.seed == info["start"]["seed"])
        steps = info["start"]["steps"]
        for step in range(steps, min(len(episode), steps + 4)):
            for name, values in episode.observations.items():
                np.testing.assert_array_equal(observation[name], values[step])
            observation, reward, terminated, *_ = environment.step(episode.actions[step])
            assert np.float32(reward) == episode.rewards[step]
            if terminated:
                break


def test_same_seed_is_the_same_episode(teacher):
    first, second = made(teacher, replace(RULE, share=0.5)), made(teacher, replace(RULE, share=0.5))
    second.reset(seed=99)
    for seed in range(6):
        one, other = first.reset(seed=seed), second.reset(seed=seed)
        assert one[1].get("start") == other[1].get("start")
        for name in one[0]:
            np.testing.assert_array_equal(one[0][name], other[0][name])
    ends = [environment.reset() for environment in (first, second)]  # without a seed, as after an episode in a vector
    np.testing.assert_array_equal(*(observation[name] for observation, _ in ends))


def test_plain_starts_differ_after_a_teachers(teacher):
    environment = made(teacher, replace(RULE, share=0.5))
    environment.reset(seed=0)
    found = [environment.reset() for _ in range(40)]
    plain = {next(iter(observation.values())).tobytes() for observation, info in found if "start" not in info}
    assert 8 < len(plain) < 32


@pytest.mark.slow
def test_clusters_are_drawn_alike_and_their_members_too(teacher, monkeypatch):
    rule = replace(RULE, clusters=4)
    environment = made(teacher, rule)
    random, place = np.random.default_rng(0), {}
    for number, cluster in enumerate(environment.clusters):
        place |= {(start.episode.seed, start.steps): number for start in cluster}
    assert len({len(cluster) for cluster in environment.clusters}) > 1
    monkeypatch.setattr(starts, "restored", lambda *taken: ({}, {}))
    drawn = Counter(place[tuple(environment.reset(seed=int(random.integers(2**31)))[1]["start"].values())] for _ in range(2000))
    assert stats.chisquare([drawn[number] for number in range(len(environment.clusters))]).pvalue > 0.01
    share = Counter("start" in made(teacher, replace(rule, share=0.3)).reset(seed=seed)[1] for seed in range(60))
    assert 8 <= share[True] <= 30


def test_clusters_are_of_values():
    episode = make_episode({"x": np.zeros((31, 1))}, rewards=np.repeat([0.0, 0.0, 9.0], 10), seed=0)
    all_starts = starts_of([episode], replace(RULE, discount=0.5))
    groups = clustered(all_starts, 2)
    low, high = sorted(([start.value for start in group] for group in groups), key=min)
    assert max(low) < min(high) and len(low) + len(high) == len(all_starts)


def test_returns_to_go_by_hand():
    np.testing.assert_allclose(returns_to_go(np.array([1.0, 2.0, 4.0]), 0.5), [3.0, 4.0, 4.0])


def test_best_episodes_are_used():
    episodes = [make_episode({"x": np.zeros((8, 1))}, rewards=np.full(7, float(seed)), seed=seed) for seed in range(5)]
    assert {start.episode.seed for start in starts_of(episodes, replace(RULE, teacher_episodes=2))} == {3, 4}


def test_cut_is_a_truncation_after_so_many_steps(teacher):
    environment = made(teacher, replace(RULE, longest=2))
    environment.reset(seed=3)
    first, second = environment.step(np.zeros(3, np.float32)), environment.step(np.zeros(3, np.float32))
    assert not first[3] and second[3] and not second[2] and second[4]["stop_reason"] == "time_limit"


def test_changed_simulation_is_an_error(teacher):
    spec, episodes = teacher
    wrong = [replace(episode, actions=-episode.actions) for episode in episodes]
    environment = TeacherStarts(make_environment(NAME), wrong, RULE, spec)
    with pytest.raises(SimulationFailed, match="record the teacher again"):
        environment.reset(seed=0)


def test_other_environments_and_empty_teachers_are_refused(teacher):
    with pytest.raises(SpecMismatch, match="another environment"):
        made(teacher, name="gymnasium/HalfCheetah-v5")
    with pytest.raises(InvalidSetting, match="no state to begin in"):
        made((teacher[0], [replace(episode, seed=None) for episode in teacher[1]]))
    with pytest.raises(InvalidSetting, match=r"Starts would show levels that are kept apart(.|\n)*seed 1000000"):
        made((teacher[0], [*teacher[1], replace(teacher[1][0], seed=level_seed("test", 0))]))
    for changes in ({"share": 1.5}, {"every": 0}, {"clusters": 0}):
        with pytest.raises(InvalidSetting):
            replace(RULE, **changes)
