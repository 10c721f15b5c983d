"""Perturbed environments: their physics, timing and sensing seen from outside."""

from __future__ import annotations

import numpy as np
import pytest

from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.spec.environment import specification
from robo_sims.perturbed import Perturbation

PENDULUM = "gymnasium/InvertedPendulum-v5"


def make(name=PENDULUM, **perturbation):
    return make_environment(name, wrappers=[{"name": "perturbed", **perturbation}])


def states(environment, actions, seed=3):
    """Return the observed vectors (T + 1, D) after a sequence of actions."""
    observation, _ = environment.reset(seed=seed)
    found = [observation]
    for action in actions:
        observation, *_ = environment.step(np.full(environment.action_space.shape, action, np.float32))
        found.append(observation)
    return np.stack([np.concatenate([np.ravel(each[name]) for name in sorted(each)]) for each in found])


@pytest.mark.parametrize("name", [PENDULUM, "robo/ArmReach-v0", "hazards/Point-v0"])
def test_nothing_perturbed_is_the_same_environment(name):
    plain, perturbed = make_environment(name), make(name)
    assert specification(plain).fingerprint == specification(perturbed).fingerprint
    np.testing.assert_array_equal(states(plain, [0.3, -0.2, 0.1]), states(perturbed, [0.3, -0.2, 0.1]))


@pytest.mark.parametrize("gravity", [0.5, 2.0])
def test_gravity_decides_how_fast_a_pendulum_falls(gravity):
    falls = [np.abs(states(each, [0.0] * 8)[-1]).max() for each in (make_environment(PENDULUM), make(gravity=gravity))]
    assert (falls[1] > falls[0]) == (gravity > 1.0)


def test_strength_and_mass_scale_the_acceleration_of_a_cart():
    def speed(**perturbation):
        environment = make(**perturbation)
        environment.reset(seed=3)
        environment.get_wrapper_attr("data").qpos[:] = environment.get_wrapper_attr("data").qvel[:] = 0.0
        environment.step(np.ones(1, np.float32))
        return environment.get_wrapper_attr("data").qvel[0]

    nominal = speed(damping=0.0)
    assert speed(strength=2.0, damping=0.0) == pytest.approx(2.0 * nominal, rel=0.02)
    assert speed(mass=2.0, damping=0.0) == pytest.approx(0.5 * nominal, rel=0.05)
    assert speed(mass=2.0, strength=2.0, damping=0.0) == pytest.approx(nominal, rel=0.05)


def test_model_is_restored_and_multiplied_once():
    environment = make(mass=3.0)
    model = environment.get_wrapper_attr("model")
    before = model.body_mass.copy(), model.body_subtreemass.copy()
    for seed in range(3):
        environment.reset(seed=seed)
        np.testing.assert_allclose(model.body_mass, 3.0 * before[0])
        np.testing.assert_allclose(model.body_subtreemass, 3.0 * before[1])
    environment.close()
    np.testing.assert_array_equal(model.body_mass, before[0])


def test_late_actions_are_those_of_steps_before():
    actions = [0.5, -0.3, 0.8, 0.1]
    late, shifted = states(make(latency=2), actions), states(make_environment(PENDULUM), [0.0, 0.0, *actions[:2]])
    np.testing.assert_array_equal(late, shifted)


def test_executed_action_is_reported():
    environment = make(latency=1)
    environment.reset(seed=0)
    *_, info = environment.step(np.ones(1, np.float32))
    assert info["executed_action"] == [0.0]


def test_lost_actions_repeat_the_one_before():
    lost, repeated = states(make(dropped=1.0), [0.2, -0.1, 0.3]), states(make_environment(PENDULUM), [0.2] * 3)
    np.testing.assert_array_equal(lost, repeated)


def test_noise_has_its_deviation_and_repeats_with_the_seed():
    clean, noisy, again = (states(make("robo/ArmReach-v0", noise=noise), [0.0] * 30) for noise in (0.0, 0.05, 0.05))
    np.testing.assert_array_equal(noisy, again)
    assert np.std(noisy - clean) == pytest.approx(0.05, rel=0.1)


def test_pushes_move_what_rests():
    def travel(push):
        environment = make("robo/ArmPush-v0", push=push)
        observations = states(environment, [0.0] * 40)
        return np.abs(observations - observations[0]).max()

    assert travel(30.0) > travel(0.0) + 0.01


@pytest.mark.parametrize(
    ("name", "perturbation", "kind", "said"),
    [
        ("hazards/Point-v0", {"mass": 2.0}, InvalidSetting, "latency, noise, dropped"),
        (PENDULUM, {"mass": 0.0}, InvalidSetting, "above 0"),
        (PENDULUM, {"mass": float("nan")}, InvalidSetting, "above 0"),
        (PENDULUM, {"dropped": 1.5}, InvalidSetting, "0 to 1"),
        (PENDULUM, {"latency": 1.5}, InvalidSetting, "latency"),
        (PENDULUM, {"weight": 2.0}, UnknownName, "mass"),
        ("minigrid/MiniGrid-DoorKey-5x5-v0", {"latency": 1}, InvalidSetting, "latency 0"),
    ],
)
def test_unusable_perturbation_is_one_error(name, perturbation, kind, said):
    with pytest.raises(kind, match=said):
        make(name, **perturbation)


def test_defaults_are_nominal():
    assert Perturbation().factors == {}
