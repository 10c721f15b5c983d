"""HIL-SERL's own parts: the gripper's critic, its penalty, and what it leaves to RLPD. Numbers are computed by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from robo_policies.learners.hil_serl import HILSERL, HILSERLConfig, choices_of
from robo_policies.learners.learning import EncodedBatch
from robo_policies.learners.rlpd import RLPD
from robo_rl.errors import InvalidSetting
from robo_rl.spec import ActionSpec, ArraySpec, EnvironmentSpec, ObservationSpec
from robo_rl.types import Batch

ARM = EnvironmentSpec(
    "arm",
    ObservationSpec((ArraySpec("state", (3,)), ArraySpec("opening", (1,), unit="m"))),
    ActionSpec(("x", "opening", "y"), (-1.0, 0.0, -1.0), (1.0, 0.08, 1.0), ("m", "m", "m")),
)
SMALL = HILSERLConfig(hidden=(8,), batch_size=4, gripper="opening", lr=1e-2)


def learner(**changes) -> HILSERL:
    built = replace(SMALL, **changes).build(ARM, 0)
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
        "is_human": np.zeros(rows, np.bool_),
    }
    return Batch(**(arrays | replaced))


class Table:
    """Stands in for a network: the state's first number says which row of a table to return."""

    def __init__(self, rows) -> None:
        self.rows = np.float32(rows)

    def forward(self, observations, *, keep=False):
        return self.rows[observations[:, 0].astype(int)][None]


def encoded(**arrays) -> EncodedBatch:
    states = np.float32([[0, 0], [1, 0], [2, 0]])
    usual = {
        "observations": states,
        "actions": np.zeros((3, 3), np.float32),
        "rewards": np.float32([0.0, 1.0, 0.5]),
        "masks": np.float32([1, 0, 1]),
        "discounts": np.full(3, 0.5, np.float32),
        "next_observations": states,
        "weights": np.float32([1, 1, 2]),
    }
    return EncodedBatch(**(usual | arrays))


# losses against numbers computed by hand


def test_the_target_takes_the_online_networks_choice_and_the_target_networks_value():
    critic = learner().critic
    critic.network, critic.target = Table([[1, 2], [0, 9], [5, 4]]), Table([[10, 20], [30, 40], [50, 60]])
    targets = critic.targets(encoded(), np.float32([-0.02, 0.0, 0.0]))
    # choices 1, 1, 0; the second step ended the task
    np.testing.assert_allclose(targets, [0.0 - 0.02 + 0.5 * 20, 1.0, 0.5 + 0.5 * 50], rtol=1e-6)


def test_the_loss_is_of_the_commanded_choice_alone():
    values, targets = np.float32([[1, 2], [0, 3], [5, 4]]), np.float32([0, 1, 7])
    loss, by_values = learner().critic.loss(values, np.array([1, 0, 0]), targets, np.float32([1, 1, 2]))
    assert loss == pytest.approx((2.0**2 + 1.0**2 + 2 * 2.0**2) / 3)
    np.testing.assert_allclose(by_values, np.array([[0, 2.0], [-1.0, 0], [2 * -2.0, 0]]) * 2 / 3, rtol=1e-6)


def test_the_gradient_of_the_loss_is_that_of_the_network():
    critic, data = learner().critic, EncodedBatch.of(batch(4), learner().arm.encoder, 0)
    choices, targets, weights = np.array([0, 1, 1, 0]), np.float32([0.3, -1, 2, 0]), np.ones(4, np.float32)

    def loss_now() -> float:
        return critic.loss(critic.values(data.observations), choices, targets, weights)[0]

    _, by_values = critic.loss(critic.values(data.observations, keep=True), choices, targets, weights)
    critic.network.backward(by_values[None])
    slope = critic.network.gradient.clone()
    for index in (0, 5, len(slope) - 1):
        with torch.no_grad():
            critic.network.vector[index] += 1e-2
            above = loss_now()
            critic.network.vector[index] -= 2e-2
            below = loss_now()
            critic.network.vector[index] += 1e-2
        assert float(slope[index]) == pytest.approx((above - below) / 2e-2, rel=0.05, abs=2e-3)


def test_only_a_command_that_moves_the_gripper_to_its_other_state_is_penalised():
    commands = np.float32([-0.6, -0.4, -1.0, 0.6, 0.4, 1.0])
    reading = np.float32([0.95, 0.95, 0.5, 0.5, 0.5, 0.95])
    found = learner(grasp_penalty=0.1).grasp_penalty(reading, commands)
    np.testing.assert_allclose(found, [-0.1, 0, 0, -0.1, 0, 0])


def test_the_reading_is_the_share_of_what_can_be_commanded():
    observations = {"state": np.zeros((3, 3), np.float32), "opening": np.float32([[0.0], [0.04], [0.08]])}
    np.testing.assert_allclose(learner()._reading(batch(3, observations=observations)), [0.0, 0.5, 1.0])


def test_commands_are_read_as_the_nearer_choice():
    assert choices_of(np.float32([-1.0, -0.01, 0.01, 1.0])).tolist() == [0, 0, 1, 1]


# what reaches whom


def states_after(built, data, leaves):
    """Returns the arm's state, without what is reported of it, and the gripper's, after an update."""
    built.update(data)
    arm = {name: part for name, part in built.arm.state_dict().items() if name != "metrics"}
    return leaves(arm), leaves(built.critic.state_dict())


def test_the_penalty_reaches_the_grippers_critic_and_nothing_else(leaves):
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
    assert learner().arm.critic.network.layers[0].weight.shape[1] == 4 + 2  # state and opening, x and y


def test_each_slice_of_the_batch_gives_the_gripper_a_step_and_its_target_follows():
    built = learner(updates_per_step=2)
    before = built.critic.target.vector.clone()
    built.update(batch(8))
    assert built.critic._optimizer.state_dict()["step"].item() == 2
    assert not torch.equal(before, built.critic.target.vector)


def test_the_policy_puts_the_better_choice_in_its_place():
    built = learner()
    policy, observation = built.policy, {"state": np.zeros(3, np.float32), "opening": np.float32([0.04])}
    for table, command in (([[2, 1]], -1.0), ([[1, 2]], 1.0)):
        built.critic.network = Table(table)
        for deterministic in (True, False):
            action = policy.act(observation, deterministic=deterministic)
            assert action.shape == (3,) and action.dtype == np.float32 and action[1] == command
    arm = built.arm.policy.act(observation, deterministic=True)
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
        InvalidSetting, match=rf"can be given a critic of its own.\n  got:     gripper '{gripper}'\n  allowed: opening"
    ):
        replace(SMALL, gripper=gripper).build(ARM, 0)


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
    values = built.critic.values(np.float32([[0, 0, 0, 0.04]]))
    np.testing.assert_allclose(values, [[1.0, 0.97]], atol=0.02)
    assert built.policy.act({"state": np.zeros(3, np.float32), "opening": np.float32([0.04])})[1] == -1.0
