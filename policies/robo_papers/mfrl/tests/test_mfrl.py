"""MFRL: feasibility from two fidelities, the reward estimate and densities by hand, and what is labelled and flown."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
import torch

from robo_papers.mfrl.feasibility import Feasibility
from robo_papers.mfrl.learner import MFRL, ClassifierSettings, MFRLConfig, MFRLNetwork, SegmentActor
from robo_rl.conformance.learners import check_policy
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting, MissingExtra
from robo_rl.runs.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from robo_rl.settings import updated
from robo_rl.spec.environment import specification

SMALL = MFRLConfig(
    network=MFRLNetwork(hidden=(8,)),
    batch_size=12,
    tasks=2,
    first_low=16,
    first_flights=2,
    model=ClassifierSettings(inducing=8, steps=2, first_steps=4),
    low_labels=4,
    epochs=2,
    plans_per_task=4,
    updates_per_flight=1,
)
make = partial(make_environment, "quadrotor/Waypoints-v0")


class Observer:
    """Keeps episodes."""

    def __init__(self):
        self.successes = []

    def on_step(self, *_):
        """Keep nothing."""

    def on_metrics(self, *_):
        """Keep nothing."""

    def on_episode(self, *_, success, **__):
        """Keep the outcome."""
        self.successes.append(success)


@dataclass
class Plan:
    """A plan that saves this share of time."""

    saved: float


def points(count, seed):
    return np.random.default_rng(seed).uniform(-1.0, 1.0, (count, 2))


def curve(x):
    """Return the low fidelity's margin."""
    return x[:, 1] - 0.7 * np.sin(5.0 * x[:, 0])


def fitted(*, uses_low, flights=12, seed=0):
    """Return a model of two fidelities, whose boundaries are one curve, shifted by 0.15."""
    torch.manual_seed(seed)
    model, random = Feasibility(points(32, 1), 0.08, uses_low=uses_low), np.random.default_rng(seed)
    low, high = points(400, 2), points(flights, 3 + seed)
    model.add("low", low, curve(low) > 0.0)
    model.add("high", high, curve(high) > 0.15)
    model.fit(120, 128, random)
    return model


@pytest.mark.slow
def test_few_labels_suffice_beside_many_of_the_low_fidelity():
    test = points(500, 9)
    truth = curve(test) > 0.15
    right = {
        uses_low: np.mean((fitted(uses_low=uses_low).probability("high", test) > 0.5) == truth) for uses_low in (True, False)
    }
    assert right[True] > 0.88 and right[True] > right[False] + 0.04


@pytest.mark.slow
def test_high_fidelity_corrects_a_low_one_that_is_wrong():
    test = points(500, 9)
    model = fitted(uses_low=True, flights=150)
    between = (curve(test) > 0.0) & (curve(test) < 0.1)
    assert model.probability("low", test)[between].mean() > 0.5 > model.probability("high", test)[between].mean()


@pytest.mark.slow
def test_least_certain_plans_lie_at_the_boundary():
    test = points(500, 9)
    model = fitted(uses_low=True)
    chosen = model.most_uncertain("low", test, 20)
    assert len({*chosen.tolist()}) == 20
    assert np.abs(curve(test[chosen])).mean() < 0.3 * np.abs(curve(test)).mean()


@pytest.mark.slow
def test_probability_is_the_probit_averaged_over_the_latent():
    model = fitted(uses_low=True)
    mean, deviation = model.latent("low", points(5, 4))
    draws = mean + deviation * np.random.default_rng(0).normal(size=(200_000, 1))
    sampled = torch.distributions.Normal(0.0, 1.0).cdf(torch.from_numpy(draws)).mean(0)
    np.testing.assert_allclose(model.probability("low", points(5, 4)), sampled, atol=5e-3)


def test_first_policy_proposes_the_least_snap_plan():
    learner = MFRL(specification(make()), SMALL, 0)
    observation, _ = make().reset(seed=1)
    np.testing.assert_array_equal(learner.policy.act(observation, deterministic=True), np.zeros(26))
    count = int((observation["times"] > 0).sum())
    drawn = learner.policy.act(observation)
    assert (drawn[:count] != 0).all() and (drawn[count:13] == 0).all() and (drawn[13 + count :] == 0).all()


def test_density_counts_the_segments_that_there_are():
    actor = SegmentActor(4, 3, 0.5)
    features = torch.zeros(1, 16)
    features[0, 12:14] = 1.0  # two segments of one second
    means, counts = actor(features)
    assert counts.int().tolist() == [[1, 1, 0, 0, 1, 1, 0, 0]] and means.abs().max() == 0.0
    found = actor.log_density(means, counts, torch.full((1, 8), 0.25))
    one = -0.5 * 0.25 - np.log(0.5) - 0.5 * np.log(2 * np.pi)
    assert found.item() == pytest.approx(4 * one, rel=1e-5)


def test_padding_does_not_reach_the_actions():
    torch.manual_seed(0)
    actor = SegmentActor(4, 3, 0.5)
    torch.nn.init.normal_(actor.mean.weight)
    features = torch.randn(1, 16)
    features[0, 12:] = torch.tensor([1.0, 2.0, 0.0, 0.0])
    changed = features.clone()
    changed[0, 6:12] = 7.0  # steps beyond the last segment
    assert torch.equal(actor(features)[0], actor(changed)[0]) and actor(features)[0].abs().max() > 0.0


