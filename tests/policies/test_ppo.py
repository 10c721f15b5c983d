"""PPO: equations and GAE by hand, gradients beside autograd, Stable-Baselines3's numbers, exact saving, refused updates."""

from __future__ import annotations

import math
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from stable_baselines3 import PPO as SB3PPO
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import VecEnv, VecNormalize
from torch import nn

from factories import axes, choices, make_spec, rest_slow
from robo_policies.learners import ppo
from robo_policies.learners.clipped_step import clipped_surrogate
from robo_policies.learners.ppo import PPO, PPOConfig, minibatches
from robo_policies.networks.policy_value import PolicyValue, PolicyValueNetwork, orthogonal
from robo_rl.errors import InvalidSetting, NonFiniteUpdate, RunError
from robo_rl.moments import Normalizer
from robo_rl.rollout.episode import rollout
from robo_rl.runs.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from robo_rl.settings import updated
from robo_rl.spec.environment import ArraySpec
from robo_rl.training.on_policy import VectorStep

SMALL = PPOConfig(num_envs=4, steps_per_env=8, batch_size=16, epochs=2, network=PolicyValueNetwork(hidden=(8, 6)))
DRIVER = updated(
    SMALL, network={"distribution": "beta", "convolutions": (4,)}, privileged_critic=True, lr_schedule="linear", target_kl=1e-9
)
FLOAT = np.float32


@pytest.fixture
def vectors():
    """Returns observations of the spec in conftest for N environments."""

    def make(random: np.random.Generator, count: int) -> dict[str, np.ndarray]:
        return {
            "joint_position": random.normal(size=(count, 2)).astype(FLOAT),
            "camera_front": random.integers(0, 256, (count, 2, 2, 3)).astype(np.uint8),
            "object_mass": random.normal(size=(count, 1)).astype(FLOAT),
            "goal": random.normal(size=(count, 1)).astype(FLOAT),
        }

    return make


@pytest.fixture
def silent():
    """An observer that keeps nothing."""
    return type("Silent", (), dict.fromkeys(("on_episode", "on_metrics", "on_step"), lambda *_, **__: None))()


@pytest.fixture
def collect(vectors):
    """Fills a learner's rollout with random observations and rewards, and with ends of both kinds."""

    def fill(learner: PPO, seed: int = 0) -> None:
        random, count = np.random.default_rng(seed), learner.config.num_envs
        if learner.buffer.length == 0:
            learner.begin(vectors(random, count))
        while not learner.is_ready:
            learner.act()
            terminated, truncated = random.random((2, count)) < 0.1
            cut = int((truncated & ~terminated).sum())
            finals = vectors(random, cut) if cut else {}
            learner.observe(VectorStep(vectors(random, count), random.normal(size=count), terminated, truncated, finals))

    return fill


# equations


def test_objective_by_hand(spec):
    """One row of two normal actions with std 1: log pi is -0.5 (1 + 4) - log(2 pi), S is log(2 pi) + 1."""
    learner = replace(SMALL, entropy_coefficient=0.1, value_coefficient=0.5).build(spec, 0)
    old = torch.tensor([-2.5 - math.log(2 * math.pi) - math.log(1.1)])
    rows = (torch.tensor([[1.0, 2.0]]), old, torch.tensor([1.0]), torch.tensor([3.0]))
    objective, ratio, value_losses = learner.objective(torch.zeros(1, 2), torch.tensor([3.0]), *rows)
    assert (float(ratio), float(value_losses)) == pytest.approx((1.1, 4.0), rel=1e-5)
    assert objective.item() == pytest.approx(3.3 - 0.5 * 4.0 + 0.1 * (math.log(2 * math.pi) + 1), rel=1e-5)


