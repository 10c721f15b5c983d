"""PPO: equations and GAE by hand, gradients beside autograd, Stable-Baselines3's numbers, exact saving, refused updates."""

from __future__ import annotations

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from stable_baselines3 import PPO as SB3PPO
from stable_baselines3.common.logger import Logger
from torch import nn

from robo_policies.action_heads import Categorical, DiagonalGaussian
from robo_policies.ppo import PPO, PPOConfig, Rows
from robo_policies.tanh_towers import TanhTowers
from robo_rl.on_policy import VectorStep

SMALL = PPOConfig(num_envs=4, steps_per_env=8, batch_size=16, epochs=2, hidden=(8, 6))
FLOAT = np.float32


@pytest.fixture
def vectors():
    """Returns observations of the spec in conftest for N environments."""

    def make(random: np.random.Generator, count: int) -> dict[str, np.ndarray]:
        return {
            "joint_position": random.normal(size=(count, 2)).astype(FLOAT),
            "camera_front": np.zeros((count, 2, 2, 3), np.uint8),
            "object_mass": np.zeros((count, 1), FLOAT),
            "goal": random.normal(size=(count, 1)).astype(FLOAT),
        }

    return make


@pytest.fixture
def collect(vectors):
    """Fills a learner's rollout with random observations and rewards, and with ends of both kinds."""

    def fill(learner: PPO, seed: int = 0) -> None:
        random, count = np.random.default_rng(seed), learner.config.num_envs
        if not learner.is_collecting:
            learner.begin(vectors(random, count))
        while not learner.is_ready:
            learner.act()
            terminated, truncated = random.random((2, count)) < 0.1
            cut = int((truncated & ~terminated).sum())
            finals = vectors(random, cut) if cut else {}
            learner.observe(VectorStep(vectors(random, count), random.normal(size=count), terminated, truncated, finals))

    return fill


# equations


def test_the_clipped_surrogate_by_hand(spec):
    learner = replace(SMALL, clip_range=0.2).build(spec, 0)
    ratio, advantages = np.array([1.1, 1.5, 1.5, 0.5, 0.5], FLOAT), np.array([2, 2, -2, 2, -2], FLOAT)
    np.testing.assert_allclose(learner.surrogate(ratio, advantages), [2.2, 2.4, -3.0, 1.0, -1.6], rtol=1e-6)
    # a gain beyond the clip is worth nothing more, a loss always counts
    np.testing.assert_allclose(learner.surrogate_slope(ratio, advantages), [2.2, 0.0, -3.0, 1.0, 0.0], rtol=1e-6)
    np.testing.assert_allclose(learner.ratio(np.log(ratio), np.zeros(5, FLOAT)), ratio, rtol=1e-6)
    np.testing.assert_allclose(learner.value_loss(np.array([3.0]), np.array([1.0])), [4.0])
    np.testing.assert_allclose(learner.value_slope(np.array([3.0]), np.array([1.0])), [4.0])


def test_advantages_by_hand_where_an_episode_terminates_and_one_is_cut(spec):
    """One environment, four steps; the second step ends an episode, by the task or by the clock."""
    learner = replace(SMALL, num_envs=1, steps_per_env=4, batch_size=4, discount=0.5, gae_lambda=0.5).build(spec, 0)
    data, values = learner.trajectories, np.array([[1.0], [2.0], [7.0], [4.0], [5.0]], FLOAT)
    data.rewards[:, 0] = [1, 1, 1, 1]
    data.ended[:, 0] = [False, True, False, False]
    last = 1 + 0.5 * 5 - 4
    third = 1 + 0.5 * 4 - 7
    for final_value in (0.0, 8.0):  # of the last observation: 0 where the task ended, its value where the clock did
        data.final_values[:, 0] = [0, final_value, 0, 0]
        second = 1 + 0.5 * final_value - 2
        first = 1 + 0.5 * 2 - 1
        expected = [first + 0.25 * second, second, third + 0.25 * last, last]
        np.testing.assert_allclose(learner.advantages(values)[:, 0], expected, rtol=1e-6)


