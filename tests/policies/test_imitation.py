"""ReCOIL, GAIL and IQ-Learn: losses by hand, and an expert's rule learnt from its steps among others, without rewards."""

from __future__ import annotations

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

from factories import make_episode, make_spec
from robo_bench.trainings import Silent
from robo_papers.gail.learner import GAIL, GAILConfig, Kinds, absorbing
from robo_papers.iq_learn.learner import IQLearnConfig
from robo_papers.recoil.learner import ExpertTargets, ReCOILConfig
from robo_policies.learners.bc import BCConfig
from robo_policies.learners.imitation import ImitationNetwork
from robo_policies.learners.offline import OfflineNetwork
from robo_policies.networks.actor_critic import Trainable
from robo_policies.networks.encoders import TensorBatch
from robo_rl.errors import InvalidSetting
from robo_rl.settings import updated
from robo_rl.spec.environment import ArraySpec
from robo_rl.training.off_policy import OfflineTraining, online_training

STATE = ArraySpec("state", (1,), frame="none", role="proprioception")
SPEC = make_spec("context", STATE, max_steps=5)


class Context(gymnasium.Env):
    """A random state in each step, whatever is done; the reward is a constant lie."""

    metadata = {"render_modes": []}  # noqa: RUF012 (Gymnasium's own style)

    def __init__(self):
        self.environment_spec = SPEC
        self.observation_space, self.action_space = SPEC.observation.space, SPEC.action.space
        self._steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        return self._state(), {}

    def step(self, action):
        self._steps += 1
        return self._state(), 1.0, False, self._steps == 5, {}

    def _state(self):
        return {"state": self.np_random.uniform(-1, 1, 1).astype(np.float32)}


def expert_action(states):
    return 0.6 * np.abs(states) - 0.3


def recorded(count, *, is_expert, seed=0):
    """Return episodes of the expert, or of random actions."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        states = random.uniform(-1, 1, (6, 1)).astype(np.float32)
        actions = expert_action(states[:5]) if is_expert else random.uniform(-1, 1, (5, 1))
        found.append(make_episode({"state": states}, actions=actions.astype(np.float32), success=is_expert))
    return found


def error(policy):
    """Return the mean distance from the expert's action."""
    states = np.linspace(-1, 1, 41, dtype=np.float32)
    acted = [policy.act({"state": state[None]}, deterministic=True)[0] for state in states]
    return float(np.abs(np.array(acted) - expert_action(states)).mean())


def tensors(masks=(1, 1, 1, 1), from_expert=(True, True, False, False)):
    rows, masks = len(masks), torch.tensor(masks, dtype=torch.float32)
    states, ones = torch.linspace(-1, 1, rows)[:, None], torch.ones(rows)
    actions = torch.linspace(0.5, -0.5, rows)[:, None]
    return TensorBatch(states, actions, ones, masks, 0.9 * ones, states, ones, {"from_expert": torch.tensor(from_expert)})


RECOIL = ReCOILConfig(
    network=OfflineNetwork(hidden=(32,), normalization_rows=0),
    batch_size=64,
    lr=3e-3,
    tau=0.05,
    expert_value=10.0,
    step_value=-0.1,
)


def test_recoil_pulls_the_expert_up_and_backs_others_up():
    learner = replace(RECOIL, expert_value=10.0, step_value=-1.0).build(SPEC, 0)
    values, next_v = torch.tensor([[1.0, 2.0, 3.0, 4.0]]), torch.tensor([5.0, 5.0, 5.0, 5.0])
    found = learner.critic_loss(values, next_v, tensors(masks=(1, 0, 1, 0)))
    targets = [10.0, 10.0, -1.0 + 0.9 * 5.0, -1.0 - 0.9 * 10.0]  # the last one ended elsewhere
    assert float(found) == pytest.approx(np.mean((np.array([1, 2, 3, 4]) - targets) ** 2) / 2)


def offline_error(config, episodes, updates=600):
    learner = config.build(SPEC, 0)
    OfflineTraining(SPEC, learner, config.sampling, steps=updates, seed=0, demonstrations=episodes).run(Silent())
    return error(learner.policy)


