"""Behaviour cloning: both losses by hand, both kinds of action learnt, exact saving."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from factories import make_spec, picture_spec
from robo_policies.learners.bc import BCConfig
from robo_policies.learners.offline import OfflineNetwork
from robo_rl.errors import InvalidSetting, NonFiniteUpdate
from robo_rl.runs.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from robo_rl.settings import updated
from robo_rl.types import Batch

SMALL = BCConfig(network=OfflineNetwork(hidden=(16,)))


def output_by_hand(actor, observations):
    """Returns what the last layer says, with numpy alone."""
    state, hidden = {name: value.numpy() for name, value in actor.state_dict().items()}, observations
    count = len(state) // 2
    for index in range(count):
        hidden = hidden @ state[f"layers.linears.{index}.weight"][0] + state[f"layers.linears.{index}.bias"][0]
        hidden = np.maximum(hidden, 0) if index < count - 1 else hidden
    return hidden


def test_loss_of_continuous_actions_is_the_squared_error(spec, make_batch):
    learner, batch = SMALL.build(spec, 0), make_batch(spec, 2)
    observations = torch.from_numpy(learner.parts.encoder.stack(batch.observations))
    expected = ((np.tanh(output_by_hand(learner.actor, observations.numpy())) - batch.actions) ** 2).mean(1)
    result = learner.actor.loss(observations, torch.as_tensor(batch.actions))
    np.testing.assert_allclose(result.detach(), expected, rtol=1e-5)


def test_loss_of_choices_is_the_cross_entropy(discrete_spec, make_batch):
    learner, batch = SMALL.build(discrete_spec, 0), make_batch(discrete_spec, 2)
    observations = torch.from_numpy(learner.parts.encoder.stack(batch.observations))
    logits = output_by_hand(learner.actor, observations.numpy())
    chosen = logits[np.arange(2), batch.actions]
    expected = np.log(np.exp(logits).sum(1)) - chosen
    result = learner.actor.loss(observations, torch.as_tensor(batch.actions))
    np.testing.assert_allclose(result.detach(), expected, rtol=1e-5)


@pytest.mark.slow
def test_continuous_actions_are_learnt_up_to_the_limits(spec, make_batch):
    batch = make_batch(spec, 256)
    position = batch.observations["joint_position"]
    actions = np.clip(np.stack((2 * position[:, 0], -position[:, 1]), axis=1), -1, 1)
    batch = make_batch(spec, 256, actions=actions.astype(np.float32))
    learner = BCConfig(network=OfflineNetwork(hidden=(64, 64))).build(spec, 0)
    for _ in range(300):
        learner.update(batch)
    rows = [{name: value[k] for name, value in batch.observations.items()} for k in range(50)]
    cloned = np.stack([learner.policy.act(row) for row in rows])
    assert cloned.dtype == np.float32
    assert np.abs(cloned - actions[:50]).mean() < 0.05


def test_learning_rate_falls_and_is_constant_again(spec, make_batch):
    learner = updated(SMALL, lr=0.1, decay_from=2, decay_updates=4).build(spec, 0)
    rates = []
    for _ in range(8):
        learner.update(make_batch(spec, 4))
        rates.append(learner.actor.optimizer.lr)
    np.testing.assert_allclose(rates, [0.1, 0.1, 0.1, 0.075, 0.05, 0.025, 0.1, 0.1])
    with pytest.raises(InvalidSetting, match="decay_updates"):
        updated(SMALL, decay_updates=-1)


@pytest.mark.slow
def test_choices_are_learnt_and_drawn(discrete_spec, make_batch):
    batch = make_batch(discrete_spec, 256)
    position = batch.observations["joint_position"]
    choices = np.argmax(np.column_stack((position, np.full(256, 0.3))), axis=1)
    batch = make_batch(discrete_spec, 256, actions=choices)
    learner = BCConfig(network=OfflineNetwork(hidden=(64, 64))).build(discrete_spec, 0)
    for _ in range(200):
        learner.update(batch)
    rows = [{name: value[k] for name, value in batch.observations.items()} for k in range(100)]
    cloned = [learner.policy.act(row, deterministic=True) for row in rows]
    assert np.mean(np.array(cloned) == choices[:100]) > 0.95
    assert all(discrete_spec.action.validate(choice).dtype == np.int64 for choice in cloned)
    unsure = SMALL.build(discrete_spec, 0).policy
    assert {int(unsure.act(rows[0])) for _ in range(50)} == {0, 1, 2}


@pytest.mark.parametrize("kind", ["spec", "discrete_spec"])
def test_saved_and_loaded_gives_the_same_next_update(kind, request, make_batch, leaves, tmp_path):
    spec = request.getfixturevalue(kind)
    learner, copy = SMALL.build(spec, 0), SMALL.build(spec, 99)
    for seed in range(3):
        learner.update(make_batch(spec, 8, seed))
    learner.policy.act({name: value[0] for name, value in make_batch(spec, 1).observations.items()})
    save_checkpoint(tmp_path, Checkpoint(3, {"learner": learner.state_dict()}))
    copy.load_state_dict(load_checkpoint(tmp_path).parts["learner"])
    learner.update(make_batch(spec, 8, 3))
    copy.update(make_batch(spec, 8, 3))
    assert leaves(copy.state_dict()) == leaves(learner.state_dict())


def test_seed_determines_result_and_globals_are_untouched(spec, make_batch, leaves):
    before = torch.get_rng_state()
    first, second = (SMALL.build(spec, 0) for _ in range(2))
    first.update(make_batch(spec, 6))
    second.update(make_batch(spec, 6))
    assert leaves(first.state_dict()) == leaves(second.state_dict())
    assert torch.equal(torch.get_rng_state(), before)


def test_an_action_that_is_not_finite_refuses_the_update(spec, make_batch, leaves):
    learner = SMALL.build(spec, 0)
    before = leaves(learner.state_dict())
    actions = np.array([[0.0, np.nan], [0.0, 0.0]], np.float32)
    with pytest.raises(NonFiniteUpdate, match=r"Update 0 was refused: batch actions are not finite(.*\n)*.*1 of 2 rows"):
        learner.update(make_batch(spec, 2, actions=actions))
    assert leaves(learner.state_dict()) == before


@pytest.mark.slow
def test_pictures_alone_are_cloned():
    spec = make_spec("test/camera", picture_spec(shape=(16, 16, 3)))
    bright = np.random.default_rng(0).integers(0, 255, 64)
    pictures = {"camera_front": np.broadcast_to(bright[:, None, None, None], (64, 16, 16, 3)).astype(np.uint8)}
    actions, ones = (bright[:, None] / 127.5 - 1).astype(np.float32), np.ones(64, np.float32)
    batch = Batch(pictures, actions, 0 * ones, ones, ones, pictures, ones, np.zeros(64, np.bool_))
    learner = BCConfig(network=OfflineNetwork(hidden=(16,), convolutions=(4, 4), crop_padding=0)).build(spec, 0)
    for _ in range(150):
        learner.update(batch)
    cloned = [learner.policy.act({"camera_front": picture}, deterministic=True)[0] for picture in pictures["camera_front"]]
    assert np.abs(np.array(cloned) - actions[:, 0]).mean() < 0.1
