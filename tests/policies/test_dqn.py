"""Deep Q-learning: its target by hand, its random choices, values of a known chain, the loop with and without a machine."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import robo_rl
from factories import axes, choices, make_spec
from robo_policies.learners.dqn import DQN, DQNConfig
from robo_policies.networks.settings import Network
from robo_rl.errors import InvalidSetting
from robo_rl.settings import updated
from robo_rl.spec.environment import ArraySpec
from robo_rl.types import Batch

SPEC = make_spec("chain", ArraySpec("place", (4,), low=0.0, high=1.0), action=choices("left", "right"))
PLACES = np.eye(4, dtype=np.float32)
DISCOUNT = 0.8


def chain() -> Batch:
    """Every step of a chain of three places, whose right end pays 1 and ends; left of the first place is itself."""
    at, actions = np.repeat([0, 1, 2], 2), np.tile([0, 1], 3)
    after = np.where(actions == 1, at + 1, np.maximum(at - 1, 0))
    return Batch(
        observations={"place": PLACES[at]},
        actions=actions,
        rewards=(after == 3).astype(np.float32),
        masks=(after != 3).astype(np.float32),
        discounts=np.full(6, DISCOUNT, np.float32),
        next_observations={"place": PLACES[after]},
        weights=np.ones(6, np.float32),
        sources=np.zeros(6, np.int8),
    )


def test_target_takes_the_online_choice_and_the_slow_value(monkeypatch):
    learner = DQN(SPEC, DQNConfig(network=Network(hidden=(8,))), 0)
    online, slow = torch.tensor([[1.0, 2.0], [5.0, 0.0], [0.0, 0.1]]), torch.tensor([[7.0, -3.0], [2.0, 9.0], [4.0, 6.0]])
    monkeypatch.setattr(learner.actor, "values", lambda _: online)
    monkeypatch.setattr(learner.target, "values", lambda _: slow)
    data = SimpleNamespace(
        next_observations=torch.zeros(3, 4),
        rewards=torch.tensor([1.0, 0.5, 2.0]),
        discounts=torch.full((3,), 0.5),
        masks=torch.tensor([1.0, 1.0, 0.0]),
    )
    assert learner.targets(data).tolist() == [1.0 + 0.5 * -3.0, 0.5 + 0.5 * 2.0, 2.0]


@pytest.mark.slow
def test_values_are_those_of_the_chain():
    learner = DQN(SPEC, DQNConfig(network=Network(hidden=(32,)), lr=3e-3, tau=0.05), 0)
    data = chain()
    for _ in range(800):
        metrics = learner.update(data)
    assert np.isfinite([*metrics.values()]).all()
    with torch.no_grad():
        found = learner.actor.values(torch.as_tensor(PLACES[:3])).numpy()
    one, two, three = DISCOUNT**2, DISCOUNT, 1.0
    expected = [[DISCOUNT * one, one], [DISCOUNT * one, two], [DISCOUNT * two, three]]
    np.testing.assert_allclose(found, expected, atol=0.02)
    assert [int(learner.policy.act({"place": row}, deterministic=True)) for row in PLACES[:3]] == [1, 1, 1]


def test_random_choices_become_rare():
    learner = DQN(SPEC, DQNConfig(network=Network(hidden=(8,)), exploration_updates=4, exploration=0.25), 0)
    found = [float(learner.actor.epsilon)]
    for _ in range(5):
        learner.update(chain())
        found.append(float(learner.actor.epsilon))
    assert found == [1.0, 0.75, 0.5, 0.25, 0.25, 0.25]
    drawn = [int(learner.policy.act({"place": PLACES[0]})) for _ in range(2000)]
    best = int(learner.policy.act({"place": PLACES[0]}, deterministic=True))
    assert np.mean(np.array(drawn) != best) == pytest.approx(0.125, abs=0.03)  # half of the random ones are the best
    again = DQN(SPEC, learner.config, 1)
    again.load_state_dict(learner.state_dict())
    assert float(again.actor.epsilon) == 0.25


def test_continuous_actions_and_wrong_settings_are_refused():
    with pytest.raises(InvalidSetting, match=r"DQN needs discrete actions(.*\n)*.*sac or ppo"):
        DQN(make_spec("arm", ArraySpec("place", (4,)), action=axes("a")), DQNConfig(), 0)
    for wrong in ({"exploration": 1.5}, {"exploration_updates": 0}, {"lr": 0.0}, {"discount": 2.0}):
        with pytest.raises(InvalidSetting):
            updated(DQNConfig(), wrong)


@pytest.mark.slow
def test_a_run_with_a_machine_is_made_and_goes_on(tmp_path):
    machine = {"labels": {"key": {"entry": "grid", "index": 490, "above": 0.5}}, "formula": "F key"}
    recipe = {
        "environment": {
            "name": "minigrid/MiniGrid-DoorKey-5x5-v0",
            "arguments": {"encoding": "one-hot"},
            "wrappers": [{"name": "reward_machine", "machine": machine, "counterfactual": True}],
        },
        "algorithm": "dqn",
        "learner": {"network": {"hidden": [8]}, "batch_size": 8, "replay": {"learning_starts": 50}},
        "evaluation": {"episodes": 1, "videos": 0},
    }
    run = robo_rl.train(recipe, steps=600, out=tmp_path)
    assert run.checkpoints[-1] == 600
