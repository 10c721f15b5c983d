"""Advantages of groups by hand, and PPO from groups: branches, state, controls."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from factories import make_episode
from robo_bench.trainings import Silent
from robo_papers.group_ppo.branching import BranchingEnv
from robo_papers.group_ppo.group_advantages import single_share
from robo_papers.group_ppo.learner import GroupPPOConfig, NearClone
from robo_papers.group_ppo.self_imitation import SelfImitation
from robo_papers.group_ppo.step_credit import anchored, merged, set_advantages
from robo_papers.group_ppo.study import SETTINGS, Walled, successes
from robo_policies.learners.group_credit import group_advantages
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting, RunError
from robo_rl.rollout.episode import RandomPolicy, rollout
from robo_rl.settings import updated
from robo_rl.spec.environment import specification

KINDS = ("group", "anchor", "graph", "critic", "set")
SMALL = updated(GroupPPOConfig(), SETTINGS, {"group": 4})


def test_group_advantages_by_hand():
    found = group_advantages(np.array([1.0, 0.0, 0.0, 1.0, 2.0, 2.0, 2.0, 2.0]), 4)
    np.testing.assert_allclose(found, [1, -1, -1, 1, 0, 0, 0, 0])


def test_anchor_compares_visits_of_one_state():
    states = [["a", "b"], ["a", "c"], ["a", "b"]]
    rewards = [np.array([0.0, 1.0]), np.array([0.0, 0.0]), np.array([0.0, 0.5])]
    at_a = np.array([0.9, 0.0, 0.45])
    scaled = (at_a - at_a.mean()) / at_a.std()
    np.testing.assert_allclose(anchored(states, rewards, 0.9), [scaled[0], 1.0, scaled[1], 0.0, scaled[2], -1.0])


def test_graph_shares_common_steps_and_keeps_others():
    steps = [["x", "y"], ["x", "z", "z"]]
    np.testing.assert_allclose(merged(steps, np.array([1.0, -0.5])), [0.25, 1.0, 0.25, -0.5, -0.5])


def test_sets_prefer_success_in_different_ways():
    scores, ways = np.array([1.0, 1.0, 1.0, 0.0]), ["left", "left", "right", "left"]
    found, diversity = set_advantages(scores, ways, 2, 4000, np.random.default_rng(0))
    assert found[2] > found[0] == pytest.approx(found[1], abs=0.03) and found[3] == min(found)
    assert diversity == pytest.approx(0.75, abs=0.02)  # of six pairs three differ
    pairs = [(a, b) for a in range(4) for b in range(a)]
    values = {pair: scores[list(pair)].mean() * len({ways[each] for each in pair}) / 2 for pair in pairs}
    exact = [np.mean([value for pair, value in values.items() if each in pair]) for each in range(4)]
    np.testing.assert_allclose(found, np.array(exact) - np.mean([*values.values()]), atol=0.03)


def test_sets_that_are_worth_the_same_say_nothing():
    found, _ = set_advantages(np.zeros(4), [1, 2, 3, 4], 2, 10, np.random.default_rng(0))
    assert not found.any()


def test_single_states_are_counted():
    assert single_share([["a", "b"], ["a"]]) == pytest.approx(1 / 3)


def test_branch_is_the_state_in_the_middle():
    environment = BranchingEnv(make_environment("gymnasium/Hopper-v5"))
    first = rollout(environment, RandomPolicy(specification(environment), 0), seed=3)
    environment.branch = (first, 2)
    observation, _ = environment.reset(seed=99)
    for name, values in first.observations.items():
        np.testing.assert_array_equal(observation[name], values[2])
    environment.branch = None
    again, _ = environment.reset(seed=3)
    for name, values in first.observations.items():
        np.testing.assert_array_equal(again[name], values[0])


class Kept(Silent):
    """Keeps the episodes."""

    def __init__(self):
        self.episodes = []

    def on_episode(self, step, **outcome):
        self.episodes.append(outcome["episode"])


def test_groups_of_sets_begin_in_a_state_of_their_first_episode():
    config, kept = updated(SMALL, advantages={"kind": "set", "set_size": 2}), Kept()
    config.training(Walled, steps=2 * 8 * 24, seed=0).run(kept)
    for first in range(0, 16, 4):
        seeded, *vines = kept.episodes[first : first + 4]
        start = vines[0].observations["place"][0]
        assert all(np.array_equal(each.observations["place"][0], start) for each in vines)
        assert any(np.array_equal(row, start) for row in seeded.observations["place"][:-1])
        assert np.argmax(seeded.observations["place"][0]) == 0
    assert len({np.argmax(kept.episodes[first + 1].observations["place"][0]) for first in range(0, 16, 4)}) > 1


def walked(*rewards):
    """Return episodes over the first places of the grid, with these rewards at their ends."""
    places = {"place": np.eye(36, dtype=np.float32)[:9]}
    return [make_episode(places, rewards=np.eye(8)[-1] * each, actions=np.zeros(8, np.int64)) for each in rewards]


def test_anchors_are_added_to_the_episodes_advantage():
    learner = updated(SMALL, advantages={"kind": "anchor", "step_weight": 0.5}, episodes=4).build(Walled.environment_spec, 0)
    episodes, returns = walked(1.0, 0.0, 0.0, 0.0), np.array([1.0, 0.0, 0.0, 0.0])
    found, figures = learner.rule.kind.of(episodes, returns)
    np.testing.assert_allclose(found, 1.5 * np.repeat(group_advantages(returns, 4), 8), atol=1e-6)  # all visit the same states
    assert figures["single_states"] == 0.0


def test_sets_count_in_the_window_of_all_but_the_first(monkeypatch):
    learner = updated(SMALL, advantages={"kind": "set", "set_size": 2, "window": 3}, episodes=4).build(
        Walled.environment_spec, 0
    )
    monkeypatch.setattr(learner.rule.kind.critic, "estimates", lambda episodes: (np.arange(32.0), 0.0))
    critic = (np.arange(32.0) - 15.5) / np.arange(32.0).std()
    episodes = walked(1.0, 1.0, 0.0, 0.0)
    found, figures = learner.rule.kind.of(episodes, np.array([1.0, 1.0, 0.0, 0.0]))
    np.testing.assert_allclose(found[:8], critic[:8])
    for first in (8, 16, 24):
        assert len({*found[first : first + 3]}) == 1 and found[first] != critic[first]
        np.testing.assert_allclose(found[first + 3 : first + 8], critic[first + 3 : first + 8])
    assert found[8] > max(found[16], found[24]) and figures["diversity"] == 0.5


MIXED = {"self_imitation": 0.5, "kept_episodes": 1, "reference_weight": 0.5}


@pytest.mark.parametrize(
    ("kind", "more"),
    [*((kind, {}) for kind in KINDS), ("group", MIXED)],
)
def test_state_goes_on_as_before(kind, more):
    config = updated(SMALL, more, advantages={"kind": kind, "set_size": 2}, cloning={"updates": 5})
    spec, random = Walled.environment_spec, RandomPolicy(Walled.environment_spec, 0)
    episodes = [rollout(Walled(), random, seed=seed) for seed in range(8)]
    episodes[0] = replace(episodes[0], rewards=episodes[0].rewards + 1.0)
    one, other = config.build(spec, 0), config.build(spec, 1)
    if more:
        one.prepare([rollout(Walled(), random, seed=seed) for seed in (8, 9)])
    one.learn(episodes)
    other.load_state_dict(one.state_dict())
    one.learn(episodes)
    other.learn(episodes)
    weights = [next(iter(learner.actor.network.parameters())).detach().numpy() for learner in (one, other)]
    np.testing.assert_array_equal(*weights)
    assert np.abs(weights[0] - next(iter(config.build(spec, 0).actor.network.parameters())).detach().numpy()).max() > 1e-4


def test_common_plans_are_worth_less():
    """Of a group of four two are alike: they lose two fifths at most, the others a quarter."""
    learner = replace(SMALL, variety=0.4, episodes=8).build(Walled.environment_spec, 0)
    ways = [0, 0, 1, 2, 3, 3, 3, 3]
    episodes = [replace(each, actions=np.full(8, way)) for each, way in zip(walked(*[1.0] * 8), ways, strict=True)]
    np.testing.assert_allclose(learner.rule.common(episodes), [0.5, 0.5, 0.25, 0.25, 1, 1, 1, 1])
    seen = []
    learner.rule.kind.of = lambda episodes, returns: (seen.append(returns), (np.zeros(64), {}))[1]
    learner.learn(episodes)
    np.testing.assert_allclose(seen[0], [0.6, 0.6, 0.75, 0.75, 0.6, 0.6, 0.6, 0.6])
    costly = [replace(each, rewards=-each.rewards) for each in episodes]  # the rarer plan is not the worse one
    learner.learn(costly)
    np.testing.assert_allclose(seen[1], [-1.4, -1.4, -1.25, -1.25, -1.4, -1.4, -1.4, -1.4])


def term_of(learner, kind):
    """Return the only term of a kind."""
    (found,) = (each for each in learner.terms if isinstance(each, kind))
    return found


def paid(total, seed):
    episode = rollout(Walled(), RandomPolicy(Walled.environment_spec, seed), seed=seed)
    return replace(episode, rewards=np.full(len(episode), total / len(episode), np.float32))


def test_the_best_and_newest_episodes_are_kept():
    learner = replace(SMALL, self_imitation=0.3, kept_episodes=3).build(Walled.environment_spec, 0)
    best = term_of(learner, SelfImitation)
    best.remember([paid(0.0, seed) for seed in range(4)])
    assert best.kept == [] and float(best.cloning()) == 0.0, "none is better than the worst"
    best.remember([paid(0.5, 4), paid(1.0, 5), paid(0.5, 6)])
    best.remember([paid(0.5, 7), paid(0.0, 8)])
    assert [round(each.score, 3) for each in best.kept] == [1.0, 0.5, 0.5]
    places = [each.seen["place"] for each in best.kept]
    for place, seed in zip(places, (5, 7, 6), strict=True):
        np.testing.assert_array_equal(place, paid(0.0, seed).observations["place"][:-1])


def test_loss_is_that_of_cloning_them():
    learner = replace(SMALL, self_imitation=0.3, kept_episodes=2).build(Walled.environment_spec, 0)
    episodes = [paid(0.0, 0), paid(1.0, 1), paid(0.5, 2)]
    best = term_of(learner, SelfImitation)
    best.remember(episodes)
    rows = np.random.default_rng(0).integers(sum(map(len, episodes[1:])), size=256)
    assert learner.actor.random.bit_generator.state == np.random.default_rng(0).bit_generator.state
    features, actions = learner.actor.inputs(episodes[1:])
    expected = -0.3 * learner.actor.log_densities(features, actions)[rows].mean()
    assert float(best.cloning().detach()) == pytest.approx(float(expected.detach()), rel=1e-6)


def test_distance_to_the_clone_by_hand_and_its_pull():
    episodes = [rollout(Walled(), RandomPolicy(Walled.environment_spec, seed), seed=seed) for seed in range(8)]
    learner = updated(SMALL, reference_weight=5.0, cloning={"updates": 50}).build(Walled.environment_spec, 0)
    learner.prepare(episodes[:4])
    features, actions = learner.actor.inputs(episodes)
    clone = learner.actor.log_densities(features, actions).detach()

    def distance():
        now = learner.actor.log_densities(features, actions)
        return now.detach(), term_of(learner, NearClone).loss(features, actions, now).item()

    assert distance()[1] == pytest.approx(0.0, abs=1e-6)
    moved = [replace(each, rewards=np.full(len(each), float(number), np.float32)) for number, each in enumerate(episodes)]
    for _ in range(20):
        learner.learn(moved)
    now, found = distance()
    ratio = torch.exp(clone - now)
    assert found == pytest.approx(5.0 * float((ratio - 1 - (clone - now)).mean()), rel=1e-4) and found > 0.0
    free = updated(SMALL, cloning={"updates": 50}).build(Walled.environment_spec, 0)
    free.prepare(episodes[:4])
    for _ in range(20):
        free.learn(moved)
    away = [(clone - each.actor.log_densities(features, actions)).square().mean().item() for each in (learner, free)]
    assert away[0] < 0.5 * away[1], "it stays nearer to the clone"


@pytest.mark.slow
def test_self_imitation_finds_the_way_sooner():
    shares = [np.mean(successes(0, advantages={"kind": "group"}, **more)) for more in ({}, {"self_imitation": 0.1})]
    newest = np.mean(successes(0, advantages={"kind": "group"}, self_imitation=0.1, newest=True))
    assert shares[1] > shares[0] + 0.2 > newest + 0.2


def test_bad_settings_are_refused():
    for changes in (
        {"group": 1, "episodes": 8},
        {"advantages": {"kind": "set", "set_size": 4}},
        {"advantages": {"resolution": 0.0}},
        {"advantages": {"window": 0}},
        {"advantages": {"kind": "q"}},
        {"self_imitation": -0.1},
        {"kept_episodes": 0},
        {"reference_weight": -1.0},
    ):
        with pytest.raises(InvalidSetting):
            updated(SMALL, changes)
    updated(SMALL, advantages={"kind": "critic"}, group=1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["group", "anchor", "graph"])
def test_groups_find_the_way_between_walls(kind):
    found = successes(1, advantages={"kind": kind})
    assert np.mean(found[:100]) < 0.1 and np.mean(found[-100:]) > 0.9


def test_state_of_an_earlier_version_is_refused():
    learner = SMALL.build(Walled.environment_spec, 0)
    with pytest.raises(RunError, match=r"train again(.|\n)*got: +encoder, networks"):
        learner.load_state_dict({"networks": {}, "encoder": {}})
