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
from robo_papers.group_ppo.mixed_imitation import MixedImitation
from robo_papers.group_ppo.provers import PROVED, Prover
from robo_papers.group_ppo.self_imitation import SelfImitation
from robo_papers.group_ppo.step_credit import anchored, merged, set_advantages
from robo_papers.group_ppo.study import SETTINGS, Walled, successes
from robo_policies.learners.group_credit import group_advantages
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting, RunError
from robo_rl.rollout.episode import RandomPolicy, rollout
from robo_rl.settings import updated
from robo_rl.spec.environment import specification

KINDS = ("group", "anchor", "graph", "credit", "critic", "macro", "prover", "set")
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


MIXED = {"self_imitation": 0.5, "kept_episodes": 1, "reference_weight": 0.5, "self_imitation_rise": 3, "imitation": 0.5}


@pytest.mark.parametrize(
    ("kind", "more"),
    [*((kind, {}) for kind in KINDS), ("group", {**MIXED, "imitates": "learned"}), ("group", {**MIXED, "imitates": "failed"})],
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


def test_contributions_sum_to_returns():
    config = updated(SMALL, advantages={"kind": "credit"}, discount=1.0)
    learner = config.build(Walled.environment_spec, 0)
    observations = {"place": np.eye(36, dtype=np.float32)}
    good = make_episode(observations, rewards=np.eye(35)[-1], actions=np.arange(35) % 4)
    poor = make_episode(observations, rewards=np.zeros(35), actions=np.append(np.arange(34) % 4, 0))  # its last action differs
    for _ in range(150):
        found, _ = learner.rule.kind.credited([good, poor] * 4, np.array([1.0, 0.0] * 4))
    first, last = found[:35], found[35:70]
    assert first[0] - last[0] == pytest.approx(1.0, abs=0.1) and first[0] == pytest.approx(1.0, abs=0.1)
    assert first[-1] - last[-1] > 0.7  # which is what the two differ by


def test_stretches_are_actions_of_the_upper_level():
    """Five steps in stretches of two: the last has one step, and nothing after it counts, since the episode terminated."""
    learner = updated(SMALL, advantages={"kind": "macro", "macro_steps": 2}, discount=0.5).build(Walled.environment_spec, 0)
    places = {"place": np.eye(36, dtype=np.float32)[:6]}
    actions = np.array([0, 1, 2, 3, 1])
    episode = make_episode(places, rewards=np.arange(1.0, 6.0), actions=actions, terminated=True)
    found = learner.rule.kind.stretches(episode)
    assert found.reward.tolist() == pytest.approx([1 + 0.5 * 2, 3 + 0.5 * 4, 5.0])
    assert found.factor.tolist() == pytest.approx([0.25, 0.25, 0.0])
    wanted = np.zeros((3, 8))
    wanted[[0, 0, 1, 1, 2], [0, 4 + 1, 2, 4 + 3, 1]] = 1.0
    np.testing.assert_array_equal(found.actions.numpy(), wanted)
    assert found.features.argmax(1).tolist() == [0, 2, 4] and found.following.argmax(1).tolist() == [2, 4, 5]
    cut = learner.rule.kind.stretches(replace(episode, terminated=False, truncated=True))
    assert cut.factor.tolist() == pytest.approx([0.25, 0.25, 0.5])


@pytest.mark.slow
def test_macro_critic_finds_values_and_the_better_stretch():
    """Two stretches: the first action of the second one decides. V of the start is 0.9^4 times one half."""
    config = updated(
        SMALL, advantages={"kind": "macro", "macro_steps": 4, "critic_lr": 1e-2}, discount=0.9, network={"hidden": (32,)}
    )
    learner = config.build(Walled.environment_spec, 0)
    good, poor = (replace(each, terminated=True, truncated=False) for each in walked(1.0, 0.0))
    poor = replace(poor, actions=np.where(np.arange(8) == 4, 1, poor.actions))
    for _ in range(40):
        found, _ = learner.rule.kind.of([good, poor] * 4, np.array([1.0, 0.0] * 4))
    start = learner.actor.features(good)[:1]
    assert float(learner.rule.kind.v(start).detach()) == pytest.approx(0.9**7 * 0.5, abs=0.06)
    second = learner.rule.kind.stretches(good).features[1:]
    assert float(learner.rule.kind.v(second).detach()) == pytest.approx(0.9**3 * 0.5, abs=0.06)
    assert found[4] > 1.0 and found[12] < -1.0 and abs(found[0]) < 0.5  # the first stretches are the same
    assert len({*found[:4]}) == len({*found[4:8]}) == 1


def test_the_prover_ends_the_last_episode_of_each_group():
    config, kept = updated(SMALL, advantages={"kind": "prover"}, lr=1.0), Kept()
    training = config.training(Walled, steps=6 * 8 * 24, seed=0)
    prover = training.learner.rule.kind.policy
    first = prover.act({"place": np.eye(36, dtype=np.float32)[0]}, deterministic=True)
    begun = []

    class Always:
        environment_spec = Walled.environment_spec

        def reset(self):
            begun.append(0)

        def act(self, observation, deterministic=False):
            return np.int64(1)

    training.learner.rule.kind.__class__ = type("Fixed", (Prover,), {"policy": property(lambda self: Always())})
    training.run(kept)
    own = [each for each in kept.episodes if PROVED not in each.metadata]
    proved = [each for number, each in enumerate(kept.episodes) if number % 4 == 3]
    assert len(own) == 3 * len(proved) == len(kept.episodes) - len(proved) and len(begun) == len(proved)
    assert all((each.actions[each.metadata[PROVED] :] == 1).all() for each in proved)
    assert len({each.metadata[PROVED] for each in proved}) > 4
    assert any((each.actions[: each.metadata[PROVED]] != 1).any() for each in proved)
    assert first.shape == ()


def test_progress_is_the_gain_in_the_provers_chance():
    """The prover succeeds from the second half of the places alone: the step between the halves gains, no other does."""
    config = updated(SMALL, advantages={"kind": "prover", "prover_tries": 1, "step_weight": 2.0}, episodes=4)
    learner = config.build(Walled.environment_spec, 0)
    prover = learner.rule.kind

    def proved(first, success):
        return replace(at_place(first, success), metadata={PROVED: 0})

    for _ in range(30):
        prover.fit([proved(0, 0), proved(4, 1)])
    episodes = [*walked(1.0, 0.0, 0.0), proved(0, 0)]
    gains = prover.gains(episodes[0])
    assert gains[3] == pytest.approx(1.0, abs=0.1) and np.abs(np.delete(gains, 3)).max() < 0.1
    found, figures = prover.of(episodes, np.array([1.0, 0.0, 0.0, 0.0]))
    assert not found[24:].any(), "the prover's actions are not learned from"
    whole = group_advantages(np.array([1.0, 0.0, 0.0]), 3)
    steps = np.tile(gains, 3)
    expected = np.repeat(whole, 8) + 2.0 * (steps - steps.mean()) / steps.std()
    np.testing.assert_allclose(found[:24], expected, atol=0.2)
    assert figures["prover_success"] == pytest.approx(30 / 61)
    twice = updated(config, advantages={"prover_tries": 2}).build(Walled.environment_spec, 0)
    twice.load_state_dict(learner.state_dict())
    values = prover.value(learner.actor.features(episodes[0])).detach().numpy().reshape(-1).clip(0, 1)
    np.testing.assert_allclose(twice.rule.kind.gains(episodes[0])[:-1], np.diff(1 - (1 - values) ** 2)[:-1], atol=1e-5)


def at_place(first, success, advantage_action=0):
    """Return an episode of four steps from a place on, all by one action."""
    places = {"place": np.eye(36, dtype=np.float32)[first : first + 5]}
    actions = np.full(4, advantage_action)
    return make_episode(places, rewards=np.eye(4)[-1] * success, actions=actions, success=bool(success))


def test_demonstrations_near_the_tasks_that_fail_are_imitated():
    config = updated(SMALL, imitation=0.3, imitates="failed", cloning={"updates": 0}, episodes=8)
    learner = config.build(Walled.environment_spec, 0)
    demonstrations = [at_place(first, 1) for first in (0, 10, 20)]
    learner.prepare(demonstrations)
    mixed = term_of(learner, MixedImitation)
    solved, failed = [at_place(0, each) for each in (1, 0, 0, 0)], [at_place(10, 0) for _ in range(4)]
    assert mixed.weigh([*solved, *failed], np.zeros(32)) == pytest.approx(0.15), "one group of two failed"
    learner.actor.random = np.random.default_rng(3)
    found = float(mixed.cloning().detach())
    rows = np.random.default_rng(3).integers(4, size=256)
    densities = learner.actor.log_densities(*learner.actor.inputs(demonstrations[1:2]))
    assert found == pytest.approx(-0.15 * float(densities[rows].mean().detach()), rel=1e-5), "the demonstration from place 10"
    assert mixed.weigh([*solved, *solved], np.zeros(32)) == 0.0 and float(mixed.cloning()) == 0.0


def test_imitation_without_demonstrations_is_refused():
    learner = replace(SMALL, imitation=0.3).build(Walled.environment_spec, 0)
    with pytest.raises(InvalidSetting, match="nothing to imitate"):
        learner.learn([at_place(0, 1)] * 8)


def test_learned_weight_follows_what_imitation_would_do():
    """Advantages for the demonstrated actions raise the weight, those against lower it, and none leave it."""
    learner = updated(SMALL, imitation=0.4, imitates="learned", cloning={"updates": 0}, episodes=4).build(
        Walled.environment_spec, 0
    )
    learner.prepare([at_place(0, 1, 2)])
    mixed = term_of(learner, MixedImitation)
    taken, others = [at_place(0, 1, 2)] * 4, [at_place(0, 0, 1)] * 4
    assert mixed.weigh(taken, np.zeros(16)) == pytest.approx(0.2)
    assert mixed.weigh(taken, np.ones(16)) == pytest.approx(0.4 / (1 + np.exp(-0.3)), rel=1e-3), "equal gradients"
    before = mixed.logit
    assert mixed.agreement(others, np.ones(16)) < -0.1
    mixed.weigh(others, np.ones(16))
    assert mixed.logit < before


def test_self_imitation_rises():
    learner = replace(SMALL, self_imitation=0.3, self_imitation_rise=4).build(Walled.environment_spec, 0)
    episodes = [paid(float(seed == 1), seed) for seed in range(8)]
    best, shares = term_of(learner, SelfImitation), []
    for _ in range(5):
        learner.learn(episodes)
        shares.append(best.share)
    assert shares == [0.25, 0.5, 0.75, 1.0, 1.0]
    before, losses = learner.actor.random.bit_generator.state, []
    for best.share in (0.25, 1.0):
        learner.actor.random.bit_generator.state = before
        losses.append(best.cloning().item())
    assert losses[1] == pytest.approx(4 * losses[0]) and losses[0] > 0


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
        {"imitates": "sometimes"},
        {"advantages": {"kind": "prover"}, "group": 2},
        {"imitation": -1.0},
        {"advantages": {"macro_steps": 0}},
        {"self_imitation_rise": -1},
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
