"""MOREC: judges tell real transitions, the choice by hand, branches that stop, exact resume, fewer errors of the chosen."""

from __future__ import annotations

import numpy as np
import pytest

from factories import axes, make_episode, make_spec
from robo_bench.trainings import Silent
from robo_papers.morec.learner import MORECConfig, MORECWorlds, choice, pick
from robo_papers.morec.plausibility import GameConfig, Plausibility
from robo_rl.conformance.learners import different_leaves
from robo_rl.errors import InvalidSetting
from robo_rl.settings import updated
from robo_rl.spec.environment import ArraySpec
from robo_rl.training.off_policy import OfflineTraining
from robo_rl.worlds.imagining import Imagined
from robo_rl.worlds.steps import Steps

SPEC = make_spec("a/Line", ArraySpec("x", (1,), low=-5.0, high=5.0), action=axes("dx"), max_steps=10)
GAME = {"hidden": (16,), "judges": 2, "updates": 4}
SMALL = {
    "network": {"hidden": (8,)},
    "batch_size": 20,
    "worlds": {
        "every": 10,
        "branches": 30,
        "horizon": 4,
        "members": 2,
        "elites": 2,
        "hidden": (8,),
        "updates": 10,
        "game": GAME,
    },
}


def episodes(count=40, steps=10):
    """Returns walks x' = x + 0.4 a by random actions, with reward x'."""
    found, random = [], np.random.default_rng(0)
    for seed in range(count):
        actions = random.uniform(-1, 1, (steps, 1)).astype(np.float32)
        places = np.concatenate([[[random.uniform(-1, 1)]], 0.4 * actions]).cumsum(0).astype(np.float32)
        told = {"rewards": places[1:, 0], "truncated": True, "seed": seed, "spec_fingerprint": SPEC.fingerprint}
        found.append(make_episode({"x": places}, actions=actions, policy_actions=actions, **told))
    return found


def training(steps=12, **worlds):
    config = updated(MORECConfig(), SMALL, {"worlds": worlds})
    return OfflineTraining(SPEC, config.build(SPEC, 0), config.sampling, steps=steps, seed=0, demonstrations=episodes())


def run(found, until=None):
    found.steps = until or found.steps
    found.run(Silent())
    return found


@pytest.mark.slow
def test_judges_tell_real_transitions_from_others():
    steps = Steps.joined([Steps.of_episode(SPEC, each) for each in episodes()])
    judges = Plausibility(1, 1, GameConfig(hidden=(64,), judges=5, updates=800), 0).fit(steps)
    away = 0.3 * np.sign(np.random.default_rng(1).normal(size=steps.states.shape)).astype(np.float32)
    real, wrong = (judges.scores(steps.states, steps.actions, steps.following + shift) for shift in (0 * away, away))
    assert (real[:, None] > wrong[None]).mean() > 0.9  # area under the ROC curve


def test_scores_of_nan_are_zero_and_of_a_constant_element_do_not_matter():
    judges = Plausibility(1, 1, GameConfig(hidden=(4,), judges=2), 0)
    zero = np.zeros((2, 1), np.float32)
    found = judges.scores(zero, zero, np.array([[np.nan], [0.1]], np.float32))
    assert found[0] == 0.0 < found[1]
    judges.scale.zero_()
    assert np.ptp(judges.scores(zero, zero, np.array([[0.0], [3.0]], np.float32))) == 0.0


def test_choice_is_the_softmax_of_scores():
    scores = np.repeat(np.array([[0.0], [0.1], [0.3]], np.float32), 20_000, 1)
    chosen = choice(scores, 0.1, np.random.default_rng(0))
    wanted = np.exp([0.0, 1.0, 3.0]) / np.exp([0.0, 1.0, 3.0]).sum()
    np.testing.assert_allclose(np.bincount(chosen, minlength=3) / 20_000, wanted, atol=0.01)


def test_chosen_candidates_keep_what_belongs_to_them():
    drawn = [
        Imagined(np.full((2, 1), k), np.full(2, 10.0 * k), np.full(2, k == 1), np.zeros(2, bool), np.full(2, 0.1 * k))
        for k in range(3)
    ]
    found = pick(drawn, np.array([2, 1]))
    assert found.states[:, 0].tolist() == [2, 1] and found.rewards.tolist() == [20, 10]
    assert found.ends.tolist() == [False, True] and found.disagreement.tolist() == [0.2, 0.1]


def test_branches_stop_where_nothing_is_plausible():
    whole, stopped = (run(training(steps=1, least_score=least)).branches.memory for least in (0.0, 100.0))
    assert len(whole) == len(stopped) == 30 * 4  # where a branch is over, another begins
    rows = stopped.state_dict()["rows"]["vectors"][:, 0].reshape(-1, 30)
    real = np.concatenate([each.observations["x"][:-1, 0] for each in episodes()])
    assert np.isin(rows[0], real).all()
    masks = [memory.sample(400).masks.mean() for memory in (whole, stopped)]
    assert masks[1] > 0.8 * masks[0]  # stopped is not ended: the value goes on


def test_resume_is_exact():
    whole, begun, resumed = training(), run(training(), until=5), training()
    resumed.load_state_dict(begun.state_dict())
    run(whole), run(resumed)
    assert different_leaves({**whole.state_dict(), "training": 0}, {**resumed.state_dict(), "training": 0}) == []


@pytest.mark.parametrize("wrong", [{"candidates": 0}, {"temperature": 0.0}, {"least_score": -1.0}])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(InvalidSetting, match=f"worlds.{next(iter(wrong))}"):
        MORECWorlds(**wrong)