def test_advantages_by_hand_for_terminal_and_truncated_ends(spec):
    """One environment, four steps; the second step ends an episode, by the task or by the clock."""
    learner = updated(SMALL, num_envs=1, steps_per_env=4, batch_size=4, discount=0.5, gae_lambda=0.5).build(spec, 0)
    data, values = learner.buffer, np.array([[1.0], [2.0], [7.0], [4.0], [5.0]], FLOAT)
    data.rewards[:, 0] = [1, 1, 1, 1]
    data.ended[:, 0] = [False, True, False, False]
    last = 1 + 0.5 * 5 - 4
    third = 1 + 0.5 * 4 - 7
    for final_value in (0.0, 8.0):  # of the last observation: 0 where the task ended, its value where the clock did
        data.final_values[:, 0] = [0, final_value, 0, 0]
        second = 1 + 0.5 * final_value - 2
        first = 1 + 0.5 * 2 - 1
        expected = [first + 0.25 * second, second, third + 0.25 * last, last]
        np.testing.assert_allclose(learner.buffer.advantages(values)[:, 0], expected, rtol=1e-6)


def test_advantages_equal_the_sum_over_episodes(spec):
    """The recursion against the double sum of the definition, eq. 16 of the paper on GAE."""
    learner = replace(SMALL, num_envs=3, steps_per_env=32, batch_size=32).build(spec, 0)
    random, data = np.random.default_rng(0), learner.buffer
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
    np.testing.assert_allclose(learner.buffer.advantages(values), expected, rtol=1e-4, atol=1e-5)


# gradients


KINDS = {"normal": "Gaussian", "beta": "Beta", "choices": "Categorical"}


def problem(kind: str, **settings) -> tuple[PPO, torch.Tensor, tuple[torch.Tensor, ...]]:
    """Returns a learner that moved away from its first parameters, and a minibatch of which some ratios are clipped."""
    action = choices("l", "s", "r") if kind == "choices" else axes("a", "b", "c")
    arrays = ArraySpec("x", (4,)), ArraySpec("hidden", (2,), role="privileged")
    policy = {} if kind == "choices" else {"network": {"distribution": kind}}
    learner = updated(SMALL, policy, settings, entropy_coefficient=0.03).build(make_spec("t", *arrays, action=action), 0)
    random, rows, networks = np.random.default_rng(0), 16, learner.networks
    with torch.no_grad():
        for parameter in networks.parameters():
            parameter.add_(torch.from_numpy(random.standard_normal(parameter.shape, FLOAT)) * (parameter != 0), alpha=0.3)
    vectors = torch.from_numpy(random.normal(size=(rows, networks.inputs)).astype(FLOAT))
    outputs, _ = networks.heads(vectors)
    actions = torch.from_numpy(networks.distribution.draw(outputs.detach(), random))
    old = networks.distribution.log_density(outputs, actions).detach() + torch.from_numpy(
        0.3 * random.standard_normal(rows, FLOAT)
    )
    returns, advantages = torch.from_numpy(random.normal(size=(2, rows)).astype(FLOAT))
    return learner, vectors, (actions, old, returns, advantages)


@pytest.mark.parametrize("hidden", [(), (5,), (8, 6), (4, 5, 6)])
@pytest.mark.parametrize("kind", [*KINDS])
@pytest.mark.parametrize("privileged", [False, True])
@pytest.mark.parametrize("engine", ["reference", "accelerated"])
def test_gradient_equals_that_of_torch_distributions(kind, hidden, privileged, engine):
    """The whole of eq. 9, entropy included, in double precision with PyTorch's own distributions."""
    learner, vectors, rows = problem(kind, privileged_critic=privileged, network={"hidden": hidden, "engine": engine})
    gradient, ratio, _ = learner.gradient(vectors, {}, rows)
    exact = PolicyValue(
        learner.policy.environment_spec, learner.config.network, np.random.default_rng(1), privileged_critic=privileged
    ).double()
    exact.load_state_dict(learner.networks.state_dict())
    outputs, values = double_heads(exact, vectors.double())
    actions, old, returns, advantages = (each.double() if each.is_floating_point() else each for each in rows)
    laws = {
        "choices": lambda: torch.distributions.Categorical(logits=outputs),
        "normal": lambda: torch.distributions.Normal(outputs, exact.distribution.log_std.exp()),
        "beta": lambda: torch.distributions.Beta(*(1 + nn.functional.softplus(outputs)).chunk(2, 1)),
    }
    law, width = laws[kind](), math.log(2) if kind == "beta" else 0.0
    densities, entropies = law.log_prob(actions) - width, law.entropy() + width
    if kind != "choices":
        densities, entropies = densities.sum(-1), entropies.sum(-1)
    expected = (densities - old).exp()
    gains = torch.minimum(expected * advantages, expected.clamp(0.8, 1.2) * advantages)
    loss = -gains.mean() + 0.5 * ((values - returns) ** 2).mean() - 0.03 * entropies.mean()
    found = torch.autograd.grad(loss, list(exact.parameters()), allow_unused=True, materialize_grads=True)
    np.testing.assert_allclose(ratio, expected.detach(), rtol=2e-4)
    assert 0 < np.mean(np.abs(ratio.numpy() - 1) > 0.2) < 1, "some rows are clipped and some are not"
    np.testing.assert_allclose(gradient, torch.cat([each.reshape(-1) for each in found]), rtol=2e-3, atol=2e-5)


