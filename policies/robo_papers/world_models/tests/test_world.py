"""A world predicts what it was fitted to, alone as beside others; it is kept whole, and its fit goes on bit for bit."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from worlds.point import SMALL, SPEC, episode, episodes, learned

from factories import random_episode
from robo_papers.world_models.world import UNDER_WAY, fit_world, load_world
from robo_rl.errors import CheckpointCorrupt, InvalidSetting
from robo_rl.worlds.imagining import Draw


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
    with pytest.raises(InvalidSetting, match=r"no steps to learn a world from"):
        fit_world(SPEC, [], SMALL)
    with pytest.raises(InvalidSetting, match=r"too few steps(.|\n)*got: +1"):
        fit_world(SPEC, [random_episode(SPEC, 1)], SMALL)
    unsound = episode(0)
    unsound.rewards[1] = np.nan
    with pytest.raises(InvalidSetting, match=r"The rewards of an episode are not finite(.|\n)*seed 0"):
        fit_world(SPEC, [unsound], SMALL)
