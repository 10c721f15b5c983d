"""MOPO: recorded steps alone, one fit, doubtful steps that cost reward, exact resume."""

from __future__ import annotations

import numpy as np
import pytest

from factories import axes, make_episode, make_spec
from robo_app.recipes.recipe import read_recipe
from robo_bench.trainings import Silent
from robo_papers.mopo.learner import WORLDS, MOPOConfig
from robo_rl.conformance.learners import different_leaves
from robo_rl.errors import InvalidSetting
from robo_rl.settings import updated
from robo_rl.spec.environment import ArraySpec
from robo_rl.training.off_policy import OfflineTraining

SPEC = make_spec("a/Line", ArraySpec("x", (1,), low=-5.0, high=5.0), action=axes("dx"), max_steps=10)
SMALL = {
    "network": {"hidden": (16,)},
    "batch_size": 20,
    "worlds": {"every": 10, "branches": 30, "horizon": 2, "members": 3, "elites": 3, "hidden": (16,), "updates": 40},
}


def episodes(count=20, steps=10):
    """Returns walks x' = x + 0.4 a by random actions, with reward x'."""
    found, random = [], np.random.default_rng(0)
    for seed in range(count):
        actions = random.uniform(-1, 1, (steps, 1)).astype(np.float32)
        places = np.concatenate([[[random.uniform(-1, 1)]], 0.4 * actions]).cumsum(0).astype(np.float32)
        found.append(
            make_episode(
                {"x": places},
                actions=actions,
                policy_actions=actions,
                rewards=places[1:, 0],
                truncated=True,
                seed=seed,
                spec_fingerprint=SPEC.fingerprint,
            )
        )
    return found


def training(steps=25, **worlds):
    config = updated(MOPOConfig(), SMALL, {"worlds": worlds})
    learner = config.build(SPEC, 0)
    return OfflineTraining(SPEC, learner, config.sampling, steps=steps, seed=0, demonstrations=episodes())


def run(found, until=None):
    found.steps = until or found.steps
    found.run(Silent())
    return found


def test_world_is_fitted_once_and_branches_are_renewed():
    found = run(training(penalty=0.0))
    assert found.branches.metrics["world/fits"] == 1
    assert 100 < len(found.branches.memory) <= 3 * 30 * 2  # branches of steps 1, 11 and 21


def imagined_rewards(**worlds):
    found = run(training(steps=1, **worlds))
    return found.branches.memory.sample(500).rewards


def test_doubt_costs_reward():
    free, costly = imagined_rewards(penalty=0.0), imagined_rewards(penalty=3.0)
    assert costly.mean() < free.mean() - 0.01
    assert MOPOConfig().worlds.penalty == WORLDS.penalty > 0


def test_share_of_batches_is_imagined():
    found = run(training(steps=1, share=0.9, penalty=500.0))
    assert found.sampler.share == 0.9
    rewards = found.sampler.sample(20).rewards
    assert (rewards < -5).sum() == 18  # no recorded reward is that low


def test_resume_is_exact():
    whole, begun, resumed = training(), run(training(), until=12), training()
    resumed.load_state_dict(begun.state_dict())
    run(whole), run(resumed)
    assert different_leaves({**whole.state_dict(), "training": 0}, {**resumed.state_dict(), "training": 0}) == []


def test_without_a_world_it_is_sac_on_recorded_steps():
    found = run(training(share=0.0))
    assert found.branches is None and found.sampler is found.replay


def test_recipe_and_refused_settings():
    assert read_recipe("offline-mopo").algorithm == "mopo"
    with pytest.raises(InvalidSetting, match=r"worlds.penalty"):
        updated(MOPOConfig(), {"worlds": {"penalty": -1.0}})