def double_heads(networks: PolicyValue, vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns outputs and values by the layers one by one."""
    actor, critic = vectors[:, : networks.seen], vectors
    for weight, bias in networks.actor_trunk.layers:
        actor = torch.tanh(actor @ weight + bias)
    for weight, bias in networks.critic_trunk.layers:
        critic = torch.tanh(critic @ weight + bias)
    outputs = actor @ networks.actor_weight + networks.actor_bias
    return outputs, (critic @ networks.critic_weight)[:, 0] + networks.critic_bias


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*KINDS])
@pytest.mark.parametrize("privileged", [False, True])
def test_engines_agree_over_ten_updates(kind, privileged, spec, discrete_spec, collect):
    policy = {} if kind == "choices" else {"network": {"distribution": kind}}
    config = updated(SMALL, policy, privileged_critic=privileged, entropy_coefficient=0.01, steps_per_env=32, batch_size=32)
    learners = [
        updated(config, network={"engine": engine}).build(discrete_spec if kind == "choices" else spec, 0)
        for engine in ("reference", "accelerated")
    ]
    assert learners[0].kernel is None and learners[1].kernel is not None
    for seed in range(10):
        taken = []
        for learner in learners:
            collect(learner, seed)
            if seed == 0:
                start = learner.networks.actor_weight.clone()
            learner.buffer.actions[:] = learners[0].buffer.actions  # rounding must not choose another action
            taken.append(learner.update())
        assert taken[0] == pytest.approx(taken[1], rel=1e-3, abs=1e-4)
    first, second = (dict(learner.networks.state_dict()) for learner in learners)
    assert first.keys() == second.keys() and not torch.equal(start, first["actor_weight"])
    for name, value in first.items():
        np.testing.assert_allclose(value, second[name], atol=2e-4, err_msg=name)


# Stable-Baselines3


class Still(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))

    def reset(self, *, seed=None, options=None):
        return np.zeros(3, FLOAT), {}


def pairs(ours: PolicyValue, theirs: SB3PPO) -> list[tuple[nn.Linear, torch.Tensor, torch.Tensor]]:
    """Returns each layer of Stable-Baselines3 with our weight (in, out) and bias."""
    found = [
        (theirs.policy.action_net, ours.actor_weight, ours.actor_bias),
        (theirs.policy.value_net, ours.critic_weight, ours.critic_bias),
    ]
    extractor = theirs.policy.mlp_extractor
    for layers, trunk in ((extractor.policy_net, ours.actor_trunk), (extractor.value_net, ours.critic_trunk)):
        linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
        found += [(layer, weight, bias) for layer, (weight, bias) in zip(linear, trunk.layers, strict=True)]
    return found


@torch.no_grad()
def copy_networks(ours: PolicyValue, theirs: SB3PPO) -> None:
    for layer, weight, bias in pairs(ours, theirs):
        layer.weight.copy_(weight.T)
        layer.bias.copy_(bias)
    theirs.policy.log_std.copy_(ours.distribution.log_std)


def copy_rollout(ours: PPO, theirs: SB3PPO) -> None:
    """Gives Stable-Baselines3 the same transitions; where the clock cut an episode it adds the value to the reward."""
    data, buffer = ours.buffer, theirs.rollout_buffer
    buffer.reset()
    for step in range(data.length):
        observations = torch.tensor(data.vectors[step])
        starts = data.ended[step - 1] if step else np.zeros(len(observations), bool)
        with torch.no_grad():
            values, densities, _ = theirs.policy.evaluate_actions(observations, torch.tensor(data.actions[step]))
        rewards = data.rewards[step] + ours.config.discount * data.final_values[step]
        buffer.add(observations.numpy(), data.actions[step], rewards, starts, values, densities)
    with torch.no_grad():
        last = theirs.policy.predict_values(torch.tensor(data.vectors[-1]))
    buffer.compute_returns_and_advantage(last_values=last, dones=data.ended[-1])


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["reference", "accelerated"])
def test_update_equals_that_of_stable_baselines(engine, spec, collect, monkeypatch):
    """Same networks, rollout and order of minibatches: the same losses and parameters, in two updates one after the other."""
    config = PPOConfig(
        num_envs=4,
        steps_per_env=64,
        batch_size=32,
        epochs=4,
        network=PolicyValueNetwork(hidden=(16, 16), engine=engine),
        entropy_coefficient=0.01,
    )
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
    for layer, weight, bias in pairs(ours.networks, theirs):
        np.testing.assert_allclose(weight.detach(), layer.weight.detach().T, atol=2e-5)
        np.testing.assert_allclose(bias.detach(), layer.bias.detach(), atol=2e-5)
    np.testing.assert_allclose(ours.networks.distribution.log_std.detach(), theirs.policy.log_std.detach(), atol=2e-5)


# known values, and what happens without each part


class Clock(gymnasium.Env):
    """Every step is worth 1; after five steps the task ends, or only the clock does. The step is observed, as on a dial."""

    environment_spec = make_spec("test/Clock", ArraySpec("step", (5,)))
    observation_space = environment_spec.observation.space
    action_space = environment_spec.action.space
    ends = True

    def reset(self, *, seed=None, options=None):
        self.count = 0
        return self._observation(), {}

    def step(self, action):
        self.count += 1
        is_last = self.count == 5
        return self._observation(), 1.0, is_last and self.ends, is_last and not self.ends, {}

    def _observation(self):
        return {"step": np.eye(5, dtype=FLOAT)[self.count % 5]}


class EndlessClock(Clock):
    ends = False


class ForgetsTheLimit(PPO):
    def values(self, vectors, pictures):
        return np.float32(0.0)


PLAIN = {"normalize": {"observations": False, "rewards": False}}


@pytest.mark.slow
@pytest.mark.parametrize(("environment", "kind"), [(Clock, PPO), (EndlessClock, PPO), (EndlessClock, ForgetsTheLimit)])
def test_values_at_terminal_and_at_time_limit(environment, kind, silent):
    config = updated(
        PPOConfig(), PLAIN, num_envs=4, steps_per_env=16, batch_size=64, lr=5e-3, discount=0.8, network={"hidden": (32,)}
    )
    training = config.training(environment, steps=64 * 60, seed=0)
    training.learner = kind(environment.environment_spec, config, 0)
    training.run(silent)
    values = training.learner.networks.heads(torch.eye(5))[1].detach().numpy()
    ending = [(1 - 0.8**left) / 0.2 for left in (5, 4, 3, 2, 1)]
    endless = [1 / 0.2] * 5
    is_right = environment is Clock or kind is PPO
    expected = ending if environment is Clock else endless
    assert np.allclose(values, expected, atol=0.25) == is_right, values


class Point(gymnasium.Env):
    """A point on a line is rewarded for being near a goal that is elsewhere in each episode of 20 steps."""

    environment_spec = make_spec(
        "test/Point",
        ArraySpec("position", (1,)),
        ArraySpec("goal", (1,), role="goal"),
        action=axes("velocity", limit=0.2, unit="m"),
        max_steps=20,
    )
    observation_space = environment_spec.observation.space
    action_space = environment_spec.action.space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position, self.goal, self.count = 0.0, self.np_random.uniform(-1, 1), 0
        return self._observation(), {}

    def step(self, action):
        self.position += 0.2 * float(action[0])
        self.count += 1
        return self._observation(), -abs(self.goal - self.position), False, self.count == 20, {}

    def _observation(self):
        return {"position": np.float32([self.position]), "goal": np.float32([self.goal])}


class PointOfChoices(Point):
    environment_spec = replace(Point.environment_spec, action=choices("left", "stay", "right"))
    action_space = environment_spec.action.space

    def step(self, action):
        return super().step([int(action) - 1.0])


class WalksAway(PPO):
    def __init__(self, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        advantages = self.buffer.advantages
        self.buffer.advantages = lambda values: -advantages(values)


@pytest.mark.parametrize(
    ("environment", "kind", "policy", "learns"),
    [
        (Point, PPO, "normal", True),
        (Point, WalksAway, "normal", False),
        *rest_slow([(Point, PPO, "beta", True), (PointOfChoices, PPO, "normal", True)], fast=0),
        *rest_slow([(Point, WalksAway, "beta", False), (PointOfChoices, WalksAway, "normal", False)], fast=0),
    ],
)
def test_a_point_learns_to_go_to_its_goal(environment, kind, policy, learns, silent):
    """Standing still returns -10 in the mean, going straight about -1; four thousand steps must get most of the way."""
    config = PPOConfig(
        num_envs=8, steps_per_env=32, batch_size=64, lr=3e-3, network=PolicyValueNetwork(hidden=(32, 32), distribution=policy)
    )
    training = config.training(environment, steps=4096, seed=0)
    training.learner = kind(environment.environment_spec, config, 0)
    training.run(silent)
    returns = [rollout(environment(), training.policy, seed=seed, deterministic=True).undiscounted_return for seed in range(20)]
    assert (np.mean(returns) > -3.5) == learns, returns


def test_clipping_keeps_the_new_policy_near_the_old_one(spec, collect, monkeypatch):
    """Thirty passes over one rollout of noise: without the clip the policy runs away."""
    config = updated(SMALL, epochs=30, lr=1e-2, network={"engine": "reference"})
    found = []
    for surrogate in (clipped_surrogate, lambda ratio, advantages, *_: ratio * advantages):
        monkeypatch.setattr(ppo, "clipped_surrogate", surrogate)
        learner = config.build(spec, 0)
        collect(learner)
        found.append(learner.update()["train/approx_kl"])
    assert found[0] < 0.3 * found[1], found


# normalisation


def test_running_moments_are_those_of_all_values():
    batches = np.random.default_rng(0).normal(3.0, 2.0, (50, 4, 2))
    moments = Normalizer(2)
    for batch in batches:
        moments.merge(batch)
    np.testing.assert_allclose(moments.mean, batches.mean((0, 1)), rtol=1e-4)  # the first guess has a small weight
    np.testing.assert_allclose(moments.variance, batches.var((0, 1)), rtol=1e-3)


def test_normalisation_equals_that_of_stable_baselines(spec):
    random = np.random.default_rng(0)
    script = [(random.normal(2, 3, (3, 2)).astype(FLOAT), random.normal(size=3), random.random(3) < 0.3) for _ in range(40)]
    theirs = VecNormalize(Scripted(script), gamma=0.9)
    observations, learner = Normalizer(2), replace(SMALL, num_envs=3, batch_size=8, discount=0.9).build(spec, 0)
    first = theirs.reset()
    observations.merge(script[0][0])
    np.testing.assert_allclose(observations.scaled(script[0][0]), first, rtol=1e-5)
    for observed, gained, ended in script:
        expected, scaled, _, _ = theirs.step(np.zeros((3, 1)))
        observations.merge(observed)
        np.testing.assert_allclose(observations.scaled(observed), expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(learner.buffer.scaled_rewards(gained, ended), scaled, rtol=1e-5)


class Scripted(VecEnv):
    """Plays prepared steps to Stable-Baselines3's normalisation."""

    def __init__(self, script):
        super().__init__(3, gymnasium.spaces.Box(-np.inf, np.inf, (2,)), gymnasium.spaces.Box(-1, 1, (1,)))
        self.script, self.step_count = script, 0

    def reset(self):
        return self.script[0][0]

    def step_async(self, actions): ...

    def step_wait(self):
        observations, rewards, ended = self.script[self.step_count]
        self.step_count += 1
        return observations, rewards.copy(), ended, [{} for _ in range(3)]

    def close(self): ...
    def get_attr(self, name, indices=None):
        return [None] * 3

    def set_attr(self, *_, **__): ...
    def env_method(self, *_, **__): ...
    def env_is_wrapped(self, *_, **__):
        return [False] * 3


# saving, refusing


@pytest.mark.parametrize("config", [SMALL, DRIVER], ids=["plain", "driver"])
def test_saved_and_loaded_gives_the_same_next_update(config, spec, collect, leaves, tmp_path):
    learner = config.build(spec, 0, steps=96)
    collect(learner)
    learner.update()
    for _ in range(3):  # and a few steps of the next rollout
        learner.act()
        learner.observe(VectorStep(OBSERVED, np.ones(4), np.zeros(4, bool), np.zeros(4, bool), {}))
    save_checkpoint(tmp_path, Checkpoint(1, {"learner": learner.state_dict()}))
    copy = config.build(spec, 99, steps=96)
    copy.load_state_dict(load_checkpoint(tmp_path).parts["learner"])
    for each in (learner, copy):
        collect(each, seed=5)
        each.update()
        each.policy.act({name: value[0] for name, value in OBSERVED.items()})
    assert leaves(copy.state_dict()) == leaves(learner.state_dict())


OBSERVED = {
    "joint_position": np.ones((4, 2), FLOAT),
    "camera_front": np.zeros((4, 2, 2, 3), np.uint8),
    "object_mass": np.zeros((4, 1), FLOAT),
    "goal": np.ones((4, 1), FLOAT),
}


def test_state_of_other_networks_is_refused(spec, leaves):
    learner = SMALL.build(spec, 0)
    before = leaves(learner.state_dict())
    with pytest.raises(RunError, match=r"with other networks: train again(.|\n)*got: +trunk.weight0"):
        learner.load_state_dict({"networks": {"trunk.weight0": 0}})
    assert leaves(learner.state_dict()) == before


@pytest.mark.parametrize("config", [SMALL, DRIVER], ids=["plain", "driver"])
def test_the_saved_state_is_a_copy(config, spec, collect, leaves):
    learner = config.build(spec, 0)
    collect(learner)
    state = learner.state_dict()
    before = leaves(state)
    learner.update()
    collect(learner)
    assert leaves(state) == before


@pytest.mark.parametrize("config", [SMALL, DRIVER], ids=["plain", "driver"])
def test_seed_determines_result_and_globals_are_untouched(config, spec, collect, leaves):
    before = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    learners = [config.build(spec, seed) for seed in (0, 0, 1)]
    for learner in learners:
        collect(learner)
        learner.update()
    first, second, third = (leaves(learner.state_dict()) for learner in learners)
    assert first == second and first != third
    assert np.array_equal(before[0], np.random.get_state()[1]) and torch.equal(before[1], torch.get_rng_state())  # noqa: NPY002


@pytest.mark.parametrize("part", ["rewards", "observations", "final observations"])
def test_what_is_not_finite_is_refused_and_changes_nothing(part, spec, collect, leaves):
    learner = SMALL.build(spec, 0)
    collect(learner)
    learner.update()
    learner.act()
    before = leaves(learner.state_dict())
    bad = OBSERVED | {"goal": np.full((4, 1), np.nan, FLOAT)}
    finals = {name: value[:1] for name, value in (bad if part == "final observations" else OBSERVED).items()}
    rewards = np.array([0.0, np.inf, 0.0, np.nan]) if part == "rewards" else np.zeros(4)
    truncated = np.array([True, False, False, False])
    step = VectorStep(bad if part == "observations" else OBSERVED, rewards, np.zeros(4, bool), truncated, finals)
    rows = {"rewards": "2 of 4", "observations": "4 of 4", "final observations": "1 of 1"}[part]
    with pytest.raises(
        NonFiniteUpdate, match=rf"Update 1 was refused: rollout {part} are not finite; all parameters are kept(.|\n)*{rows}"
    ):
        learner.observe(step)
    assert leaves(learner.state_dict()) == before


@pytest.mark.parametrize("engine", ["reference", "accelerated"])
def test_gradient_that_is_not_finite_changes_nothing(engine, spec, collect, leaves):
    learner = updated(SMALL, network={"engine": engine}).build(spec, 0)
    collect(learner)
    learner.update()
    collect(learner)
    learner.buffer.rewards[-1] = np.float32(3e38)  # finite, but their squares are not
    before = leaves(learner.state_dict())
    with pytest.raises(NonFiniteUpdate, match=r"Update 1 was refused: the gradient is not finite(.|\n)*gradient norm"):
        learner.update()
    assert leaves(learner.state_dict()) == before


@pytest.mark.parametrize(("rows", "sizes"), [(128, [32] * 4), (40, [40]), (20, [20]), (71, [35, 35]), (2, [2])])
def test_minibatches_of_a_short_rollout_are_of_like_size(rows, sizes):
    order = np.random.default_rng(0).permutation(rows)
    parts = minibatches([torch.arange(rows), torch.arange(rows, dtype=torch.float32)], order, 32)
    assert [len(index) for index, _ in parts] == sizes
    assert len({row for index, _ in parts for row in index.tolist()}) == sum(sizes), "no row twice"
    for _, advantages in parts:
        np.testing.assert_allclose([advantages.mean(), advantages.std()], [0.0, 1.0], atol=1e-5)


# settings and metrics


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lr": 0.0}, "'lr' is out of range(.|\n)*above 0"),
        ({"batch_size": 60}, r"a divisor of num_envs \* steps_per_env = 2048"),
        ({"batch_size": 1}, "2 or more"),
        ({"discount": 1.5}, "0 to 1"),
        ({"network": {"hidden": (8, 0)}}, "1 or more units in each layer"),
        ({"network": {"convolutions": (8,), "hidden": ()}}, "1 or more channels in each layer, and hidden layers after them"),
        ({"target_kl": 0.0}, "above 0, or none"),
        ({"lr_schedule": "steps"}, "constant, linear, cosine"),
        ({"network": {"distribution": "gamma"}}, "normal, beta"),
    ],
)
def test_settings_out_of_range_are_named(settings, words):
    with pytest.raises(InvalidSetting, match=words):
        updated(PPOConfig(), settings)


def test_metrics_have_the_tags_of_stable_baselines(spec, collect):
    learner = SMALL.build(spec, 0)
    collect(learner)
    metrics = learner.update()
    names = "approx_kl clip_fraction clip_range entropy_loss explained_variance learning_rate loss n_updates"
    names += " policy_gradient_loss std value_loss"
    assert metrics.keys() == {f"train/{name}" for name in names.split()}
    assert all(isinstance(value, float) and np.isfinite(value) for value in metrics.values())
    assert metrics["train/std"] == pytest.approx(learner.networks.distribution.log_std.exp().mean().item())


@pytest.mark.parametrize("shape", [(64, 17), (17, 64), (5, 5)])
def test_first_weights_are_orthogonal(shape):
    weights = orthogonal(*shape, 2.0, np.random.default_rng(0)).detach().numpy()
    product = weights @ weights.T if shape[0] <= shape[1] else weights.T @ weights
    np.testing.assert_allclose(product, 4.0 * np.eye(min(shape)), atol=1e-5)
