"""A Python function as a reward: named, given as an object, checked before the first step."""

from __future__ import annotations

import numpy as np
import pytest

import robo_rl
from factories import random_episode
from robo_app.recipes.reward_file import read_reward
from robo_rl.code_names import name_of_object
from robo_rl.errors import InvalidSetting, ProgramFailed, UnknownName
from robo_rl.rewards.step_rewards.place import Place

SPEC = robo_rl.make_environment("robo/ArmReach-v0").environment_spec


def recorded():
    return random_episode(SPEC)


def size(batch):
    effort = -np.sum(batch["action"] ** 2, axis=1)
    return effort, {"effort": effort}


def of(function):
    return read_reward(name_of_object(function), {})


def test_a_function_is_named_with_its_module():
    reward = of(size)
    assert reward.name == "function" and reward.function.endswith("test_function_reward:size")
    assert reward.identity == of(size).identity != of(other).identity


def other(batch):
    return np.zeros(len(batch["action"]))


@pytest.mark.filterwarnings("ignore::robo_rl.code_names.NotImportable")
def test_labels_are_the_function_of_the_columns():
    episode = recorded()
    labels = of(size).label(episode)
    assert np.allclose(labels.values, -np.sum(np.clip(episode.actions, -1, 1) ** 2, axis=1), rtol=1e-6)


@pytest.mark.filterwarnings("ignore::robo_rl.code_names.NotImportable")
@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda batch: batch["hight"], r"KeyError(.|\n)*columns: .*action"),
        (lambda batch: 0.0, r"no reward for each step(.|\n)*total of shape \[\]"),
        (lambda batch: (batch["action"][:, 0], {"all": batch["action"]}), r"all of shape \[2, "),
    ],
)
def test_a_function_that_fails_is_refused_at_the_start(function, words):
    with pytest.raises(InvalidSetting, match=words):
        of(function).require(Place(SPEC))


def test_a_module_that_is_not_there_is_named():
    with pytest.raises(InvalidSetting, match=r"The module of the reward nowhere:reward cannot be imported"):
        _ = read_reward("nowhere:reward", {}).identity
    with pytest.raises(UnknownName, match=r"a function of your own is package\.module:function"):
        read_reward("nothing", {})


@pytest.mark.filterwarnings("ignore::robo_rl.code_names.NotImportable")
def test_numbers_that_are_not_finite_end_a_training_soon():
    reward = of(lambda batch: np.full(len(batch["action"]), np.nan))
    with pytest.raises(ProgramFailed, match="not finite"):
        reward.label(recorded())
