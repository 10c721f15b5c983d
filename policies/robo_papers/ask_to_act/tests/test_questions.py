"""Questions that cost something: bits learned, the best number of them, and what a policy learns to ask."""

from __future__ import annotations

import numpy as np
import pytest

from robo_bench.trainings import Silent
from robo_papers.ask_to_act.environment import best_questions
from robo_policies.learners.ppo import PPOConfig
from robo_policies.networks.policy_value import PolicyValueNetwork
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting
from robo_rl.evaluation.evaluation import evaluate
from robo_rl.rollout.episode import rollout
from robo_rl.training.on_policy import Normalization

NAME = "questions/Fetch-v0"


@pytest.mark.parametrize("objects", [1, 2, 3, 4, 8])
def test_the_script_asks_as_often_as_needed(objects):
    environment = make_environment(NAME, objects=objects)
    episodes = [rollout(environment, environment.get_wrapper_attr("scripted_policy")(seed), seed=seed) for seed in range(20)]
    assert all(episode.success for episode in episodes)
    asked = [int((episode.actions >= 3).sum()) for episode in episodes]
    assert max(asked) == int(np.ceil(np.log2(objects)))
    if objects in (1, 2, 4, 8):
        assert min(asked) == max(asked)


def test_bits_are_paid_once_and_add_up_to_the_entropy():
    environment = make_environment(NAME, objects=8, information=0.5, question_cost=0.0, step_cost=0.0)
    environment.reset(seed=3)
    paid = [environment.step(np.asarray(action))[1] for action in (3, 3, 4, 6, 5, 5, 4, 3)]
    np.testing.assert_allclose(paid, [0.5, 0, 0.5, 0, 0.5, 0, 0, 0])  # the last bit is the same for all
    assert sum(paid) == pytest.approx(0.5 * 3)


def test_a_bonus_for_each_question_can_be_farmed():
    environment = make_environment(NAME, objects=4, information=0.5, question_cost=0.0, step_cost=0.0, bonus="question")
    environment.reset(seed=3)
    assert sum(environment.step(np.asarray(3))[1] for _ in range(6)) == pytest.approx(3.0)


def test_the_best_number_of_questions_by_hand():
    assert [best_questions(objects, 0.05) for objects in (1, 2, 4, 8)] == [0, 1, 2, 3]
    assert [best_questions(4, cost) for cost in (0.3, 0.37, 0.38, 0.6)] == [2, 2, 0, 0]  # 1 - 2 c against 1/4


def test_answers_by_chance_say_nothing_and_leave_a_candidate():
    environment = make_environment(NAME, objects=4, answers="shuffled")
    right = []
    for seed in range(200):
        observation, _ = environment.reset(seed=seed)
        for action in (3, 4):
            observation, *_ = environment.step(np.asarray(action))
        assert observation["candidates"].sum() >= 1
        left = int(np.argmax(observation["candidates"]))
        right.append(left == environment.unwrapped.simulation._target)
    assert 0.15 < np.mean(right) < 0.35


def test_bad_arguments_have_one_clear_error():
    for wrong in ({"objects": 0}, {"question_cost": -1.0}, {"answers": "maybe"}, {"bonus": "words"}):
        with pytest.raises(InvalidSetting, match=next(iter(wrong))):
            make_environment(NAME, **wrong)


def asked_after_training(**arguments) -> tuple[float, float]:
    config = PPOConfig(
        num_envs=16,
        steps_per_env=64,
        batch_size=128,
        network=PolicyValueNetwork(hidden=(32,)),
        lr=3e-3,
        normalize=Normalization(rewards=False),
        entropy_coefficient=0.01,
    )
    training = config.training(lambda: make_environment(NAME, **arguments), steps=16_000, seed=0)
    training.run(Silent())
    found = evaluate(training.policy, make_environment(NAME, **arguments), seeds=range(50))
    return float(np.mean(found.measured["questions"])), float(np.mean([bool(each) for each in found.successes]))


@pytest.mark.slow
def test_a_policy_asks_one_question_and_none_if_it_is_dear():
    asked, success = asked_after_training(objects=2)
    assert 0.9 < asked < 1.2 and success > 0.95
    dear, _ = asked_after_training(objects=2, question_cost=0.9, information=0.0)
    assert dear < 0.1
