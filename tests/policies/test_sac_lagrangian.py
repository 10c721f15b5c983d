"""SAC with Lagrange multipliers: its losses by hand, and a constrained problem with a known answer."""

from __future__ import annotations

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch

from factories import make_spec
from robo_policies.learners.sac import SACConfig
from robo_policies.learners.sac_lagrangian import SACLagrangian, SACLagrangianConfig
from robo_policies.networks.settings import Network
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.protocols.components import ObservingLearner
from robo_rl.settings import updated
from robo_rl.spec.cost import CostSpec
from robo_rl.spec.environment import ArraySpec
from robo_rl.training.off_policy import online_training
from robo_rl.types import Batch, Transition

STATE = ArraySpec("state", (1,), frame="none", role="proprioception")
SPEC = make_spec("two", STATE, costs=(CostSpec("a", 2.0), CostSpec("b", 4.0)))
SMALL = SACLagrangianConfig(network=Network(hidden=(8,)), batch_size=4)


class Push(gymnasium.Env):
    """One decision: action a pays a and costs its square; with the limit 0.09 the best a is 0.3, the multiplier 1 / 0.6."""

    metadata = {"render_modes": []}  # noqa: RUF012 (Gymnasium's own style)

    def __init__(self):
        self.environment_spec = make_spec("push", STATE, max_steps=1, costs=(CostSpec("c", 0.09),))
        self.observation_space, self.action_space = self.environment_spec.observation.space, self.environment_spec.action.space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return {"state": np.ones(1, np.float32)}, {}

    def step(self, action):
        pushed = float(action[0])
        return {"state": np.ones(1, np.float32)}, pushed, True, False, {"costs": {"c": pushed**2}}


class Silent:
    """An observer that keeps the metrics and the cost of each episode."""

    def __init__(self):
        self.metrics, self.costs = [], []

    def on_step(self, *_):
        """Keep nothing."""

    def on_episode(self, *_, episode, **__):
        """Keep the cost."""
        self.costs += [float(episode.costs["c"].sum())]

    def on_metrics(self, step, metrics):
        """Keep the metrics."""
        self.metrics.append(metrics)


def step_of(ends=False, **costs):
    state, action = {"state": np.ones(1, np.float32)}, np.zeros(1, np.float32)
    return Transition(state, action, 0.0, state, ends, False, action, info={"costs": costs})


def batch_of(costs, masks):
    rows = len(costs)
    states = {"state": np.linspace(-1, 1, rows, dtype=np.float32)[:, None]}
    ones = np.ones(rows, np.float32)
    extras = {"costs": np.asarray(costs, np.float32)}
    zeros = np.zeros((rows, 1), np.float32)
    return Batch(states, zeros, ones, np.asarray(masks, np.float32), ones, states, ones, ones > 2, extras)


def test_multipliers_follow_plain_sums_of_whole_episodes():
    learner = replace(SMALL, cost_episodes=2).build(SPEC, 0)
    assert isinstance(learner, ObservingLearner)
    learner.parts.updates = 1
    for _ in range(2):
        learner.observe(step_of(a=2.0, b=1.0))
        learner.observe(step_of(ends=True, a=1.0, b=1.0))
    first, second = (multiplier.value for multiplier in learner.multipliers)
    assert first == pytest.approx(0.02, rel=1e-3) and second == 0.0  # 3 > 2 and 2 < 4
    learner.observe(step_of(ends=True, a=0.0, b=100.0))
    assert learner.multipliers[1].value > 0.0


def test_costs_of_random_actions_move_no_multiplier():
    learner = SMALL.build(SPEC, 0)
    learner.observe(step_of(ends=True, a=50.0, b=0.0))
    assert [multiplier.value for multiplier in learner.multipliers] == [0.0, 0.0]


def test_cost_target_by_hand():
    learner = replace(SMALL, cost_discount=0.5).build(SPEC, 0)
    learner.target_cost_critic.forward = lambda features, actions: torch.full((2, len(features)), 6.0)
    data = learner.parts.batch(batch_of([[1, 0], [2, 5]], [1, 0]))
    np.testing.assert_allclose(learner.cost_target(data), [[4.0, 2.0], [3.0, 5.0]])