@pytest.mark.slow
def test_recoil_follows_few_of_an_expert_among_many_others():
    episodes = recorded(5, is_expert=True) + recorded(95, is_expert=False, seed=1)
    bc = BCConfig(network=OfflineNetwork(hidden=(32,), normalization_rows=0), batch_size=64, lr=3e-3)
    assert offline_error(RECOIL, episodes) < 0.1 < offline_error(bc, episodes)


@pytest.mark.slow
def test_recoil_without_the_pull_follows_nobody(monkeypatch):
    plain = ExpertTargets.__call__

    def blind(self, next_v, data):
        return plain(self, next_v, replace(data, extras={"from_expert": torch.zeros_like(data.extras["from_expert"])}))

    monkeypatch.setattr(ExpertTargets, "__call__", blind)
    assert offline_error(RECOIL, recorded(5, is_expert=True) + recorded(95, is_expert=False, seed=1)) > 0.1


def test_half_of_each_batch_is_the_experts():
    learner = RECOIL.build(SPEC, 0)
    episodes = recorded(1, is_expert=True) + recorded(30, is_expert=False)
    training = OfflineTraining(SPEC, learner, RECOIL.sampling, steps=1, seed=0, demonstrations=episodes)
    batch = training.replay.sample(63)
    assert batch.extras["from_expert"].sum() == 31
    expected = expert_action(batch.observations["state"])
    np.testing.assert_allclose(batch.actions[batch.extras["from_expert"]], expected[batch.extras["from_expert"]], rtol=1e-5)
    assert np.abs(batch.actions - expected)[~batch.extras["from_expert"]].min() > 1e-4


@pytest.mark.parametrize("is_expert", [True, False])
def test_data_of_one_kind_are_refused(is_expert):
    learner = RECOIL.build(SPEC, 0)
    with pytest.raises(InvalidSetting, match=r"learner\.experts"):
        OfflineTraining(SPEC, learner, RECOIL.sampling, steps=1, seed=0, demonstrations=recorded(3, is_expert=is_expert))


SMALL = GAILConfig(network=ImitationNetwork(hidden=(8,), normalization_rows=0), batch_size=4, discriminator_hidden=(8,))


