"""PPO-Saute: rewards of spent budgets, exact resume, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from costly import COSTS, SMALL, SPEC, STATE, check_it_goes_on_exactly, step_of
from factories import make_spec
from robo_papers.saute.learner import PPOSauteConfig
from robo_rl.errors import InvalidSetting
from robo_rl.settings import updated

SETTINGS = updated(PPOSauteConfig(), SMALL)


def test_saute_replaces_rewards_once_the_budget_is_spent():
    config = updated(SETTINGS, normalize={"rewards": False}, unsafe_reward=-3.0)
    learner, random = config.build(SPEC, 0), np.random.default_rng(0)
    learner.begin(step_of(random).observations)
    for number in range(8):
        ends = np.array([False, number == 3, False, False])
        learner.act()
        costs = [[0.5, 0], [1, 0], [0, 1], [0, 0]]  # limits 2 and 4
        learner.observe(step_of(random, costs=costs, terminated=ends, rewards=np.ones(4)))
    spent = learner.buffer.rewards < 0
    assert spent[:, 0].tolist() == [False] * 4 + [True] * 4
    assert spent[:, 1].tolist() == [False, False, True, True] * 2  # a new episode has a new budget
    assert spent[:, 2].tolist() == [False] * 4 + [True] * 4
    assert not spent[:, 3].any() and set(np.unique(learner.buffer.rewards)) == {-3.0, 1.0}


def test_saute_needs_a_budget():
    with pytest.raises(InvalidSetting, match=r"shows no budget(.|\n)*wrappers\.constrained\.budgets"):
        SETTINGS.build(make_spec("blind", STATE, costs=COSTS), 0)


@pytest.mark.parametrize("length", [0, 5])
def test_saved_and_loaded_gives_the_same_next_update(length, tmp_path):
    check_it_goes_on_exactly(SETTINGS, length, tmp_path)