def test_actor_loss_weighs_costs_and_keeps_its_scale():
    learner = SMALL.build(SPEC, 0)
    for multiplier, value in zip(learner.multipliers, (0.5, 1.5), strict=True):
        multiplier.load_state_dict(multiplier.state_dict() | {"value": value})
    states, actions, densities = torch.zeros(4, 1), torch.zeros(4, 1), torch.full((4,), -2.0)
    alpha = torch.tensor(0.1)
    with torch.no_grad():
        plain = (alpha * densities - learner.sac.critic(states, actions).amin(0)).mean()
        first, second = learner.cost_critic(states, actions)
        found = learner.sac.actor_loss(states, actions, densities, alpha)
    assert float(found) == pytest.approx(float((plain + 0.5 * first.mean() + 1.5 * second.mean()) / 3.0), rel=1e-5)


def test_without_multiplier_the_actor_loss_is_that_of_sac():
    ours, sac = (
        updated(SMALL, multiplier={"lr": 0.0}).build(SPEC, 3),
        SACConfig(network=Network(hidden=(8,)), batch_size=4).build(SPEC, 3),
    )
    states = torch.zeros(4, 1)
    same = (states, torch.zeros(4, 1), torch.full((4,), -2.0), torch.tensor(0.1))
    assert float(ours.sac.actor_loss(*same).detach()) == float(sac.actor_loss(*same).detach())


@pytest.mark.parametrize(
    ("settings", "kind", "said"),
    [
        ({"limits": {"c": 1.0}}, UnknownName, "a, b"),
        ({"cost_episodes": 0}, InvalidSetting, "1 or more"),
        ({"replay": {"n_step": 3}}, InvalidSetting, "one step ahead"),
        ({"multiplier": {"lr": -1.0}}, InvalidSetting, "0 or more"),
    ],
)
def test_wrong_settings_are_one_error(settings, kind, said):
    with pytest.raises(kind, match=said):
        updated(SMALL, settings).build(SPEC, 0)


def test_an_environment_without_costs_is_refused():
    with pytest.raises(InvalidSetting, match="declares no constraint cost"):
        SMALL.build(make_spec("free", STATE), 0)


EXACT = updated(
    SACLagrangianConfig(),
    {
        "network": {"hidden": (16,)},
        "batch_size": 64,
        "lr": 3e-3,
        "replay": {"learning_starts": 200, "capacity": 2000},
        "tau": 0.05,
    },
    {"initial_temperature": 0.1, "cost_episodes": 20},
)


def trained(config, steps=2000):
    """Return the multiplier and the mean cost of the last third."""
    environment, observer = Push(), Silent()
    learner = config.build(environment.environment_spec, 0)
    online_training(environment, learner, config.sampling, steps=steps, seed=0).run(observer)
    late = [each["train/multiplier_c"] for each in observer.metrics if "train/multiplier_c" in each]
    return float(np.mean(late[-len(late) // 3 :])), float(np.mean(observer.costs[-steps // 3 :]))


@pytest.mark.slow
def test_multiplier_and_cost_of_a_known_problem():
    multiplier, cost = trained(updated(EXACT, multiplier={"kind": "pid", "kp": 1.0, "ki": 0.02, "kd": 0.0}))
    assert cost == pytest.approx(0.09, rel=0.2)
    assert 1.3 < multiplier < 2.2


@pytest.mark.slow
def test_frozen_multiplier_violates_the_known_problem():
    assert trained(updated(EXACT, multiplier={"lr": 0.0}), 800)[1] > 0.5


@pytest.mark.slow
def test_flipped_cost_violates_the_known_problem(monkeypatch):
    plain = SACLagrangian.cost_target
    monkeypatch.setattr(SACLagrangian, "cost_target", lambda self, data: -plain(self, data))
    assert trained(updated(EXACT, multiplier={"kind": "pid", "ki": 0.02}), 800)[1] > 0.5
