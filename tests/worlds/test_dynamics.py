"""Ensembles of dynamics: the loss by hand, early stopping, exact resumes, refused data."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from worlds.point import SMALL, SPEC, episodes, learned

from factories import choices, make_spec, picture_spec
from robo_rl.errors import InvalidSetting
from robo_rl.spec.environment import ArraySpec
from robo_rl.worlds.dynamics import BOUND_WEIGHT, Dynamics, DynamicsConfig
from robo_rl.worlds.fitting import DynamicsFit
from robo_rl.worlds.imagining import Draw, Imagination
from robo_rl.worlds.steps import Steps, arrays_of, coded, require_predictable


def test_steps_know_ends_and_successes():
    steps = Steps.of_episode(SPEC, found := next(each for each in episodes(60) if each.success))
    assert steps.ends.tolist() == steps.successes.tolist() == [False] * (len(found) - 1) + [True]
    np.testing.assert_array_equal(steps.following[:-1], steps.states[1:])
    failed = next(each for each in episodes(60) if each.terminated and not each.success)
    steps = Steps.of_episode(SPEC, failed)
    assert steps.ends[-1] and not steps.successes.any()
    late = Steps.of_episode(SPEC, next(each for each in episodes(60) if each.truncated))
    assert not late.ends.any()  # a time limit is no end of the task


@given(st.integers(1, 5), st.integers(0, 100))
def test_states_and_observations_are_the_same(rows, seed):
    spec = make_spec("shapes", ArraySpec("a", (2, 3)), ArraySpec("b", ()), ArraySpec("c", (1,)))
    states = np.random.default_rng(seed).normal(size=(rows, 8)).astype(np.float32)
    arrays = arrays_of(spec, states)
    assert arrays["a"].shape == (rows, 2, 3) and arrays["b"].shape == (rows,)
    np.testing.assert_array_equal(spec.observation.stack(arrays), states)
    arrays["a"][:] = 0
    assert states.any()  # copies


def test_penalty_is_taken_from_the_reward_where_members_disagree():
    dynamics, states = learned().dynamics, np.array([[0.0, 1.0], [0.3, 1.0], [4.0, 1.0]], np.float32)
    draw, actions = Draw.none(dynamics, 3), np.array([[0.1], [0.5], [1.0]], np.float32)
    free = Imagination(SPEC, dynamics).step(states, actions, draw)
    costly = Imagination(SPEC, dynamics, 2.0).step(states, actions, draw)
    assert free.disagreement[2] > free.disagreement[0] > 0  # nobody was ever at 4
    taken = 2.0 * float(dynamics.scale[-1]) * free.disagreement
    np.testing.assert_allclose(costly.rewards, free.rewards - taken, rtol=1e-5)
    np.testing.assert_array_equal(costly.states, free.states)
    alone = Dynamics(2, 1, replace(SMALL, members=1, elites=1))
    with pytest.raises(InvalidSetting, match=r"members that can disagree(.|\n)*2 elites"):
        Imagination(SPEC, alone, 1.0)


def test_loss_is_the_gaussian_likelihood_with_cross_entropy():
    dynamics = Dynamics(1, 1, DynamicsConfig(hidden=(4,), members=2, elites=1))
    inputs, targets = torch.randn(2, 3, 2), torch.randn(2, 3, 2)
    flags = torch.tensor([[[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]]).expand(2, 3, 2)
    means, logs, logits = dynamics(inputs)
    assert logs.min() > -10.1 and logs.max() < 0.6
    by_hand = 0.0
    for member in range(2):
        spread = torch.exp(logs[member])
        surprise = (targets[member] - means[member]) ** 2 / spread + logs[member]
        by_hand += surprise[:, 0].mean() + surprise[:, 1].mean()  # the state, and the reward
        chance = torch.sigmoid(logits[member])
        by_hand -= (flags[member] * chance.log() + (1 - flags[member]) * (1 - chance).log()).mean(0).sum()
    by_hand += BOUND_WEIGHT * 2 * 10.5
    assert dynamics.loss(inputs, targets, flags).item() == pytest.approx(by_hand.item(), rel=1e-5)


@pytest.mark.slow
def test_fit_stops_when_held_out_rows_gain_nothing():
    steps = Steps.joined([Steps.of_episode(SPEC, each) for each in episodes(20)])
    noise = replace(steps, following=np.random.default_rng(0).normal(size=steps.states.shape).astype(np.float32))
    fit = DynamicsFit(noise, replace(SMALL, patience=2, epochs=100))
    fit.run()
    assert fit.epoch < 50
    best = fit.dynamics.errors(*fit._held_out)
    np.testing.assert_allclose(best, fit.errors, rtol=1e-4)  # the parameters are those of the least error
    assert fit.dynamics.elites.tolist() == fit.errors.argsort()[:2].tolist()


@pytest.mark.parametrize(("name", "value"), [("elites", 9), ("held_out", 0.0), ("members", 0), ("lr", -1.0), ("hidden", (0,))])
def test_settings_out_of_range_are_refused(name, value):
    with pytest.raises(InvalidSetting, match=name):
        DynamicsConfig(**{name: value})


def test_pictures_are_not_predicted():
    pictures = make_spec("seen", picture_spec(), ArraySpec("x", (2,)))
    with pytest.raises(InvalidSetting, match=r"predicts vectors of numbers(.|\n)*camera_front(.|\n)*encode pictures"):
        require_predictable(pictures)


def test_discrete_actions_are_one_hot():
    spec = make_spec("grid", ArraySpec("x", (1,)), action=choices("left", "right"))
    np.testing.assert_array_equal(coded(spec, np.array([1, 0])), [[0, 1], [1, 0]])
