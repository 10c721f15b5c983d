"""DrQ: targets and losses are means over random shifts, critics train the encoder, the actor is delayed."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from factories import axes, make_spec, picture_spec
from robo_policies.learners.drq import DrQ, DrQConfig, DrQNetwork
from robo_rl.conformance.learners import random_batch
from robo_rl.errors import InvalidSetting
from robo_rl.settings import updated
from robo_rl.spec.environment import ArraySpec
from robo_rl.types import Batch

STATE = ArraySpec("state", (2,))
ARM = make_spec("arm", STATE, picture_spec("front", (6, 8, 3)), picture_spec("wrist", (8, 6, 3)), action=axes("x", "y"))
SMALL = DrQConfig(
    network=DrQNetwork(hidden=(8,), convolutions=(4, 5), crop_padding=2), batch_size=8, tau=0.25, initial_temperature=0.3
)


def filled(seed: int = 0) -> Batch:
    """Return a batch with pictures that use the whole range."""
    random, batch = np.random.default_rng(seed), random_batch(ARM, 8, seed=seed)
    for observations in (batch.observations, batch.next_observations):
        for name in ("front", "wrist"):
            observations[name][:] = random.integers(0, 256, observations[name].shape)
    return batch


def flat(network) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in network.parameters()])


def critic_target_by_hand(learner: DrQ, view, alpha: float, generator: torch.Generator) -> torch.Tensor:
    """Return r + gamma m (min_i Q'_i(phi'(s'), a') - alpha log pi(a'|phi(s')))."""
    parts = learner.parts
    actions, log_densities = learner.actor.sample(parts.encoder(view.next_observations), generator)
    values = learner.sac.target_critic(parts.target_encoder(view.next_observations), actions)
    return view.rewards + view.discounts * view.masks * (torch.minimum(*values) - alpha * log_densities)


@torch.no_grad()
def test_target_is_the_mean_over_shifts_of_the_next_picture():
    learner = SMALL.build(ARM, 0)
    for parameter in learner.parts.target_encoder.parameters():
        parameter.mul_(0.5)
    views = learner.views(filled())
    generator = torch.Generator()
    generator.set_state(learner.parts.generator.get_state())
    found = learner.regularized_target(views, torch.tensor(0.3))
    first, second = (critic_target_by_hand(learner, view, 0.3, generator) for view in views)
    torch.testing.assert_close(found, (first + second) / 2)
    assert float((first - second).abs().max()) > 1e-3


def test_loss_is_the_mean_over_shifts_and_reaches_the_encoder():
    learner = SMALL.build(ARM, 0)
    first, second = views = learner.views(filled())
    targets, weights = torch.randn(8), list(learner.parts.encoder.network.parameters())
    values, loss = learner.regularized_loss(views, targets)
    assert values.shape == (2, 2, 8)
    each = [
        0.5 * (learner.critic(learner.parts.encoder(view.observations), view.actions) - targets).square().mean(1).sum()
        for view in (first, second)
    ]
    torch.testing.assert_close(loss, (each[0] + each[1]) / 2)
    found, expected = torch.autograd.grad(loss, weights), torch.autograd.grad((each[0] + each[1]) / 2, weights)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
    assert max(float(part.abs().max()) for part in found) > 1e-4


def test_shifts_are_drawn_for_each_view_and_moments_are_not():
    learner, batch = updated(SMALL, shifts=3, network={"normalization_rows": 100}).build(ARM, 0), filled()
    views = learner.views(batch)
    assert int(learner.parts.encoder.rows) == 8, "a batch is seen once"
    for name in ("front", "wrist"):
        for seen in ("observations", "next_observations"):
            shifted = [getattr(view, seen)[name] for view in views]
            assert not any(torch.equal(shifted[one], shifted[other]) for one, other in ((0, 1), (0, 2), (1, 2)))
    assert all(torch.equal(view.observations["state"], views[0].observations["state"]) for view in views)


def test_critics_train_the_encoder_and_the_actor_follows_later(monkeypatch):
    learner, moved = SMALL.build(ARM, 0), []

    def noted(name, descend, loss):
        before = flat(learner.parts.encoder)
        descend(loss)
        moved.append((name, not torch.equal(before, flat(learner.parts.encoder))))

    for name in ("critic", "actor", "temperature"):
        network = getattr(learner, name)
        monkeypatch.setattr(network, "descend", partial(noted, name, network.descend))
    targets = [flat(learner.parts.target_encoder)]
    for seed in range(2):
        learner.update(filled(seed))
        targets.append(flat(learner.parts.target_encoder))
    assert moved == [("critic", True), ("critic", True), ("actor", False), ("temperature", False)]
    assert torch.equal(targets[0], targets[1]) and not torch.equal(targets[1], targets[2])
    torch.testing.assert_close(targets[2], 0.75 * targets[1] + 0.25 * flat(learner.parts.encoder))


def test_one_shift_every_update_is_sac_with_an_encoder():
    one, batch = updated(SMALL, shifts=1, actor_every=1, network={"crop_padding": 0}).build(ARM, 0), filled()
    data = one.parts.batch(batch)
    (view,) = one.views(batch)
    assert torch.equal(view.observations["front"], data.observations["front"])
    generator = torch.Generator()
    generator.set_state(one.parts.generator.get_state())
    with torch.no_grad():
        expected = critic_target_by_hand(one, view, 0.3, generator)
    torch.testing.assert_close(one.regularized_target([view], torch.tensor(0.3)), expected)


def test_pictures_alone_are_enough():
    spec = make_spec("seen", picture_spec("front", (6, 8, 3)), action=axes("x"))
    learner = SMALL.build(spec, 0)
    learner.update(random_batch(spec, 8, seed=0))
    assert learner.policy.environment_spec == spec


@pytest.mark.parametrize(
    ("change", "words"),
    [({"network": {"convolutions": ()}}, "convolutions"), ({"shifts": 0}, "shifts"), ({"actor_every": 0}, "actor_every")],
)
def test_settings_out_of_range_are_refused(change, words):
    with pytest.raises(InvalidSetting, match=words):
        updated(SMALL, change)


def test_environment_without_pictures_is_refused():
    with pytest.raises(InvalidSetting, match="convolutions is set, and 'blind' has no image entry"):
        SMALL.build(make_spec("blind", STATE, action=axes("x")), 0)
