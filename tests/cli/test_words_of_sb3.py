"""Settings under Stable-Baselines3's names: one error that says our name and its place, from Python and at a command line."""

from __future__ import annotations

import dataclasses

import pytest

from robo_app.recipes.overrides import recipe_from
from robo_app.recipes.recipe import read_recipe
from robo_app.training.train_options import Train, parsed
from robo_cli.main import dispatch
from robo_rl.entry_points import known, load
from robo_rl.errors import UnknownName
from robo_rl.settings import SYNONYMS, place_of

PLACES = [
    ("sac", "learning_rate", "learner.lr"),
    ("sac", "gamma", "learner.discount"),
    ("sac", "buffer_size", "learner.replay.capacity"),
    ("sac", "total_timesteps", "steps"),
    ("sac", "net_arch", "learner.network.hidden"),
    ("sac", "ent_coef", "learner.initial_temperature"),
    ("ppo", "ent_coef", "learner.entropy_coefficient"),
    ("ppo", "n_steps", "learner.steps_per_env"),
    ("ppo", "n_envs", "learner.num_envs"),
    ("sac", "eval_freq", "evaluation.every"),
]


@pytest.mark.parametrize(("learner", "word", "place"), PLACES)
def test_a_word_of_sb3_names_ours(learner, word, place, capsys):
    with pytest.raises(UnknownName, match=f"do: +write {place}"):
        recipe_from(learner, {word: 1})
    with pytest.raises(SystemExit) as ended:
        dispatch(["train", learner, "--environment", "CartPole-v1", f"--{word}", "1"])
    assert ended.value.code == 2 and f"write --{place.replace('_', '-')}\n" in capsys.readouterr().err


def test_a_word_within_learner_names_ours(capsys):
    with pytest.raises(UnknownName, match=r"do: +write learner\.lr"):
        recipe_from("sac", {"learner": {"learning_rate": 1.0}})
    with pytest.raises(UnknownName, match=r"do: +write learner\.batch_size"):
        recipe_from("sac", {"batch_size": 8})
    with pytest.raises(SystemExit):
        dispatch(["train", "sac", "--learner.buffer-size", "100"])
    assert "write --learner.replay.capacity\n" in capsys.readouterr().err


def test_learners_of_sb3_keep_its_words():
    assert recipe_from("sb3-sac", {"learner": {"gamma": 0.5}}).learner.gamma == 0.5
    assert parsed(Train, "sb3-sac", ["--learner.buffer-size", "100"]).recipe.learner.buffer_size == 100


@pytest.mark.slow
def test_every_synonym_is_a_setting_somewhere():
    kinds = [load("learners", name) for name in known("learners")]
    recipe = type(read_recipe("sac"))
    ours = [kind for kind in kinds if not kind.__module__.startswith("robo_policies.sb3")]
    for word in SYNONYMS:
        assert any(place_of(recipe, word, {"learner": kind}) for kind in ours), word


def test_no_option_of_train_is_a_setting_of_a_learner():
    own = {item.name for item in dataclasses.fields(Train)}
    for name in known("learners"):
        assert not own & {item.name for item in dataclasses.fields(load("learners", name))}, name