class Linear(Trainable):
    """A discriminator whose logits are 3 s + 4 a + 2 flag."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([3.0, 4.0, 2.0]))

    def forward(self, inputs):
        return inputs @ self.weight


def kinds(data):
    return Kinds.of(data.masks.numpy(), data.extras["from_expert"].numpy(), torch.device("cpu"))


def linear_gail(**changes):
    learner = updated(SMALL, changes).build(SPEC, 0)
    learner.discriminator = learner.parts.add("discriminator", Linear(), 1e-3)
    return learner


def test_reward_is_that_of_the_present_discriminator():
    learner, data = linear_gail(discount=0.9), tensors(masks=(1, 1, 1, 0))
    logits = 3.0 * np.linspace(-1, 1, 4) + 4.0 * np.linspace(0.5, -0.5, 4)
    expected = -np.log(1.0 - 1.0 / (1.0 + np.exp(-logits)))
    expected[3] += 0.9 * -np.log(1.0 - 1.0 / (1.0 + np.exp(-2.0))) / 0.1
    np.testing.assert_allclose(learner.rewards(data), expected, rtol=1e-5)
    with torch.no_grad():
        learner.discriminator.weight.zero_()
    np.testing.assert_allclose(learner.rewards(data)[:3], np.log(2.0), rtol=1e-6)


def test_gradient_norm_is_that_of_state_and_action():
    found = linear_gail().gradient_norms(torch.rand(5, 3))
    np.testing.assert_allclose(found, np.sqrt(3.0**2 + 4.0**2 + 2.0**2), rtol=1e-5)


def test_discriminator_loss_by_hand():
    learner = linear_gail(label_smoothing=(1.0, 1.0), entropy=0.0, largest_gradient=2.0)
    data = tensors()
    logits = learner.inputs(data).detach() @ learner.discriminator.weight.detach()
    expert, policy = logits[:2], logits[2:]
    plain = torch.log1p(torch.exp(-expert)).mean() + torch.log1p(torch.exp(policy)).mean()
    penalty = 10.0 * (np.sqrt(29.0) - 2.0) ** 2
    found = learner.learn_discriminator(data, kinds(data))["discriminator_loss"]
    assert found.item() == pytest.approx(float(plain) + penalty, rel=1e-4)


def test_discriminator_sees_an_absorbing_state_for_each_end():
    learner, seen = linear_gail(), []
    plain = learner.discriminator.forward
    learner.discriminator.forward = lambda inputs: seen.append(inputs.detach().clone()) or plain(inputs)
    data = tensors(masks=(0, 1, 0, 1))
    learner.learn_discriminator(data, kinds(data))
    assert torch.equal(seen[0][4:], absorbing(torch.zeros(2, 3))) and seen[0][:4, 2].abs().max() == 0.0


@pytest.mark.slow
def test_penalty_keeps_the_discriminator_smooth():
    found = {}
    for weight in (10.0, 0.0):
        settings = {"gradient_penalty": weight, "discriminator_lr": 3e-3, "label_smoothing": (1.0, 1.0)}
        learner = replace(SMALL, batch_size=64, **settings).build(SPEC, 0)
        states = torch.linspace(-1, 1, 64)[:, None]
        from_expert = torch.arange(64) % 2 == 0
        actions = torch.where(from_expert, 0.1, -0.1)[:, None]
        one = torch.ones(64)
        data = TensorBatch(states, actions, one, one, one, states, one, {"from_expert": from_expert})
        for _ in range(300):
            figures = learner.learn_discriminator(data, kinds(data))
        found[weight] = float(figures["discriminator_gradient"])
    assert found[10.0] < 1.3
    assert found[0.0] > 5.0


FAST = {
    "network": {"hidden": (32,)},
    "batch_size": 64,
    "lr": 3e-3,
    "tau": 0.05,
    "replay": {"learning_starts": 100, "capacity": 5000},
}
FAST |= {"discount": 0.5, "initial_temperature": 0.05, "network": {"normalization_rows": 0}}
LEARNERS = {
    "gail": updated(GAILConfig(), FAST, discriminator_lr=3e-3, discriminator_hidden=(32,), target_entropy_per_action=-2.0),
    "iq-learn": updated(IQLearnConfig(), FAST, actor_lr=3e-3),
}


def online_error(config, steps=900):
    learner = config.build(SPEC, 0)
    demonstrations = recorded(20, is_expert=True)
    online_training(Context(), learner, config.sampling, steps=steps, seed=0, demonstrations=demonstrations).run(Silent())
    return error(learner.policy)


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.slow
def test_expert_is_imitated_without_its_rewards(name):
    assert online_error(LEARNERS[name]) < 0.12


@pytest.mark.slow
def test_gail_learns_nothing_from_a_discriminator_that_does_not(monkeypatch):
    monkeypatch.setattr(GAIL, "learn_discriminator", lambda *_: {})
    assert online_error(LEARNERS["gail"], 500) > 0.15


def test_iq_loss_by_hand():
    learner = IQLearnConfig(network=ImitationNetwork(hidden=(8,)), batch_size=4, divergence_weight=0.5).build(SPEC, 0)
    values, states = torch.tensor([[1.0, 2.0, 3.0, 4.0]]), torch.tensor([[0.5, 0.5, 1.5, 1.5]])
    following = torch.tensor([0.1, 0.2, 0.3, 0.4])
    rewards = np.array([0.9, 1.8, 2.7, 3.6])
    expected = -rewards[:2].mean() + (states[0].numpy() - following.numpy()).mean() + (rewards**2).mean() / 2.0
    found = learner.imitation_loss(values, states, following, torch.tensor([True, True, False, False]))
    assert float(found) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("config", "changes", "said"),
    [
        (RECOIL, {"experts": "best"}, "source NAME"),
        (RECOIL, {"experts": "return high"}, "return X"),
        (RECOIL, {"reward_scale": 2.0}, "not read"),
        (RECOIL, {"expert_value": 0.0}, "above 0"),
        (SMALL, {"replay": {"n_step": 3}}, "single steps"),
        (SMALL, {"replay": {"offline_fraction": 1.0}}, "between 0 and 1"),
        (SMALL, {"label_smoothing": (1.2, 0.7)}, "lower first"),
        (LEARNERS["iq-learn"], {"divergence_weight": 0.0}, "above 0"),
        (LEARNERS["iq-learn"], {"replay": {"offline_fraction": 0.0}}, "between 0 and 1"),
    ],
)
def test_wrong_settings_are_one_error(config, changes, said):
    with pytest.raises(InvalidSetting, match=said):
        _ = updated(config, changes).sampling
