"""HIL-SERL's own parts: the gripper's critic, its penalty, and what it leaves to RLPD. Numbers are computed by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from factories import make_spec
from robo_policies.learners.hil_serl import HILSERL, HILSERLConfig
from robo_policies.learners.rlpd import RLPD, RLPDNetwork
from robo_policies.networks.encoders import TensorBatch
from robo_rl.errors import InvalidSetting
from robo_rl.settings import updated
from robo_rl.spec.environment import ActionSpec, ArraySpec
from robo_rl.types import Batch

ARM = make_spec(
    "arm",
    ArraySpec("state", (3,)),
    ArraySpec("opening", (1,), unit="m"),
    action=ActionSpec(("x", "opening", "y"), (-1.0, 0.0, -1.0), (1.0, 0.08, 1.0), ("m", "m", "m")),
)
SMALL = HILSERLConfig(network=RLPDNetwork(hidden=(8,)), batch_size=4, gripper="opening", lr=1e-2)


def learner(**changes) -> HILSERL:
    built = updated(SMALL, changes).build(ARM, 0)
    assert isinstance(built, HILSERL)
    return built


def batch(rows: int = 8, seed: int = 0, **replaced) -> Batch:
    random = np.random.default_rng(seed)

    def observed():
        opening = random.uniform(0, 0.08, (rows, 1)).astype(np.float32)
        return {"state": random.normal(size=(rows, 3)).astype(np.float32), "opening": opening}

    arrays = {
        "observations": observed(),
        "actions": random.uniform(-1, 1, (rows, 3)).astype(np.float32),
        "rewards": random.normal(size=rows).astype(np.float32),
        "masks": (random.random(rows) < 0.7).astype(np.float32),
        "discounts": np.full(rows, 0.97, np.float32),
        "next_observations": observed(),
        "weights": np.ones(rows, np.float32),
        "sources": np.zeros(rows, np.int8),
    }
    return Batch(**(arrays | replaced))


class Table(torch.nn.Module):
    """Stands in for a network: the state's first number says which row of a table to return."""

    def __init__(self, rows) -> None:
        super().__init__()
        self.rows = torch.tensor(rows, dtype=torch.float32)

    def forward(self, observations):
        return self.rows[observations[:, 0].long()]


def encoded(**arrays) -> TensorBatch:
    states = torch.tensor([[0.0, 0], [1, 0], [2, 0]])
    usual = {
        "observations": states,
        "actions": torch.zeros((3, 3)),
        "rewards": torch.tensor([0.0, 1.0, 0.5]),
        "masks": torch.tensor([1.0, 0, 1]),
        "discounts": torch.full((3,), 0.5),
        "next_observations": states,
        "weights": torch.tensor([1.0, 1, 2]),
        "extras": {},
    }
    return TensorBatch(**(usual | arrays))


# losses against numbers computed by hand


def test_gripper_target_is_double_q():
    built = learner()
    built.gripper, built.target_gripper = Table([[1, 2], [0, 9], [5, 4]]), Table([[10, 20], [30, 40], [50, 60]])
    targets = built.gripper_target(encoded(), torch.tensor([-0.02, 0.0, 0.0]))
    # choices 1, 1, 0; the second step ended the task
    np.testing.assert_allclose(targets, [0.0 - 0.02 + 0.5 * 20, 1.0, 0.5 + 0.5 * 50], rtol=1e-6)


def test_the_loss_is_of_the_commanded_choice_alone(monkeypatch):
    built = learner()
    built.gripper = Table([[1, 2], [0, 3], [5, 4]])
    built.gripper.rows.requires_grad_()
    monkeypatch.setattr(built, "gripper_target", lambda data, penalties: torch.tensor([0.0, 1, 7]))
    commands = torch.tensor([[0, 0.01, 0], [0, -0.01, 0], [0, -1.0, 0]])  # the nearer choice: opens, closes, closes
    loss = built.gripper_loss(encoded(actions=commands), torch.zeros(3))
    assert loss.item() == pytest.approx((2.0**2 + 1.0**2 + 2 * 2.0**2) / 3)
    (by_values,) = torch.autograd.grad(loss, built.gripper.rows)
    np.testing.assert_allclose(by_values, np.array([[0, 2.0], [-1.0, 0], [2 * -2.0, 0]]) * 2 / 3, rtol=1e-6)


def test_only_gripper_changes_are_penalised():
    commands = torch.tensor([-0.6, -0.4, -1.0, 0.6, 0.4, 1.0])
    opening = torch.tensor([0.95, 0.95, 0.5, 0.5, 0.5, 0.95])
    found = learner(grasp_penalty=0.1).grasp_penalty(opening, commands)
    np.testing.assert_allclose(found, [-0.1, 0, 0, -0.1, 0, 0])


