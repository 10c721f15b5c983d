"""Arms and a map: what they pay, what is seen, the best totals by counting, and a policy that needs its memory."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from robo_bench.trainings import Silent
from robo_papers.exploration_as_memory.environment import best_totals
from robo_policies.sb3.contrib import RecurrentPPOConfig
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting
from robo_rl.evaluation.evaluation import evaluate

NAME = "bandits/Map-v0"


def test_one_arm_pays_and_the_map_shows_it():
    environment = make_environment(NAME, arms=3, pulls=6)
    first, _ = environment.reset(seed=0)
    assert not any(values.any() for values in first.values())
    shown, paid, *_ = environment.step(np.asarray(3))
    arm = int(shown["shown"].argmax())
    assert paid == 0.0 and shown["shown"].sum() == 1 and shown["last_action"][3] == 1
    found = [environment.step(np.asarray(each)) for each in (arm, (arm + 1) % 3, arm, arm, arm)]
    assert [step[1] for step in found] == [1, 0, 1, 1, 1]
    assert [float(step[0]["last_reward"][0]) for step in found] == [1, 0, 1, 1, 1]
    assert not any(step[0]["shown"].any() for step in found)  # only right after the reading
    assert found[-1][3] and not found[-1][2] and found[-1][4]["measures"]["maps"] == 1


def test_controls_hide_and_redraw():
    hidden = make_environment(NAME, shows=False)
    hidden.reset(seed=0)
    for action in (8, 0, 1, 2, 3):
        observation = hidden.step(np.asarray(action))[0]
        assert not any(observation[name].any() for name in ("last_action", "last_reward", "shown"))
    redrawn = make_environment(NAME, redraws=True, pulls=400)
    redrawn.reset(seed=0)
    assert 20 < sum(redrawn.step(np.asarray(0))[1] for _ in range(400)) < 80


def test_the_best_totals_by_enumeration():
    for pulls in (1, 2, 5, 20):
        _, greedy, blind = best_totals(8, pulls)
        totals = []
        for paying in range(8):  # tried in order; every order is as good
            tried = [min(pull, paying) == paying for pull in range(pulls)]
            totals.append(sum(tried))
        assert greedy == pytest.approx(np.mean(totals)) and blind == pulls / 8
    assert best_totals(8, 20) == (19.0, 16.5, 2.5)
    assert best_totals(8, 1)[0] == pytest.approx(0.125)
    orders = [
        np.mean([sum(pull >= order.index(arm) for pull in range(3)) for arm in range(3)]) for order in permutations(range(3))
    ]
    assert set(orders) == {best_totals(3, 3)[1]}


@pytest.mark.parametrize(("name", "value"), [("arms", 1), ("pulls", 0), ("arms", 2.5), ("pulls", True)])
def test_numbers_out_of_range_are_refused(name, value):
    with pytest.raises(InvalidSetting, match=name):
        make_environment(NAME, **{name: value})


@pytest.mark.slow
def test_a_memory_finds_the_arm_and_none_does_not():
    """Two arms, four pulls: with what it saw a policy gets 3.5 of 4, without 2."""
    totals = []
    for shows in (True, False):
        settings = {"n_envs": 16, "n_steps": 16, "batch_size": 64, "gamma": 1.0, "learning_rate": 5e-3, "n_epochs": 4}
        config = RecurrentPPOConfig(**settings, policy_kwargs={"lstm_hidden_size": 16, "net_arch": []})
        training = config.training(
            lambda shows=shows: make_environment(NAME, arms=2, pulls=4, shows=shows), steps=10_240, seed=0
        )
        training.run(Silent())
        environment = make_environment(NAME, arms=2, pulls=4, shows=shows)
        totals.append(evaluate(training.policy, environment, 100).mean_return.estimate)
    assert totals[0] > 3.2 and totals[1] < 2.6