def test_estimate_weighs_saved_time_by_feasibility():
    training = SMALL.training(make, steps=4, seed=0)
    training.model = type("Model", (), {"probability": lambda _, fidelity, features: np.array([1.0, 0.5, 0.0, 1.0])})()
    found = training.estimate([Plan(0.1), Plan(0.1), Plan(0.1), Plan(0.9)], np.zeros((4, 6)))
    np.testing.assert_allclose(found, [0.1, -0.45, -1.0, 0.2])
    slow = training.estimate([Plan(-3.0)] * 4, np.zeros((4, 6)))
    np.testing.assert_allclose(slow, [-1.5, -1.25, -1.0, -1.5])


def test_learning_prefers_what_is_rewarded():
    learner = MFRL(specification(make()), replace(SMALL, lr=1e-2, epochs=5), 0)
    features = torch.zeros(64, 52)
    features[:, 39:44] = 1.0
    for _ in range(20):
        actions = learner.draw(features, 0.1)
        learner.learn(features, actions, actions[:, :5].mean(1) - actions[:, 13:18].mean(1))
    means = learner.actor(features)[0][0]
    assert means[:5].min() > 0.1 and means[13:18].max() < -0.1


def test_a_batch_moves_the_policy_little_however_small_its_noise():
    learner = MFRL(specification(make()), replace(SMALL, epochs=30, lr=0.03), 0)
    features = torch.zeros(64, 52)
    features[:, 39:44] = 1.0
    learner.actor.deviation = 0.01
    actions = learner.draw(features, 0.01)
    before = learner.actor(features)[0].detach()
    learner.learn(features, actions, actions[:, :5].sum(1))
    moved = (learner.actor(features)[0].detach() - before) / 0.01
    assert 0.0 < 0.5 * float(moved.square().sum(1).mean()) < 10.0  # without the bound and the shorter steps thousands


@pytest.mark.slow
def test_labels_and_flights_are_counted():
    training, observer = SMALL.training(make, steps=5, seed=0), Observer()
    training.run(observer)
    assert training.step == len(observer.successes) == 5 and training.learner.parts.updates == 3
    labels = {name: len(values) for name, values in training.model.labels.items()}
    assert labels == {"low": 16 + 3 * 4, "high": 5}
    np.testing.assert_array_equal(training.model.labels["high"], observer.successes)
    for fidelities, count in (("low", 16 + 4), ("high", 0)):
        control = replace(SMALL, fidelities=fidelities).training(make, steps=3, seed=0)
        control.run(Observer())
        assert len(control.model.labels["low"]) == count and len(control.model.labels["high"]) == 3


def test_flights_alternate_between_uncertain_and_best():
    training, flown = SMALL.training(make, steps=6, seed=0), []
    plans = [Plan(saved) for saved in (0.1, -0.1, 0.15)]
    for plan in plans:
        plan.features = np.zeros(9)
    training._plans = lambda count, deviation: (np.zeros(3, int), None, [None] * 3, plans)
    training._fly = lambda task, action, plan, observer: flown.append(plan.saved)
    judge = {
        "probability": lambda *_: np.array([0.9, 0.9, 0.1]),
        "most_uncertain": lambda *_: np.array([2]),
        "fit": lambda *_: None,
    }
    training.model = type("Model", (), judge)()
    for training.step in (2, 3, 4, 5):
        training._fly_one(Observer())
    assert flown == [0.15, 0.1, 0.15, 0.1]


@pytest.mark.slow
def test_policy_conforms_and_is_restored(tmp_path):
    training = SMALL.training(make, steps=4, seed=0)
    training.run(Observer())
    check_policy(training.policy, specification(make()))
    save_checkpoint(tmp_path, Checkpoint(4, training.state_dict()))
    state = load_checkpoint(tmp_path).parts
    observation, _ = make().reset(seed=5)
    restored = SMALL.restored_policy(make, seed=0, state=state)
    acted = [policy.act(observation, deterministic=True) for policy in (restored, training.policy)]
    np.testing.assert_array_equal(*acted)
    again = SMALL.training(make, steps=6, seed=0)
    again.load_state_dict(state)
    test = np.random.default_rng(0).normal(size=(20, 9))
    np.testing.assert_allclose(again.model.probability("high", test), training.model.probability("high", test), atol=1e-9)
    again.run(Observer())
    assert again.step == 6 and again.resumed == "warm" and len(again.model.labels["high"]) == 6


def test_bad_settings_and_environments_are_refused(monkeypatch):
    with pytest.raises(InvalidSetting, match="first_low"):
        updated(SMALL, model={"inducing": 32})
    with pytest.raises(InvalidSetting, match="no plans"):
        SMALL.training(partial(make_environment, "hazards/Point-v0"), steps=5, seed=0)
    with pytest.raises(InvalidSetting, match="No flight is left"):
        SMALL.training(make, steps=2, seed=0).run(Observer())
    with pytest.raises(InvalidSetting, match="no segments"):
        MFRL(specification(make_environment("hazards/Point-v0")), SMALL, 0)
    monkeypatch.setitem(__import__("sys").modules, "gpytorch", None)
    with pytest.raises(MissingExtra, match=r"robo-rl-papers\[fidelity\]"):
        Feasibility(points(8, 0), 0.01)
