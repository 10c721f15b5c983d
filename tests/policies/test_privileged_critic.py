"""Critics that read privileged entries (SAC, DrQ, RLPD, HIL-SERL), and actors that never do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from factories import axes, make_spec, picture_spec, rest_slow
from robo_policies.learners.drq import DrQConfig
from robo_policies.learners.hil_serl import HILSERLConfig
from robo_policies.learners.rlpd import RLPDConfig
from robo_policies.learners.sac import SACConfig
from robo_rl.conformance.learners import random_batch
from robo_rl.errors import InvalidSetting, NonFiniteUpdate
from robo_rl.settings import updated
from robo_rl.spec.environment import ArraySpec

COIN, STATE = ArraySpec("coin", (1,), role="privileged"), ArraySpec("state", (2,))
ARM = make_spec("arm", COIN, STATE, ArraySpec("opening", (1,)), picture_spec(), action=axes("x", "opening"))
REAL = make_spec("real", *(array for array in ARM.observation.arrays if array != COIN), action=ARM.action)
SMALL = {"network": {"hidden": (8,), "normalization_rows": 8}, "batch_size": 8, "privileged_critic": True}
CONFIGS = {
    "sac": updated(SACConfig(), SMALL),
    "drq": updated(DrQConfig(), SMALL, network={"convolutions": (4,)}, actor_every=1),
    "rlpd": updated(RLPDConfig(), SMALL, updates_per_step=1, critics=2),
    "rlpd-pictures": updated(RLPDConfig(), SMALL, updates_per_step=1, critics=2, network={"convolutions": (4,)}),
    "hil-serl": updated(HILSERLConfig(), SMALL, updates_per_step=1, gripper="opening"),
    "hil-serl-pictures": updated(HILSERLConfig(), SMALL, updates_per_step=1, gripper="opening", network={"convolutions": (4,)}),
}
EACH = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
FLIPPED = {"coin": np.full((8, 1), 3.0, np.float32)}


def flipped(batch):
    """Return the same batch with other privileged entries."""
    return replace(batch, observations=batch.observations | FLIPPED, next_observations=batch.next_observations | FLIPPED)


def networks(learner):
    """Return the part of a learner that has actor and critic."""
    return getattr(learner, "arm", None) or getattr(learner, "sac", None) or learner


@EACH
@pytest.mark.parametrize("engine", ["reference", "accelerated"])
def test_only_the_critic_depends_on_privileged_entries(config, engine):
    learner, batch = updated(config, network={"engine": engine}).build(ARM, 0), random_batch(ARM, 8, seed=0)
    learner.update(batch)
    parts, rows = learner.parts, [batch, flipped(batch)]
    with torch.no_grad():
        features = [
            parts.encoder(parts.encoder.tensors(parts.encoder.stack(row.observations), row.observations, parts.device))
            for row in rows
        ]
        assert features[0].shape == (8, parts.encoder.critic_size) and parts.encoder.critic_size == parts.encoder.size + 1
        actions = [parts.policy._actor.mode(each) for each in features]
        drawn = [networks(learner).actor.sample(each, torch.Generator().manual_seed(0)) for each in features]
        values = [networks(learner).critic(each, drawn[0][0]) for each in features]
    assert torch.equal(*actions) and all(torch.equal(*pair) for pair in zip(*drawn, strict=True))
    assert float((values[0] - values[1]).abs().min()) > 1e-4


SEEING = pytest.mark.parametrize(
    "name", [name for name, config in CONFIGS.items() if getattr(config.network, "convolutions", ())]
)


@SEEING
def test_actor_trains_the_encoder_by_its_own_features_alone(name):
    learner = CONFIGS[name].build(ARM, 0)
    parts, data = learner.parts, learner.parts.batch(random_batch(ARM, 8, seed=0))
    features = parts.actor_features(data.observations)
    inner = networks(learner)
    actions, log_densities = inner.actor.sample(features, torch.Generator().manual_seed(0))
    loss = inner.actor_loss(features, actions, log_densities, torch.tensor(0.1))
    known = features.detach()
    values = inner.critic(known, actions)
    value = values.amin(0) if name == "drq" else values.mean(0)
    weights = list(parts.encoder.network.parameters())
    expected = torch.autograd.grad((0.1 * log_densities - value).mean(), weights, retain_graph=True)
    for one, other in zip(torch.autograd.grad(loss, weights, retain_graph=True), expected, strict=True):
        torch.testing.assert_close(one, other)
    assert max(float(part.abs().max()) for part in expected) > 1e-6
    before = [weight.clone() for weight in weights]
    inner.actor.descend(loss)
    assert all((old != new).any() for old, new in zip(before, weights, strict=True) if old.any())


@SEEING
def test_actor_leaves_the_encoder_to_symmetric_critics(name):
    learner = replace(CONFIGS[name], privileged_critic=False).build(ARM, 0)
    features = learner.parts.actor_features(learner.parts.batch(random_batch(ARM, 8, seed=0)).observations)
    assert not features.requires_grad
    assert not any("encoder" in key for key in learner.state_dict()["optimizers"]["actor"]["mean"])


@EACH
def test_policy_acts_where_privileged_entries_are_missing(config):
    learner, batch = config.build(ARM, 0), random_batch(ARM, 8, seed=1)
    learner.update(batch)
    row = {name: values[0] for name, values in batch.observations.items()}
    seen = [row, row | {"coin": np.full(1, np.nan, np.float32)}, {name: row[name] for name in REAL.observation}]
    actions = {learner.policy.act(each, deterministic=True).tobytes() for each in seen}
    assert len(actions) == 1
    learner.policy.environment_spec.require_interface(REAL, what="The policy cannot act here")


@EACH
def test_without_the_option_privileged_entries_change_nothing(config, leaves):
    states = []
    for batch in (random_batch(ARM, 8, seed=0), flipped(random_batch(ARM, 8, seed=0))):
        learner = replace(config, privileged_critic=False).build(ARM, 0)
        learner.update(batch)
        states.append(leaves(learner.state_dict()))
    assert states[0] == states[1]


@EACH
def test_privileged_entries_that_are_not_there_are_refused(config):
    with pytest.raises(InvalidSetting, match=r"privileged_critic is set, and 'real' has no privileged entry"):
        config.build(REAL, 0)


def test_privileged_nan_is_refused():
    learner, batch = CONFIGS["sac"].build(ARM, 0), random_batch(ARM, 8, seed=0)
    batch.observations["coin"][3] = np.nan
    with pytest.raises(
        NonFiniteUpdate, match=r"observations are not finite(.|\n)*1 of 8 rows with NaN or infinity, in coin\[0\]"
    ):
        learner.update(batch)


def test_privileged_entries_are_standardised_last():
    learner, batch = CONFIGS["rlpd-pictures"].build(ARM, 0), random_batch(ARM, 8, seed=0)
    batch.observations["coin"][:] = 1000.0 + np.arange(8, dtype=np.float32)[:, None]
    learner.update(batch)
    assert learner.parts.encoder.mean.shape == (4,) and float(learner.parts.encoder.mean[-1]) == pytest.approx(1003.5)


@pytest.mark.slow
@pytest.mark.parametrize("name", rest_slow(["sac", "drq", "rlpd-pictures"]))
@pytest.mark.parametrize("privileged", [True, False])
def test_values_of_a_hidden_coin_need_the_privileged_critic(name, privileged):
    config = updated(
        CONFIGS[name], privileged_critic=privileged, batch_size=64, lr=1e-2, network={"normalization_rows": 0, "hidden": (16,)}
    )
    learner = config.build(ARM, 0)

    def tossed(seed):
        """Return a batch of episodes of one step whose rewards are their coins."""
        batch = random_batch(ARM, 64, seed=seed)
        coins = np.sign(batch.observations["coin"])
        batch.observations["coin"][:] = coins
        return replace(batch, rewards=coins[:, 0], masks=np.zeros(64, np.float32))

    for seed in range(80):
        learner.update(tossed(seed))
    with torch.no_grad():
        data = learner.parts.batch(tossed(80))
        values = learner.critic(learner.parts.encoder(data.observations), data.actions)[0]
        error = float((values - data.rewards).square().mean())
    assert error < 0.3 if privileged else error > 0.6, error
