"""Ensembles of dynamics: the loss by hand, early stopping, exact resumes, refused data."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from worlds.point import SMALL, SPEC, episode, episodes, learned

from factories import choices, make_spec, picture_spec, random_episode
from robo_rl.errors import CheckpointCorrupt, InvalidSetting
from robo_rl.spec.environment import ArraySpec
from robo_rl.worlds.dynamics import BOUND_WEIGHT, Dynamics, DynamicsConfig
from robo_rl.worlds.fitting import DynamicsFit
from robo_rl.worlds.imagining import Draw, Imagination
from robo_rl.worlds.steps import Steps, arrays_of, coded, require_predictable
from robo_rl.worlds.world import UNDER_WAY, fit_world, load_world


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


def test_world_predicts_the_point():
    world = learned()
    states = np.array([[0.5, 1.0], [0.5, 1.0], [0.95, 1.0]], np.float32)
    actions = np.array([[1.0], [-1.0], [1.0]], np.float32)
    following, rewards = world.imagination.mean_step(states, actions)
    np.testing.assert_allclose(following[:, 0], [0.9, 0.1, 1.35], atol=0.05)
    assert (following[:, 1] == 1).all()  # what never changed does not drift
    np.testing.assert_allclose(rewards, -following[:, 0], atol=0.1)
    draw = Draw.of(np.random.default_rng(0), world.dynamics, 600)
    found = world.imagination.step(np.repeat(states, 200, 0), np.repeat(actions, 200, 0), draw)
    for told in (found.ends, found.successes):
        shares = told.reshape(3, 200).mean(1)
        assert shares[0] < 0.3 and shares[1] < 0.05 and shares[2] > 0.5, shares
    assert world.knows_success and world.facts["episodes"] == 80


def test_rows_do_not_depend_on_their_neighbours():
    world, random = learned(), np.random.default_rng(1)
    states, actions = random.normal(size=(200, 2)).astype(np.float32), random.uniform(-1, 1, (200, 1)).astype(np.float32)
    draw = Draw.of(random, world.dynamics, 200)
    together = world.imagination.step(states, actions, draw)
    for row in (0, 63, 64, 199):
        part = slice(row, row + 1)
        alone = world.imagination.step(states[part], actions[part], Draw(*(each[part] for each in draw)))
        assert alone.states.tobytes() == together.states[row : row + 1].tobytes()


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


class Killed(Exception):
    pass


def killed_after(passes):
    def shown(numbers, title):
        for number in numbers:
            if number == passes:
                raise Killed
            yield number

    return shown


def test_interrupted_fit_goes_on_bit_for_bit(tmp_path):
    config = replace(SMALL, epochs=6)
    whole = fit_world(SPEC, episodes(20), config)
    with pytest.raises(Killed):
        fit_world(SPEC, episodes(20), config, folder=tmp_path, passes=killed_after(3))
    assert (tmp_path / UNDER_WAY).exists()
    with pytest.raises(CheckpointCorrupt, match=r"a fit that is not over(.|\n)*same `robo-rl world fit`"):
        load_world(tmp_path)
    with pytest.raises(InvalidSetting, match=r"Another fit is under way(.|\n)*other data or settings"):
        fit_world(SPEC, episodes(19), config, folder=tmp_path)
    again = fit_world(SPEC, episodes(20), config, folder=tmp_path)
    for name, values in whole.dynamics.state_dict().items():
        assert torch.equal(values, again.dynamics.state_dict()[name]), name
    assert whole.facts == again.facts


def test_saved_world_is_the_same(tmp_path):
    learned().save(tmp_path / "w")
    again = load_world(tmp_path / "w")
    assert again.spec == SPEC and again.facts == dict(learned().facts)
    one, other = (world.imagination.mean_step(world.states[:5], world.actions[:5]) for world in (learned(), again))
    np.testing.assert_array_equal(one[0], other[0])


def test_damaged_world_is_refused(tmp_path):
    learned().save(tmp_path / "w")
    file = next((tmp_path / "w").rglob("world.safetensors"))
    file.write_bytes(file.read_bytes()[:-7])
    with pytest.raises(CheckpointCorrupt, match="No checkpoint"):
        load_world(tmp_path / "w")
    with pytest.raises(CheckpointCorrupt, match=r"There is no world in none(.|\n)*no such folder(.|\n)*robo-rl world fit"):
        load_world("none")


def test_data_without_what_is_needed_are_refused():
    pictures = make_spec("seen", picture_spec(), ArraySpec("x", (2,)))
    with pytest.raises(InvalidSetting, match=r"predicts vectors of numbers(.|\n)*camera_front(.|\n)*encode pictures"):
        require_predictable(pictures)
    with pytest.raises(InvalidSetting, match=r"no steps to learn a world from"):
        fit_world(SPEC, [], SMALL)
    with pytest.raises(InvalidSetting, match=r"too few steps(.|\n)*got: +1"):
        fit_world(SPEC, [random_episode(SPEC, 1)], SMALL)
    unsound = episode(0)
    unsound.rewards[1] = np.nan
    with pytest.raises(InvalidSetting, match=r"The rewards of an episode are not finite(.|\n)*seed 0"):
        fit_world(SPEC, [unsound], SMALL)


@pytest.mark.parametrize(("name", "value"), [("elites", 9), ("held_out", 0.0), ("members", 0), ("lr", -1.0), ("hidden", (0,))])
def test_settings_out_of_range_are_refused(name, value):
    with pytest.raises(InvalidSetting, match=name):
        DynamicsConfig(**{name: value})


def test_discrete_actions_are_one_hot():
    spec = make_spec("grid", ArraySpec("x", (1,)), action=choices("left", "right"))
    np.testing.assert_array_equal(coded(spec, np.array([1, 0])), [[0, 1], [1, 0]])
