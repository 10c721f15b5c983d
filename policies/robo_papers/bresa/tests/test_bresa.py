"""Bresa: time scale and target of risk by hand, who acts when, what each memory holds, and a reflex that lowers peak forces."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from robo_papers.bresa.learner import Bresa, BresaConfig, ReflexPolicy
from robo_policies.networks.settings import Network
from robo_rl.conformance.learners import check_policy
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.protocols.sampling import Replay
from robo_rl.rollout import rollout
from robo_rl.runs.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from robo_rl.settings import updated
from robo_rl.spec.environment import specification

SMALL = BresaConfig(
    network=Network(hidden=(8,)), batch_size=8, replay=Replay(learning_starts=200, capacity=20_000), hold=10, risk_pretraining=3
)
LEARNS = updated(
    SMALL,
    network={"hidden": (64, 64), "normalization_rows": 5000},
    batch_size=128,
    lr=1e-3,
    tau=0.01,
    discount=0.97,
    initial_temperature=0.1,
    replay={"learning_starts": 12_000, "capacity": 400_000},
    hold=20,
    risk_pretraining=1_000,
)


class Observer:
    """Keeps nothing but costs."""

    def __init__(self):
        self.costs, self.metrics = [], {}

    def on_step(self, *_):
        """Keep nothing."""

    def on_episode(self, *_, episode, **__):
        """Keep the costs."""
        self.costs.append(episode.costs)

    def on_metrics(self, step, metrics):
        """Keep the newest."""
        self.metrics |= metrics


def make():
    return make_environment("contact/Mass-v0")


def learner_of(**settings):
    return Bresa(specification(make()), updated(SMALL, settings), 0)


def set_logits(network, value):
    """Make a network of critics return one value everywhere."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
        last = list(network.parameters())[-1]
        last.fill_(value)


def observation_of(environment, seed=0):
    return environment.reset(seed=seed)[0]


def test_discount_of_a_step_is_the_root_of_that_of_an_action():
    assert BresaConfig(hold=20, risk_discount=0.5).fast_discount ** 20 == pytest.approx(0.5)
    assert BresaConfig(hold=1, risk_discount=0.5).fast_discount == 0.5
    assert BresaConfig(risk_discount=0.1).fast_discount == pytest.approx(0.1 ** (0.005 / 0.1))


def test_risk_target_by_hand():
    learner = learner_of(hold=4, risk_discount=0.0625)  # 0.5 for a step
    held_risk, fresh_risk = 0.8, 0.2

    def critic(features, actions):
        risk = torch.where(actions[:, 0] == 1.0, held_risk, fresh_risk)
        return torch.logit(torch.stack((risk, risk / 2)))  # the larger of two counts

    learner.target_risk_critic = critic
    learner.task.actor.sample = lambda features, generator: (torch.zeros(len(features), 2), None)
    features, actions = torch.zeros(3, learner.parts.encoder.size), torch.ones(3, 2)
    found = learner.risk_target(features, actions, torch.tensor([0.0, 1.0, 0.0]), torch.tensor([1.0, 1.0, 0.0]))
    np.testing.assert_allclose(found, [0.5 * (0.75 * 0.8 + 0.25 * 0.2), 1.0, 0.0], rtol=1e-6)


def test_reflex_starts_at_the_threshold_and_ends_below_it():
    learner, environment = learner_of(hold=5, risk_threshold=0.5, release=0.4, least_recovery=3), make()
    risks = iter([0.4, 0.6, 0.1, 0.1, 0.3, 0.15, 0.6, 0.6])
    learner.judge = lambda observation, action: (next(risks), torch.zeros(1, 1))
    learner.recover = lambda features: np.full(2, -1.0, np.float32)
    policy, observation = ReflexPolicy(learner), observation_of(environment)
    acted = []
    for _ in range(8):
        action = policy.act(observation)
        acted.append(policy.is_recovering)
        np.testing.assert_array_equal(action, [-1.0, -1.0] if policy.is_recovering else policy.task_action)
    # 0.1 comes too early: a reflex lasts 3 steps; 0.3 is below the threshold and above the release
    assert acted == [False, True, True, True, True, False, True, True]


def test_task_action_is_held_and_checked_at_the_reflex_rate():
    learner, environment = learner_of(hold=6, reflex_every=3), make()
    judged = []
    learner.judge = lambda observation, action: (judged.append(action) or 0.0, torch.zeros(1, 1))
    policy, observation = ReflexPolicy(learner), observation_of(environment)
    actions = [policy.act(observation) for _ in range(12)]
    assert len({action.tobytes() for action in actions}) == 2 and len(judged) == 4
    assert all(np.array_equal(each, actions[0]) for each in actions[:6])
    risks = iter([0.9, 0.0, 0.0])
    learner.judge = lambda observation, action: (next(risks), torch.zeros(1, 1))
    learner.recover = lambda features: np.zeros(2, np.float32)
    slow = ReflexPolicy(learner, config=replace(learner.config, reflex_every=6, least_recovery=4))
    acted = [slow.act(observation) is None or slow.is_recovering for _ in range(18)]
    assert acted == [True] * 6 + [False] * 12  # one period is longer than the least duration
    off = ReflexPolicy(learner_of(risk_threshold=1.0))
    off.learner.judge = None  # never called
    off.act(observation)