def test_advantages_equal_the_sum_over_episodes(spec):
    """The recursion against the double sum of the definition, eq. 16 of the paper on GAE."""
    learner = replace(SMALL, num_envs=3, steps_per_env=32, batch_size=32).build(spec, 0)
    random, data = np.random.default_rng(0), learner.trajectories
    data.rewards[:] = random.normal(size=data.rewards.shape)
    data.ended[:] = random.random(data.ended.shape) < 0.15
    data.final_values[:] = data.ended * (random.random(data.ended.shape) < 0.5) * random.normal(size=data.ended.shape)
    values = random.normal(size=(33, 3)).astype(FLOAT)
    expected = np.zeros((32, 3))
    for environment in range(3):
        for start in range(32):
            for step in range(start, 32):
                ended = data.ended[step, environment]
                following = data.final_values[step, environment] if ended else values[step + 1, environment]
                residual = data.rewards[step, environment] + 0.99 * following - values[step, environment]
                expected[start, environment] += (0.99 * 0.95) ** (step - start) * residual
                if ended:
                    break
    np.testing.assert_allclose(learner.advantages(values), expected, rtol=1e-4, atol=1e-5)


# gradients


def in_torch(networks: TanhTowers):
    """Returns the same networks in double precision with autograd, as a function of one flat tensor."""
    flat = torch.tensor(networks.parameters, dtype=torch.float64, requires_grad=True)
    *weights, actor, critic, extra = networks._parts(flat)

    def forward(inputs: torch.Tensor):
        hidden = inputs.expand(2, *inputs.shape)
        for weight in weights:
            units = torch.tanh(hidden @ weight)
            hidden = torch.cat((units, torch.ones_like(units[..., :1])), -1)
        return hidden[0] @ actor, (hidden[1] @ critic)[:, 0]

    return flat, extra, forward


@pytest.mark.parametrize("hidden", [(), (5,), (8, 6), (4, 5, 6)])
@pytest.mark.parametrize("kind", [DiagonalGaussian, Categorical])
def test_a_gradient_step_follows_the_gradient_of_autograd(kind, hidden):
    """The whole of eq. 9, entropy included, for networks of any depth and both kinds of action."""
    head, random, rows = kind(3), np.random.default_rng(0), 16
    networks = TanhTowers(4, hidden, head.outputs, random, extra=head.parameters)
    networks.parameters += 0.3 * random.standard_normal(len(networks.parameters), FLOAT)
    inputs = np.ones((rows, 5), FLOAT)
    inputs[:, :4] = random.normal(size=(rows, 4))
    discrete = kind is Categorical
    actions = random.integers(3, size=rows) if discrete else random.normal(size=(rows, 3)).astype(FLOAT)
    advantages, returns = random.normal(size=(2, rows)).astype(FLOAT)
    old = head.log_density(networks.act(inputs), networks.extra, actions) + 0.3 * random.standard_normal(rows, FLOAT)

    flat, extra, forward = in_torch(networks)
    outputs, values = forward(torch.tensor(inputs, dtype=torch.float64))
    law = torch.distributions.Categorical(logits=outputs) if discrete else torch.distributions.Normal(outputs, extra.exp())
    densities, entropies = law.log_prob(torch.tensor(actions)), law.entropy()
    if not discrete:
        densities, entropies = densities.sum(-1), entropies.sum(-1)
    ratio = (densities - torch.tensor(old)).exp()
    gains = torch.minimum(ratio * torch.tensor(advantages), ratio.clamp(0.8, 1.2) * torch.tensor(advantages))
    loss = -gains.mean() + 0.5 * ((values - torch.tensor(returns)) ** 2).mean() - 0.03 * entropies.mean()
    loss.backward()

    learner = PPO.__new__(PPO)
    learner.config = PPOConfig(entropy_coefficient=0.03)
    learner.head, learner.networks, learner.updates = head, networks, 0
    learner._optimizer = type("Still", (), {"step": lambda self, update: None})()
    seen = learner.descend(Rows(inputs, actions, old, advantages, returns))
    np.testing.assert_allclose(seen.ratio, ratio.detach(), rtol=1e-4)
    assert 0 < np.mean(np.abs(seen.ratio - 1) > 0.2) < 1, "some rows are clipped and some are not"
    np.testing.assert_allclose(networks.gradient, flat.grad, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(head.entropy(networks.act(inputs), networks.extra), entropies.detach(), rtol=1e-4)
    np.testing.assert_allclose(networks.value(inputs), values.detach(), rtol=1e-4, atol=1e-5)


# Stable-Baselines3


class Still(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))

    def reset(self, *, seed=None, options=None):
        return np.zeros(3, FLOAT), {}


