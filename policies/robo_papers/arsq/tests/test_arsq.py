"""ARSQ: the cube, its soft advantages, both conservative losses by hand, and the joint action that single elements hide."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from factories import axes, make_episode, make_spec
from robo_papers.arsq.learner import ARSQConfig, ARSQNetwork, Choices, Cube, GoodEpisodes
from robo_rl.errors import InvalidSetting
from robo_rl.replay.buffer import ReplayBuffer
from robo_rl.replay.recorded import RecordedReplay
from robo_rl.settings import updated
from robo_rl.spec.environment import ArraySpec
from robo_rl.types import Batch

STATE = ArraySpec("state", (1,), frame="none", role="proprioception")
SPEC = make_spec("two", STATE, action=axes("a", "b"))
SMALL = ARSQConfig(network=ARSQNetwork(hidden=(16,), normalization_rows=0), batch_size=8, levels=2, bins=3)
CORNERS = ARSQConfig(
    network=ARSQNetwork(hidden=(32,), normalization_rows=0), levels=1, bins=2, lr=3e-3, batch_size=128, temperature=0.05
)


@given(st.integers(1, 3), st.integers(2, 6), st.integers(1, 4), st.integers(0, 9))
def test_codes_are_as_fine_as_the_smallest_boxes(levels, bins, actions, seed):
    cube = Cube(actions, levels, bins)
    drawn = torch.from_numpy(np.random.default_rng(seed).uniform(-1, 1, (50, actions)).astype(np.float32))
    codes = cube.encode(torch.cat([drawn, torch.ones(1, actions), -torch.ones(1, actions)]))
    assert codes.min() >= 0 and codes.max() < bins and codes.shape == (52, levels * actions)
    assert (cube.decode(codes)[:50] - drawn).abs().max() <= bins**-levels + 1e-5
    assert torch.equal(cube.encode(cube.decode(codes)), codes)


def test_each_choice_sees_the_boxes_before_it():
    cube = Cube(2, 2, 3)
    codes = torch.tensor([[0, 2, 1, 0], [2, 2, 2, 2]])
    for index in range(4):
        torch.testing.assert_close(cube.contexts(codes)[:, index], cube.decode(codes[:, :index]))


def test_advantages_are_a_distribution_at_every_choice():
    learner = SMALL.build(SPEC, 0)
    codes = learner.cube.encode(torch.rand(6, 2) * 2 - 1)
    soft = learner.choices.of_actions(torch.randn(6, 1), codes)
    torch.testing.assert_close(torch.exp(soft / SMALL.temperature).sum(-1), torch.ones(2, 6, 4), rtol=0.0, atol=1e-5)


@pytest.mark.parametrize("network", [{}, {"engine": "reference"}])
def test_advantages_of_a_fresh_network_say_little(network):
    learner = updated(ARSQConfig(temperature=1e-4), network=network).build(SPEC, 0)
    codes = learner.cube.encode(torch.rand(64, 2) * 2 - 1)
    soft = learner.choices.of_actions(torch.randn(64, 1), codes)
    assert -0.05 < soft.gather(-1, codes[None, :, :, None].expand(2, -1, -1, 1)).sum(2).mean() < 0.0


def test_actions_are_chosen_by_the_smaller_advantage_box_by_box():
    learner = replace(SMALL, levels=1, temperature=1.0).build(SPEC, 3)
    observation = torch.randn(1, 1)
    codes = torch.tensor([*product(range(3), repeat=2)])
    soft = learner.choices.of_actions(observation.expand(9, 1), codes).amin(0)
    first = int(soft[0, 0].argmax())
    second = int(soft[3 * first, 1].argmax())
    torch.testing.assert_close(learner.choices.mode(observation), learner.cube.decode(torch.tensor([[first, second]])))
    generator = torch.Generator().manual_seed(0)
    drawn = learner.cube.encode(learner.choices.draw(observation.expand(4000, 1), generator))
    shares = torch.bincount(drawn[:, 0], minlength=3) / 4000
    torch.testing.assert_close(shares, torch.softmax(soft[0, 0], -1), rtol=0.0, atol=0.03)


def corners(learner, updates=600):
    """Train on one good corner, seldom, and three others; return the corner that is chosen."""
    random, one = np.random.default_rng(0), np.ones(128, np.float32)
    states = {"state": np.ones((128, 1), np.float32)}
    for _ in range(updates):
        drawn = random.choice(4, size=128, p=[0.1, 0.3, 0.3, 0.3])
        actions = np.array([[-0.5, -0.5], [-0.5, 0.5], [0.5, -0.5], [0.5, 0.5]], np.float32)[drawn]
        rewards = np.array([1.0, -1.0, 0.1, 0.2], np.float32)[drawn]
        extras = {"from_expert": np.zeros(128, np.bool_)}
        learner.update(Batch(states, actions, rewards, 0 * one, one, states, one, one > 2, extras))
    return [float(value) for value in np.sign(learner.policy.act({"state": np.ones(1, np.float32)}, deterministic=True))]


@pytest.mark.slow
def test_rare_good_corner_is_chosen():
    assert corners(CORNERS.build(SPEC, 0)) == [-1.0, -1.0]


@pytest.mark.slow
def test_elements_that_do_not_see_each_other_miss_it(monkeypatch):
    plain = Choices.forward

    def blind(self, observations, contexts, choices):
        return plain(self, observations, torch.zeros_like(contexts), choices)

    monkeypatch.setattr(Choices, "forward", blind)
    assert corners(CORNERS.build(SPEC, 0)) != [-1.0, -1.0]


@pytest.mark.parametrize(("form", "expected"), [("margin", (0.5 + 1.0) / 2), ("cql", 0.1 * np.log(np.exp(5) + np.exp(10)))])
def test_conservative_losses_by_hand(form, expected):
    learner = replace(SMALL, conservative=form, temperature=0.1).build(SPEC, 0)
    soft = torch.tensor([[[[0.0, 0.5, 1.0]], [[9.0, 0.0, 0.0]]]])  # one member, two rows, one choice
    taken = soft[..., :1]
    found = learner.conservative_loss(soft, taken, torch.tensor([True, False]))
    assert float(found) == pytest.approx(expected, rel=1e-5)
    assert float(learner.conservative_loss(soft, taken, torch.tensor([False, True]))) == 0.0


def test_target_is_the_smaller_soft_value():
    learner = SMALL.build(SPEC, 0)
    learner.target_value.forward = lambda features: torch.stack([torch.full((len(features),), value) for value in (3.0, 2.0)])
    one = np.ones(2, np.float32)
    states = {"state": np.zeros((2, 1), np.float32)}
    batch = Batch(states, np.zeros((2, 2), np.float32), one, np.array([1, 0], np.float32), 0.9 * one, states, one, one > 2, {})
    np.testing.assert_allclose(learner.target(learner.parts.batch(batch)), [1.0 + 0.9 * 2.0, 1.0], rtol=1e-6)


def test_good_own_episodes_count_as_the_experts():
    spec = make_spec("one", STATE)
    extras = (GoodEpisodes("success", threshold=2.0),)
    buffer = ReplayBuffer(spec, 100, 0, extras=extras)
    for reward in (1.0, 0.1):
        episode = make_episode({"state": np.full((4, 1), reward, np.float32)}, rewards=np.full(3, reward, np.float32))
        buffer.begin(episode.transition(0).observation)
        for step in range(3):
            buffer.add(episode.transition(step))
    batch = buffer.sample(64)
    np.testing.assert_array_equal(batch.extras["from_expert"], batch.observations["state"][:, 0] == 1.0)
    poor = make_episode({"state": np.zeros((4, 1), np.float32)}, success=True)
    assert RecordedReplay.of(spec, [poor], 0, extras=extras).sample(8).extras["from_expert"].all()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"bins": 1}, "2 or more"),
        ({"levels": 0}, "1 or more"),
        ({"conservative": "hard"}, "margin"),
        ({"temperature": 0.0}, "above 0"),
    ],
)
def test_wrong_settings_are_one_error(changes, said):
    with pytest.raises(InvalidSetting, match=said):
        updated(SMALL, changes)
