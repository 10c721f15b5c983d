"""EXPRD: constraints to 1e-6, the same optimal actions, informativeness by hand, and learning that it makes faster."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from robo_papers.exprd.designer import SLACK, Designer, ExpRDSettings
from robo_papers.exprd.reward import DesignedReward, seen_policy
from robo_papers.exprd.study import steps_to_solve
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting
from robo_rl.rewards.step_rewards.place import Place
from robo_rl.rewards.step_rewards.steps import Steps
from robo_rl.rollout.episode import RandomPolicy, rollout
from robo_rl.spec.environment import specification
from robo_sims.policy_iteration import optimal_values

DISCOUNT = 0.9


def chain(length=6):
    """Return a chain with a way on and a way back, whose last state but one pays 1 and leads to the end."""
    moves, rewards = np.zeros((length, 2, length)), np.zeros((length, 2))
    for state in range(length - 1):
        moves[state, 0, min(state + 1, length - 1)] = moves[state, 1, max(state - 1, 0)] = 1.0
    moves[length - 2] = np.eye(length)[length - 1]
    moves[length - 1, :, length - 1] = 1.0
    rewards[length - 2] = 1.0
    return moves, rewards


def designer(**changes):
    return Designer(*chain(), ExpRDSettings(discount=DISCOUNT, horizons=(1, 2), **changes))


@cache
def in_rooms():
    rooms = make_environment("tabular/FourRooms-v0").get_wrapper_attr("simulation")
    moves, rewards = rooms.moves, rooms.rewards
    made = Designer(moves, rewards)
    return made, made.grown(np.flatnonzero(rewards.any(1)).tolist(), 1)


def test_optimal_values_of_a_chain():
    values = optimal_values(*chain(), DISCOUNT)
    np.testing.assert_allclose(values[:, 0], [DISCOUNT**4, DISCOUNT**3, DISCOUNT**2, DISCOUNT, 1.0, 0.0])
    np.testing.assert_allclose(values[1, 1], DISCOUNT * DISCOUNT**4)


@pytest.mark.slow
def test_constraints_hold_and_optimal_actions_stay():
    made, design = in_rooms()
    values = optimal_values(made.moves, design.rewards, made.settings.discount)
    best = values.max(1, keepdims=True)
    assert ((values >= best - 1e-6) == made.is_best).all()
    others = np.where(made.is_best, -np.inf, values).max(1)
    assert (best[:, 0] - others >= made.gaps - 1e-6)[np.isfinite(others)].all()
    assert np.abs(design.rewards).max() <= made.settings.largest + 1e-9
    assert not design.rewards[[state for state in range(len(values)) if state not in design.states]].any()


def test_informativeness_is_the_mean_of_missing_gaps():
    made = designer()
    design = made.design([4])
    gaps = (
        np.array(
            [*(DISCOUNT**4 - DISCOUNT * DISCOUNT**4,), *(DISCOUNT ** (4 - s) - DISCOUNT ** (6 - s) for s in (1, 2, 3)), 0, 0]
        )
        / SLACK
    )
    np.testing.assert_allclose(made.gaps, gaps, atol=1e-12)
    reward = design.rewards[4].mean()
    seen = np.zeros((2, 6))
    seen[1, 3] = DISCOUNT * reward  # within two steps the way on from state 3 is paid, the way back is not
    np.testing.assert_allclose(design.informativeness, -np.maximum(gaps - seen, 0.0).mean(), rtol=1e-6)


def test_more_states_say_more():
    made = designer(largest=2.0)
    found = [made.grown([4], more).informativeness for more in (0, 1, 2)]
    assert found[0] < found[1] < found[2] <= 1e-9


def test_sparsity_costs_rewards():
    plenty, few = (np.abs(designer(largest=2.0, sparsity=weight).grown([4], 2).rewards).sum() for weight in (0.0, 10.0))
    assert few < plenty


def test_impossible_places_are_one_error():
    with pytest.raises(InvalidSetting, match="keeps the gaps"):
        designer().design([0])
    for changes in ({"largest": 0.0}, {"discount": 1.0}, {"horizons": ()}, {"sparsity": -1.0}):
        with pytest.raises(InvalidSetting):
            ExpRDSettings(**changes)


@pytest.mark.slow
def test_q_learning_is_faster_with_the_designed_reward():
    made, design = in_rooms()
    paid = {"task": made.rewards, "designed": design.rewards, "misleading": -design.rewards}
    wide = {name: np.repeat(rewards[:, :, None], len(rewards), 2) for name, rewards in paid.items()}
    solved = {name: [steps_to_solve(made.moves, made.rewards, each, seed) for seed in range(4)] for name, each in wide.items()}
    task = np.mean(solved["task"])
    assert np.mean(solved["designed"]) < task
    assert np.mean(solved["misleading"]) > 2 * task


@pytest.mark.slow
def test_reward_of_a_recipe_is_the_table():
    environment = make_environment("tabular/FourRooms-v0")
    spec = specification(environment)
    episode = rollout(environment, RandomPolicy(spec, 0), seed=0)
    found = DesignedReward(states=1, environment="tabular/FourRooms-v0").label(episode)
    expected = in_rooms()[1].rewards[episode.observations["state"][:-1].argmax(-1), episode.actions]
    np.testing.assert_allclose(found.values, expected, rtol=1e-5)


def test_unknown_models_are_refused():
    with pytest.raises(InvalidSetting, match="whose model is known"):
        DesignedReward().online(specification(make_environment("hazards/Point-v0")), weight=1.0, discount=0.9).running(1)


def test_adapted_reward_keeps_the_constraints_and_agrees_most():
    made = designer(largest=2.0)
    policy, visits = np.full((6, 2), 0.5), np.array([0.5, 0.3, 0.2, 0, 0, 0])

    def agreement(rewards):
        advantages = made.values - made.values.max(1, keepdims=True)
        centred = [each - (policy * each).sum(1, keepdims=True) for each in (advantages, rewards)]
        return float((visits[:, None] * policy * centred[0] * centred[1]).sum())

    states = (0, 1, 2, 3, 4)
    adapted = made.adapted(states, policy, visits)
    values = optimal_values(made.moves, adapted, DISCOUNT)
    best = values.max(1)
    others = np.where(made.is_best, -np.inf, values).max(1)
    assert ((values >= best[:, None] - 1e-6) == made.is_best).all() and (best - others >= made.gaps - 1e-6)[:5].all()
    assert np.abs(adapted).max() <= 2.0 + 1e-9
    assert agreement(adapted) > agreement(made.design(states).rewards) - 1e-9
    elsewhere = made.adapted(states, policy, visits[::-1].copy())
    assert agreement(adapted) > agreement(elsewhere)  # another learner, another reward


@pytest.mark.slow
def test_a_running_reward_follows_the_steps():
    environment = make_environment("tabular/FourRooms-v0")
    spec = specification(environment)
    episode = rollout(environment, environment.get_wrapper_attr("scripted_policy")(0, noise=0.3), seed=0)
    reward = DesignedReward(states=1, environment="tabular/FourRooms-v0", adapts_every=len(episode))
    place = Place(spec, 0.95)
    reward.start(place)
    first = reward.table(place).copy()
    reward.score_steps(Steps.of(episode), place)
    second = reward.table(place)
    made, design = in_rooms()
    taken = np.zeros_like(made.rewards)
    np.add.at(taken, (episode.observations["state"][:-1].argmax(-1), episode.actions), 1.0)
    np.testing.assert_allclose(second, made.adapted(design.states, *seen_policy(taken)), atol=1e-9)
    assert not np.allclose(first, second)
    again = Place(spec, 0.95)
    again.memory.load_state_dict(place.memory.state_dict())
    np.testing.assert_array_equal(reward.table(again), second)