def copy_networks(ours: TanhTowers, theirs: SB3PPO) -> None:
    *weights, actor, critic, extra = ours._parts(ours.parameters)
    towers = [theirs.policy.mlp_extractor.policy_net, theirs.policy.mlp_extractor.value_net]
    pairs = []
    for tower, layers in enumerate(towers):
        linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
        pairs += [(layer, weight[tower]) for layer, weight in zip(linear, weights, strict=True)]
    pairs += [(theirs.policy.action_net, actor), (theirs.policy.value_net, critic)]
    with torch.no_grad():
        for layer, weight in pairs:
            layer.weight.copy_(torch.tensor(weight[:-1].T))
            layer.bias.copy_(torch.tensor(weight[-1]))
        theirs.policy.log_std.copy_(torch.tensor(extra))


def copy_rollout(ours: PPO, theirs: SB3PPO) -> None:
    """Gives Stable-Baselines3 the same transitions; where the clock cut an episode it adds the value to the reward."""
    data, buffer = ours.trajectories, theirs.rollout_buffer
    buffer.reset()
    for step in range(data.length):
        observations = torch.tensor(data.inputs[step, :, :-1])
        starts = data.ended[step - 1] if step else np.zeros(len(observations), bool)
        with torch.no_grad():
            values, densities, _ = theirs.policy.evaluate_actions(observations, torch.tensor(data.actions[step]))
        rewards = data.rewards[step] + ours.config.discount * data.final_values[step]
        buffer.add(observations.numpy(), data.actions[step], rewards, starts, values, densities)
    with torch.no_grad():
        last = theirs.policy.predict_values(torch.tensor(data.inputs[-1, :, :-1]))
    buffer.compute_returns_and_advantage(last_values=last, dones=data.ended[-1])


def test_an_update_equals_that_of_stable_baselines(spec, collect, monkeypatch):
    """Same networks, rollout and order of minibatches: the same losses and parameters, in two updates one after the other."""
    config = PPOConfig(num_envs=4, steps_per_env=64, batch_size=32, epochs=4, hidden=(16, 16), entropy_coefficient=0.01)
    ours = config.build(spec, 0)
    theirs = SB3PPO(
        "MlpPolicy",
        Still(),
        n_steps=64,
        batch_size=32,
        n_epochs=4,
        ent_coef=0.01,
        policy_kwargs={"net_arch": [16, 16]},
        device="cpu",
    )
    theirs.n_envs = theirs.rollout_buffer.n_envs = 4
    theirs.set_logger(Logger(folder=None, output_formats=[]))
    copy_networks(ours.networks, theirs)
    for seed in range(2):
        collect(ours, seed)
        copy_rollout(ours, theirs)
        orders = np.random.default_rng()
        orders.bit_generator.state = ours._shuffling.bit_generator.state
        monkeypatch.setattr(np.random, "permutation", orders.permutation)
        metrics = ours.update()
        theirs.train()
        logged = theirs.logger.name_to_value
        for tag in ("policy_gradient_loss", "value_loss", "approx_kl", "clip_fraction", "explained_variance", "std"):
            assert metrics[f"train/{tag}"] == pytest.approx(logged[f"train/{tag}"], rel=2e-3, abs=1e-5), tag
    expected = TanhTowers(3, (16, 16), 2, np.random.default_rng(1), extra=2)
    before = np.array(ours.networks.parameters)
    read_networks(theirs, expected)
    np.testing.assert_allclose(before, expected.parameters, atol=2e-5)


def read_networks(theirs: SB3PPO, into: TanhTowers) -> None:
    *weights, actor, critic, extra = into._parts(into.parameters)
    towers = [theirs.policy.mlp_extractor.policy_net, theirs.policy.mlp_extractor.value_net]
    for tower, layers in enumerate(towers):
        for layer, weight in zip([part for part in layers if isinstance(part, nn.Linear)], weights, strict=True):
            weight[tower, :-1], weight[tower, -1] = layer.weight.detach().T, layer.bias.detach()
    for layer, weight in ((theirs.policy.action_net, actor), (theirs.policy.value_net, critic)):
        weight[:-1], weight[-1] = layer.weight.detach().T, layer.bias.detach()
    extra[:] = theirs.policy.log_std.detach()