def test_memories_hold_proposals_and_executed_steps():
    training = updated(SMALL, replay={"learning_starts": 1}, risk_threshold=0.5).training(make, steps=46, seed=0)
    training.step = 1  # no episode of random actions, in which no reflex acts
    set_logits(training.learner.risk_critic, 9.0)  # all is risky: the recovery policy always acts
    training.learner.update_risk = lambda batch: {}
    training.run(Observer())
    assert len(training.risk_replay) == 45 and len(training.replay) == 4  # the fifth task action was cut by the last step
    task, risk = training.replay.sample(64, 1, 1.0), training.risk_replay.sample(64, 1, 1.0)
    recovery = training.learner.recovery
    features = training.learner.parts.encoder(training.learner.parts.batch(risk).observations)
    np.testing.assert_allclose(recovery(features).detach(), risk.actions, atol=1e-5)
    assert not np.isclose(task.actions[:, None], risk.actions[None]).all(-1).any()
    assert "costs" in risk.extras and "costs" not in task.extras


def test_task_reward_sums_over_the_held_steps():
    config = replace(SMALL, discount=1.0, risk_threshold=1.0)
    training = config.training(make, steps=100, seed=0)
    training.run(Observer())
    found = training.replay.sample(200, 1, 1.0).rewards
    np.testing.assert_allclose(found, -0.0005 * 10, atol=1e-6)


def test_recorded_violations_teach_the_risk_critic_alone():
    environment = make()
    pushes = np.array([1.0, 1.0], np.float32)
    episode = rollout(environment, type("Push", (), {"act": lambda *_, **__: pushes, "reset": lambda _: None})(), seed=0)
    violations = int((episode.costs["force"] > 0).sum())
    training = SMALL.training(make, steps=400, seed=0, demonstrations=[episode])
    assert violations > 0 and len(training.violations) == violations
    assert len(training.risk_replay) == len(episode) and not len(training.replay)
    training._is_pretrained = True
    batch = training._risk_batch()
    assert (batch.extras["costs"] > 0).sum() >= round(0.25 * 8)


def test_bad_settings_and_environments_are_refused():
    with pytest.raises(InvalidSetting, match="reflex_every"):
        replace(SMALL, reflex_every=11)
    with pytest.raises(InvalidSetting, match="risk_threshold"):
        replace(SMALL, risk_threshold=1.5)
    with pytest.raises(InvalidSetting, match="violations"):
        replace(SMALL, violations=1.0)
    with pytest.raises(InvalidSetting, match="needs constraint costs"):
        SMALL.training(lambda: make_environment("gymnasium/InvertedPendulum-v5"), steps=10, seed=0).run(Observer())
    with pytest.raises(UnknownName, match="forces"):
        Bresa(specification(make()), replace(SMALL, cost="forces"), 0)
    with pytest.raises(InvalidSetting, match="reward"):
        SMALL.training(make, steps=10, seed=0, reward=object())


@pytest.mark.slow
def test_policy_conforms_and_is_restored(tmp_path):
    training = SMALL.training(make, steps=500, seed=0)
    observer = Observer()
    training.run(observer)
    assert observer.costs and {*observer.costs[0]} == {"force"} and "train/recovering" in observer.metrics
    check_policy(training.policy, specification(make()))
    save_checkpoint(tmp_path, Checkpoint(500, training.state_dict()))
    state = load_checkpoint(tmp_path).parts
    observation = observation_of(make(), 5)
    training.policy.reset()
    restored = SMALL.restored_policy(make, seed=0, state=state)
    for _ in range(25):
        acted = [policy.act(observation, deterministic=True) for policy in (restored, training.policy)]
        np.testing.assert_array_equal(*acted)
    again = SMALL.training(make, steps=600, seed=0)
    again.load_state_dict(state)
    again.run(Observer())
    assert again.step == 600 and again.resumed == "warm" and again.learner.parts.updates > training.learner.parts.updates


@pytest.mark.slow
def test_reflex_lowers_peak_forces_and_keeps_success():
    peaks, successes = {}, {}
    for name, settings in {"off": {"risk_threshold": 1.0}, "200 Hz": {}}.items():
        training = replace(LEARNS, **settings).training(make, steps=80_000, seed=0)
        training.run(Observer())
        policy, environment = training.policy, make()
        episodes = [rollout(environment, policy, seed=seed, deterministic=True) for seed in range(20)]
        peaks[name] = np.median([episode.metadata["measures"]["peak_force"] for episode in episodes])
        successes[name] = sum(bool(episode.success) for episode in episodes)
    assert min(successes.values()) >= 18
    assert peaks["200 Hz"] < 0.6 * peaks["off"] and peaks["off"] > 25.0
