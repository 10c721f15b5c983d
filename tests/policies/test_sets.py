"""The encoder of sets: order and padding make no difference, units stay, and it passes the checks of every encoder."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from factories import axes, make_spec
from robo_policies.learners.bc import BCConfig
from robo_policies.learners.ppo import PPOConfig
from robo_policies.learners.sac import SACConfig
from robo_policies.networks.conformance import NETWORK_CHECKS, observations_of
from robo_policies.networks.sets import SetEncoder, scaled
from robo_rl.conformance.learners import random_batch
from robo_rl.settings import updated
from robo_rl.spec.environment import ArraySpec

CARS, LIGHTS = ArraySpec("cars", (5, 4), role="object"), ArraySpec("lights", (2, 3), role="object")
WAY = ArraySpec("way", (3, 2), role="goal")
SPEC = make_spec("town", ArraySpec("speed", (2,)), WAY, CARS, LIGHTS, action=axes("steer", "gas"))
CUBES = make_spec("table", ArraySpec("cubes", (4, 7), role="object"), action=axes("x"))
FLAT = make_spec("flat", ArraySpec("cube", (3,), role="object"), action=axes("x"))


def encoder(spec=SPEC):
    torch.manual_seed(0)
    return SetEncoder(spec)


@pytest.mark.parametrize("check", NETWORK_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("spec", [SPEC, CUBES, FLAT], ids=lambda spec: spec.name)
def test_set_encoder_keeps_the_rule(spec, check):
    make = observations_of(spec)

    def present(rows):  # of random numbers few rows would be members
        found = make(rows)
        for name in ("cars", "lights", "cubes"):
            if name in found:
                found[name][:, ::2, 0] = 1.0
        return found

    check(lambda: SetEncoder(spec), present)


def town(seed, members):
    random = np.random.default_rng(seed)
    rows = {name: random.normal(0, 20, (1, *array.shape)).astype(np.float32) for name, array in SPEC.observation.items()}
    for name in ("cars", "lights"):
        rows[name][..., 0] = np.arange(rows[name].shape[1]) < members
        rows[name][rows[name][..., 0] == 0] = 0
    return {name: torch.from_numpy(value) for name, value in rows.items()}


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 99), members=st.integers(0, 5), order=st.permutations(range(5)))
def test_order_of_members_makes_no_difference(seed, members, order):
    network, seen = encoder(), town(seed, members)
    with torch.no_grad():
        before = network(seen)
        seen["cars"] = seen["cars"][:, list(order)]
        assert torch.equal(network(seen), before)
        seen["way"] = seen["way"][:, [1, 0, 2]]
        assert not torch.equal(network(seen), before), "points of a way are no set"


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 99), members=st.integers(0, 4), garbage=st.floats(-1e6, 1e6))
def test_padding_is_ignored(seed, members, garbage):
    network, seen = encoder(), town(seed, members)
    with torch.no_grad():
        before = network(seen)
        seen["cars"][:, members:, 1:] = garbage
        assert torch.equal(network(seen), before)
        seen["cars"][:, members] = torch.tensor([1.0, 3.0, -2.0, 1.0])
        assert not torch.equal(network(seen), before), "a member is not ignored"


def test_a_set_without_members_has_no_features():
    seen = town(0, 0)
    assert not encoder()(seen)[:, -128:].any()


def test_numbers_enter_linear_and_logarithmic():
    found = scaled(torch.tensor([[0.0, 20.0, -0.5]]))
    np.testing.assert_allclose(found, [[0, 2, -0.05, 0, np.log(21), -np.log(1.5)]], rtol=1e-6)


@pytest.mark.parametrize("config", [BCConfig(), SACConfig()], ids=["bc", "sac"])
def test_no_learner_standardises_what_is_in_units(config):
    learner = updated(config, network={"encoder": "sets", "hidden": (8,), "normalization_rows": 100}, batch_size=8).build(
        SPEC, 0
    )
    learner.update(random_batch(SPEC, 8, seed=0))
    assert int(learner.parts.encoder.rows) == 0
    seen = {name: value.numpy() for name, value in town(0, 2).items()}
    read = learner.parts.encoder.tensors(learner.parts.encoder.stack(seen), seen, torch.device("cpu"))
    np.testing.assert_array_equal(read["cars"], seen["cars"])


def test_ppo_does_not_standardise_what_is_in_units():
    config = updated(PPOConfig(), network={"encoder": "sets", "hidden": (8,)}, num_envs=2, steps_per_env=4, batch_size=4)
    assert not config.build(SPEC, 0).buffer.observations.is_on
    assert updated(config, network={"encoder": None}).build(SPEC, 0).buffer.observations.is_on