def test_the_reading_is_the_share_of_what_can_be_commanded():
    observations = {"state": np.zeros((3, 3), np.float32), "opening": np.float32([[0.0], [0.04], [0.08]])}
    np.testing.assert_allclose(learner()._opening(batch(3, observations=observations)), [0.0, 0.5, 1.0])


# what reaches whom


def states_after(built, data, leaves):
    """Returns the arm's networks and moments, and the gripper's, after an update."""
    built.update(data)
    state = built.state_dict()
    learnt = leaves({name: state[name] for name in ("networks", "optimizers")})
    return tuple({name: leaf for name, leaf in learnt.items() if ("gripper" in name) == own} for own in (False, True))


def test_penalty_reaches_only_gripper_critic(leaves):
    actions = batch().actions.copy()
    actions[:, 1] = 1.0  # opens a gripper that is not open
    data = batch(actions=actions)
    free, penalised = (states_after(learner(grasp_penalty=penalty), data, leaves) for penalty in (0.0, 0.5))
    assert free[0] == penalised[0] and free[1] != penalised[1]


def test_the_arms_critics_do_not_see_the_gripper(leaves):
    states = []
    for sign in (1.0, -1.0):
        actions = batch().actions.copy()
        actions[:, 1] = sign
        states.append(states_after(learner(grasp_penalty=0.0), batch(actions=actions), leaves))
    assert states[0][0] == states[1][0] and states[0][1] != states[1][1]
    assert learner().arm.critic.state_dict()["layers.linears.0.weight"].shape[1] == 4 + 2  # state and opening, x and y


def test_each_batch_slice_updates_gripper_and_its_target():
    built = learner(updates_per_step=2)
    before = built.state_dict()["networks"]["target_gripper"]
    built.update(batch(8))
    after = built.state_dict()
    assert after["optimizers"]["gripper"]["step"].item() == 2
    for name, value in before.items():
        assert not torch.equal(value, after["networks"]["target_gripper"][name])


def test_the_policy_puts_the_better_choice_in_its_place():
    built = learner()
    policy, observation = built.policy, {"state": np.zeros(3, np.float32), "opening": np.float32([0.04])}
    for table, command in (([[2, 1]], -1.0), ([[1, 2]], 1.0)):
        policy._actor.gripper = Table(table)
        for deterministic in (True, False):
            action = policy.act(observation, deterministic=deterministic)
            assert action.shape == (3,) and action.dtype == np.float32 and action[1] == command
    with torch.no_grad():
        arm = built.arm.actor.mode(torch.tensor([[0, 0, 0, 0.04]]))[0]
    np.testing.assert_array_equal(policy.act(observation, deterministic=True)[[0, 2]], arm)


def test_the_target_entropy_counts_the_gripper():
    assert learner().arm.temperature.target_entropy == pytest.approx(-0.5 * 3)


def test_without_a_gripper_it_is_rlpd_with_the_authors_values():
    config = HILSERLConfig()
    assert isinstance(config.build(ARM, 0), RLPD)
    assert (config.discount, config.critics, config.target_critics, config.initial_temperature) == (0.97, 2, 2, 0.01)
    sampling = config.sampling
    assert (sampling.updates_per_step, sampling.offline_fraction, sampling.keeps_corrections) == (2, 0.5, True)


@pytest.mark.parametrize("gripper", ["grip", "x"])
def test_a_gripper_that_is_not_there_or_not_read_is_refused(gripper):
    with pytest.raises(
        InvalidSetting, match=rf"can be given its own critic.\n  got:     gripper '{gripper}'\n  allowed: opening"
    ):
        replace(SMALL, gripper=gripper).build(ARM, 0)


@pytest.mark.slow
def test_the_gripper_learns_known_values():
    """Closing pays 1 and ends the task, opening pays nothing and leads back: Q = (1, gamma)."""
    built = learner(grasp_penalty=0.0, tau=0.1, updates_per_step=1, batch_size=32)
    random = np.random.default_rng(0)
    same = {"state": np.zeros((32, 3), np.float32), "opening": np.full((32, 1), 0.04, np.float32)}
    for _ in range(250):
        actions = random.uniform(-1, 1, (32, 3)).astype(np.float32)
        closes = actions[:, 1] < 0
        data = batch(32, observations=same, next_observations=same, actions=actions)
        built.update(replace(data, rewards=closes.astype(np.float32), masks=(~closes).astype(np.float32)))
    with torch.no_grad():
        values = built.gripper(torch.tensor([[0, 0, 0, 0.04]]))
    np.testing.assert_allclose(values, [[1.0, 0.97]], atol=0.02)
    assert built.policy.act({"state": np.zeros(3, np.float32), "opening": np.float32([0.04])})[1] == -1.0
