"""FISOR: its losses by hand, the region it finds on a double integrator, and rollouts from viable starts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from robo_papers.fisor.learner import FISORConfig
from robo_papers.fisor.viability import (
    CODINGS,
    ROWS,
    SETTINGS,
    SPEC,
    RewardAlone,
    agreement,
    is_viable,
    moved,
    observed,
    recorded,
    rows_of,
    trained,
    violations,
)
from robo_policies.learners.offline import OfflineNetwork
from robo_rl.errors import InvalidSetting
from robo_rl.settings import updated

SMALL = FISORConfig(network=OfflineNetwork(hidden=(16, 16), normalization_rows=0), batch_size=8)


def batch_of(count=8, seed=0):
    random = np.random.default_rng(seed)
    return rows_of(recorded(random), random.integers(ROWS, size=count))


def test_kernel_is_that_of_braking_at_once():
    states = np.array(
        [[0.0, 0.0], [0.9, 0.4], [0.9, 0.5], [-0.9, 0.5], [-0.9, -0.5], [1.1, -1.0], [0.0, 1.4], [0.0, 1.5]], np.float32
    )
    assert is_viable(states).tolist() == [True, True, False, True, False, False, True, False]
    for state, viable in zip(states, is_viable(states), strict=True):
        place, furthest = state[None], abs(state[0])
        for _ in range(60):
            place = moved(place, -np.clip(place[:, 1:] / 0.05, -1, 1))
            furthest = max(furthest, abs(place[0, 0]))
        assert (furthest <= 1.0 + 1e-6) == viable, state


def test_signal_is_that_of_costs_or_of_distances():
    batch = batch_of()
    costs, distances = batch.extras["costs"][:, 0], batch.next_observations["clearance"][:, 0]
    plain, strong, far = (
        updated(SMALL, more).build(SPEC, 0).signal(batch) for more in ({}, {"unsafe_signal": 25.0}, {"clearance": "clearance"})
    )
    np.testing.assert_array_equal(plain, np.where(costs > 0, 1.0, -1.0))
    np.testing.assert_array_equal(strong, np.where(costs > 0, 25.0, -1.0))
    np.testing.assert_allclose(far, -distances)
    np.testing.assert_array_equal(far > 0, costs > 0)


def test_feasibility_target_by_hand():
    learner = replace(SMALL, discount=0.9).build(SPEC, 0)
    batch = replace(batch_of(4), masks=np.array([1, 1, 1, 0], np.float32))
    data = learner.parts.batch(batch)
    found = learner.danger_target_of(torch.tensor([1.0, -1.0, -1.0, -1.0]), torch.tensor([-0.5, 0.5, -0.8, 0.7]), data)
    np.testing.assert_allclose(found, [1.0, -0.1 + 0.45, -0.1 - 0.72, -1.0], atol=1e-6)


def test_weights_by_hand():
    learner = SMALL.build(SPEC, 0)
    value, danger, gain = (
        torch.tensor([0.2, 0.2, -0.1, -0.1, -0.1]),
        torch.tensor([0.1, -9.0, -0.2, 0.1, -0.2]),
        torch.tensor([9.0, 0.0, 0.5, 0.5, 9.0]),
    )
    np.testing.assert_allclose(learner.weights(value, danger, gain), [np.exp(0.5), 150.0, np.exp(1.5), 0.0, 100.0], rtol=1e-5)


def test_the_least_dangerous_candidate_is_taken():
    learner = replace(SMALL, candidates=6).build(SPEC, 0)
    features = torch.randn(5, learner.parts.encoder.size)
    drawn = learner.actor.diffusion.draw(features.repeat_interleave(6, 0), torch.Generator().manual_seed(3))[:, 0].view(5, 6, 1)
    with torch.no_grad():
        danger = torch.stack([learner.danger_target(features, drawn[:, number]).amax(0) for number in range(6)], 1)
        chosen = learner.actor.draw(features, torch.Generator().manual_seed(3))
        np.testing.assert_array_equal(chosen, drawn[torch.arange(5), danger.argmin(1)])
        np.testing.assert_array_equal(learner.actor.mode(features), learner.actor.mode(features))


@pytest.mark.parametrize(
    "settings",
    [{"expectile": 1.0}, {"unsafe_signal": 0.0}, {"candidates": 0}, {"network": {"hidden": (8, 16)}}, {"clearance": "nothing"}],
)
def test_wrong_settings_are_one_error(settings):
    with pytest.raises(InvalidSetting):
        updated(SMALL, settings).build(SPEC, 0)


@pytest.mark.slow
def test_region_grows_towards_the_kernel():
    before = agreement(CODINGS["+1 / -1"].build(SPEC, 0))[0]
    learner = trained(updated(CODINGS["+1 / -1"], network={"hidden": (64, 64)}, discount=0.97), 0, 700)
    overlap, wrong = agreement(learner)
    assert overlap > 0.6 > before and wrong < 0.25


@pytest.mark.slow
def test_region_is_the_kernel_and_rollouts_stay_in_it():
    learner = trained(CODINGS["distance"], 0, 5000)
    overlap, _ = agreement(learner)
    safe, _ = violations(learner, 0)
    control, _ = violations(trained(updated(FISORConfig(), SETTINGS, candidates=1), 0, 5000, RewardAlone), 0)
    assert overlap > 0.7 and safe <= 5 < control


def test_observations_hold_the_distance():
    np.testing.assert_allclose(observed(np.array([[0.25, 1.0]], np.float32))["clearance"], [[0.75]])
