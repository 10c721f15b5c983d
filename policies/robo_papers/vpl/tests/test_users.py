"""People who differ: what answers say of a person, what is learned from coin flips, and policies for each."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from factories import axes, make_episode, make_spec
from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset
from robo_datasets.labels import LabelSet
from robo_datasets.preferences import PreferenceSet
from robo_papers.vpl.model import Answers, Posterior, UserRewards, UsersConfig, fit_users, information_gain
from robo_papers.vpl.reward import UserReward, save
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting, SpecMismatch, UnknownName
from robo_rl.rewards.preferences.preference_reward import BradleyTerryConfig, Pairs, fit
from robo_rl.rollout.episode import rollout
from robo_rl.spec.environment import ArraySpec

SPEC = make_spec("plane", ArraySpec("position", (1,)), action=axes("x"))
CONFIG = UsersConfig(hidden=(64, 64), updates=500)


def answers_of(kinds: list[float], count: int = 60, seed: int = 0) -> dict[str, Pairs]:
    """Answers of people, each of whom wants to be near a place on the first axis."""
    random, users = np.random.default_rng(seed), {}
    for number, goal in enumerate(kinds):
        first, second = random.uniform(-1.5, 1.5, (2, count, 1, 2)).astype(np.float32)
        worth = [-np.abs(part[:, 0, 0] - goal) - np.abs(part[:, 0, 1]) for part in (first, second)]
        users[f"user{number}"] = Pairs(first, second, (worth[1] > worth[0]).astype(np.float32))
    return users


STEPS = np.random.default_rng(9).uniform(-1.5, 1.5, (500, 2)).astype(np.float32)


@pytest.fixture(scope="module")
def two_kinds():
    return fit_users(answers_of([1.0, -1.0] * 15), STEPS, CONFIG)


@pytest.mark.slow
def test_more_answers_tell_more_and_coin_flips_tell_nothing(two_kinds):
    found = two_kinds.accuracies
    assert found[0] < 0.8 < found[8] and found[3] > found[0] + 0.1 and found[16] > 0.9
    assert two_kinds.chance < found[0] + 0.06
    every = [*answers_of([1.0, -1.0] * 15).values()]
    whole = Pairs(*(np.concatenate(parts) for parts in zip(*every, strict=True)))
    averaged = fit(whole, STEPS, BradleyTerryConfig(hidden=(64,), epochs=10)).report["held_out"]
    assert averaged < 0.8  # one reward for all suits nobody


@pytest.mark.slow
def test_kinds_are_apart_and_more_answers_are_surer(two_kinds):
    model, answers = two_kinds.model, answers_of([1.0, -1.0] * 4, seed=3)
    latents = np.array([model.posterior(Answers.of(pairs)).mean.tolist() for pairs in answers.values()])
    between = np.linalg.norm(latents[::2].mean(0) - latents[1::2].mean(0))
    within = max(np.linalg.norm(part - part.mean(0), axis=1).mean() for part in (latents[::2], latents[1::2]))
    assert between > 3 * within
    one = answers["user0"]
    spread = [
        float(model.posterior(Answers.of(Pairs(*(part[:n] for part in one)))).precision.prod().detach()) for n in (0, 3, 16)
    ]
    assert spread[0] == 1.0 and spread[0] < spread[1] < spread[2]


@settings(max_examples=20, deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_order_of_answers_changes_nothing(shuffler):
    model = UserRewards(2, CONFIG)
    answers = Answers.of(answers_of([1.0], 12)["user0"])
    order = list(range(12))
    shuffler.shuffle(order)
    here, there = model.posterior(answers), model.posterior(answers.at(np.array(order)))
    torch.testing.assert_close(here.mean, there.mean, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(here.precision, there.precision, atol=1e-4, rtol=1e-4)


def test_divergence_and_shares_by_hand():
    posterior = Posterior(torch.tensor([1.0, 0.0]), torch.tensor([1.0, 4.0]))
    expected = 0.5 * (1 + 1 - 1 + 0) + 0.5 * (0.25 + 0 - 1 + np.log(4))
    assert float(posterior.divergence) == pytest.approx(expected)
    assert float(Posterior(torch.zeros(3), torch.ones(3)).divergence) == 0.0
    model = UserRewards(2, UsersConfig(hidden=(8,), compared=16))
    found = model.shares(STEPS[:30], np.zeros(4, np.float32))
    assert ((found > 0) & (found < 1)).all()
    own = model.rewards(torch.from_numpy(STEPS[:1]), torch.zeros(4)) - model.rewards(model.compared, torch.zeros(4))
    assert found[0] == pytest.approx(float(torch.sigmoid(own).mean().detach()), abs=1e-6)
    each = np.repeat(np.eye(2, 4, dtype=np.float32), 15, axis=0)
    apart = model.shares(STEPS[:30], each)
    np.testing.assert_allclose(apart[:15], model.shares(STEPS[:15], each[0]))
    np.testing.assert_allclose(apart[15:], model.shares(STEPS[15:30], each[-1]))


@pytest.mark.slow
def test_the_question_that_tells_the_kinds_apart_is_asked(two_kinds):
    telling = np.array([[[-1.0, 0.0]], [[0.0, 1.4]]], np.float32), np.array([[[1.0, 0.0]], [[0.0, 0.0]]], np.float32)
    pairs = Pairs(*telling, np.zeros(2, np.float32))  # left against right; and far against near, on which all agree
    prior = Posterior(torch.zeros(4), torch.ones(4))
    gains = information_gain(two_kinds.model, prior, pairs)
    assert gains[0] > 3 * gains[1] >= 0
    one = Answers.of(answers_of([1.0])["user0"])
    known = information_gain(two_kinds.model, two_kinds.model.posterior(one), pairs)
    assert known[0] < 0.3 * gains[0]  # nothing is left to ask


def fitted(folder) -> str:
    random = np.random.default_rng(0)
    answers = answers_of([1.0, -1.0], 8)
    config = UsersConfig(hidden=(8,), updates=2, compared=4)
    found = fit_users(answers, random.normal(size=(20, 2)).astype(np.float32), config)
    save(folder / "users", found, answers, config, SPEC, {"identities": ["a"]})
    return str(folder / "users")


def test_a_reward_is_of_a_user_or_of_the_one_who_is_observed(tmp_path):
    folder = fitted(tmp_path)
    one, other = UserReward(folder, "user0"), UserReward(folder, "user1")
    assert one.identity != other.identity and one.fitted_to == {"a"}
    positions = np.random.default_rng(1).normal(size=(5, 1)).astype(np.float32)
    actions = np.zeros((4, 1), np.float32)
    episode = make_episode({"position": positions}, actions=actions, spec_fingerprint=SPEC.fingerprint)
    values = one.label(episode).values
    latent = np.tile(one.saved.latent("user0"), (5, 1))
    seen = make_episode({"position": positions, "user": latent}, actions=actions)
    np.testing.assert_allclose(UserReward(folder).label(seen).values, values, atol=1e-6)
    positions[2] = np.inf
    assert not one.label(make_episode({"position": positions}, actions=actions)).valid[2]
    with pytest.raises(InvalidSetting, match="Whose reward"):
        UserReward(folder).label(episode)
    with pytest.raises(UnknownName, match="nobody"):
        UserReward(folder, "nobody").label(episode)
    with pytest.raises(UnknownName, match="user"):
        UserReward(folder, "user").label(episode)  # of two
    assert UserReward(folder, "average").label(episode).valid.tolist() == [True, True, False, True]
    with pytest.raises(SpecMismatch, match="position"):
        UserReward(folder, "user0").label(make_episode({"speed": positions}, actions=actions))


def test_bad_input_has_one_clear_error():
    few = {"anna": Pairs(np.zeros((2, 1, 2)), np.zeros((2, 1, 2)), np.zeros(2))}
    with pytest.raises(InvalidSetting, match="anna: 2"):
        fit_users(few, STEPS, CONFIG)
    with pytest.raises(InvalidSetting, match="no users"):
        fit_users({}, STEPS, CONFIG)
    for wrong in ({"latent": 0}, {"beta": -1.0}, {"held_out": 1.0}):
        with pytest.raises(InvalidSetting, match=next(iter(wrong))):
            UsersConfig(**wrong)


@pytest.mark.slow
def test_from_answers_to_a_policy_that_knows_its_user(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert dispatch(["record", "robo/ArmReach-v0", "--policy", "random", "--episodes", "4", "--out", "data"]) == 0
    gentle = ["--rater.settings.measures", "[-peak joint_velocity]"]
    ask = ["prefer", "data", "--name", "all", "--pairs", "20", "--length", "5", "--rater", "measures"]
    assert dispatch([*ask, *gentle]) == 0
    assert dispatch([*ask, "--rater.settings.measures", "[-last goal_from_gripper]"]) == 0
    fit_ = ["reward", "fit", "vpl", "--dataset", "data", "--preferences", "all", "--out", "users"]
    assert dispatch([*fit_, "--settings.updates", "20", "--settings.hidden", "16"]) == 0
    said = capsys.readouterr().out
    assert said.count("20 answers") == 2 and "coin flips" in said
    assert dispatch(["data", "personal", "data", "--users", "users", "--out", "both"]) == 0
    dataset = Dataset(tmp_path / "both")
    assert len(dataset) == 8 and dataset.card["arguments"]["wrappers"] == [{"name": "personal", "users": "users"}]
    assert dispatch(["label", "both", "--reward", "vpl", "--reward.settings.folder", "users", "--name", "vpl"]) == 0
    assert LabelSet.existing(dataset, "vpl").labelled == {entry.identity for entry in dataset.entries()}
    small = [
        "--learner.network.hidden",
        "8",
        "--learner.batch-size",
        "8",
        "--evaluation.every",
        "0",
        "--evaluation.episodes",
        "1",
    ]
    words = ["--dataset", "both", "--labels", "vpl", "--steps", "3", *small, "--evaluation.videos", "0"]
    assert dispatch(["train", "offline-iql", *words]) == 0
    environment = make_environment("robo/ArmReach-v0", max_steps=3, wrappers=[{"name": "personal", "users": "users"}])
    found = {rollout(environment, _Still(environment.environment_spec), seed=seed).metadata["user"] for seed in range(12)}
    assert len(found) == 2
    with pytest.raises(UnknownName):
        make_environment("robo/ArmReach-v0", wrappers=[{"name": "personal", "users": "users", "user": "nobody"}])
    more = ["prefer", "data", "--name", "new", "--pairs", "5", "--length", "5", "--rater", "measures", "--active", "users"]
    capsys.readouterr()
    assert dispatch([*more, *gentle]) == 0
    assert "5 pairs compared now" in capsys.readouterr().out
    assert len([*PreferenceSet(Dataset(tmp_path / "data"), "new")]) == 5
    assert dispatch([*more, *gentle]) == 0
    assert "0 pairs compared now" in capsys.readouterr().out


class _Still:
    def __init__(self, spec):
        self.environment_spec = spec

    def reset(self):
        pass

    def act(self, observation, *, deterministic=False):
        return np.zeros(self.environment_spec.action.size, np.float32)
