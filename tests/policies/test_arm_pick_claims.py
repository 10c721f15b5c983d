"""The claims of docs/learners/rlpd.md on the arm, three seeds each; minutes long."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from robo_cli.assembly import evaluator, record_demonstrations, training_of
from robo_cli.recipe import Recipe, read_recipe
from robo_rl.types import Metrics

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
SEEDS = (0, 1, 2)


class Deaf:
    """Observes nothing."""

    def on_episode(self, step: int, **outcome: object) -> None: ...

    def on_metrics(self, step: int, metrics: Metrics) -> None: ...

    def on_step(self, step: int, training: object) -> None: ...


def success(recipe: Recipe, seed: int) -> float:
    recipe = replace(recipe, seed=seed)
    demonstrations, _ = record_demonstrations(recipe, recipe.demonstrations)
    training = training_of(recipe, demonstrations)
    training.run(Deaf())
    rate = evaluator(recipe, 50)(training.policy).success_rate
    assert rate is not None
    return rate.estimate


@pytest.fixture(scope="module")
def rlpd() -> Recipe:
    return read_recipe("arm-pick-rlpd")


def test_rlpd_learns_to_pick(rlpd: Recipe) -> None:
    assert min(success(rlpd, seed) for seed in SEEDS) >= 0.9


def test_sac_without_demonstrations_does_not(rlpd: Recipe) -> None:
    sac = read_recipe("arm-pick-sac")
    assert sac.steps == rlpd.steps and sac.environment == rlpd.environment
    assert max(success(sac, seed) for seed in SEEDS) < 0.2


def test_without_its_demonstrations_rlpd_does_not(rlpd: Recipe) -> None:
    bare = replace(
        rlpd,
        learner=replace(rlpd.learner, offline_fraction=0.0),
        demonstrations=replace(rlpd.demonstrations, episodes=0),
    )
    assert max(success(bare, seed) for seed in SEEDS) < 0.2


def test_with_two_critics_it_is_far_from_done(rlpd: Recipe) -> None:
    few = replace(rlpd, learner=replace(rlpd.learner, critics=2))
    assert np.median([success(few, seed) for seed in SEEDS]) < 0.8
