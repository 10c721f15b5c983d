"""SAC: each loss recomputed by hand, a known MDP, Stable-Baselines3's numbers, exact saving, refused updates."""

from __future__ import annotations

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from stable_baselines3 import SAC as SB3SAC
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.type_aliases import ReplayBufferSamples

from factories import make_spec
from robo_policies.learners.sac import SACConfig
from robo_policies.networks.settings import Network
from robo_rl import metrics
from robo_rl.errors import InvalidSetting, NonFiniteUpdate
from robo_rl.protocols.sampling import Replay
from robo_rl.runs.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from robo_rl.settings import updated
from robo_rl.spec.environment import ArraySpec
from robo_rl.types import Batch

SMALL = SACConfig(network=Network(hidden=(8, 8)), initial_temperature=0.3)


@pytest.fixture(params=["reference", "accelerated"])
def engine(request):
    return request.param


def dense(x, weight, bias):
    return x @ weight + bias


def arrays(network):
    """Returns weight and bias of each layer, (N, in, out) and (N, 1, out)."""
    state = {name: value.numpy() for name, value in network.state_dict().items()}
    count = sum(".linears." in name for name in state) // 2
    return [[state[f"layers.linears.{index}.{name}"] for name in ("weight", "bias")] for index in range(count)]


def q_by_hand(critics, observations, actions):
    """Returns (N, B) with numpy alone."""
    layers = arrays(critics)
    rows = []
    for member in range(critics.members):
        hidden = np.concatenate((observations, actions), axis=1)
        for index, (weight, bias) in enumerate(layers):
            hidden = dense(hidden, weight[member], bias[member])
            hidden = np.maximum(hidden, 0) if index < len(layers) - 1 else hidden
        rows.append(hidden[:, 0])
    return np.stack(rows)


def actor_by_hand(actor, observations, noise):
    """Returns actions and log densities with numpy alone."""
    hidden, layers = observations, arrays(actor)
    for index, (weight, bias) in enumerate(layers):
        hidden = dense(hidden, weight[0], bias[0])
        hidden = np.maximum(hidden, 0) if index < len(layers) - 1 else hidden
    mean, log_std = np.split(hidden, 2, axis=1)
    actions = np.tanh(mean + np.exp(log_std) * noise)
    densities = np.exp(-0.5 * noise**2) / (np.exp(log_std) * np.sqrt(2 * np.pi)) / (1 - actions**2)
    return actions, np.log(densities).sum(1)


def noises(learner, count, shape):
    """Returns what the learner's generator will draw next, leaving it as it is."""
    generator = torch.Generator()
    generator.set_state(learner.parts.generator.get_state())
    return [torch.randn(shape, generator=generator).numpy() for _ in range(count)]


def seen(batch: Batch):
    """Returns the observations that a policy sees, and the next ones."""
    return tuple(
        np.concatenate((part["joint_position"], part["goal"]), axis=1) for part in (batch.observations, batch.next_observations)
    )


def torch_network(network, member):
    """Returns one member as a torch module with the same parameters."""
    modules, state = [], network.state_dict()
    with torch.random.fork_rng():
        for index in range(len(arrays(network))):
            weight, bias = (state[f"layers.linears.{index}.{name}"][member] for name in ("weight", "bias"))
            modules.append(torch.nn.Linear(*weight.shape))
            modules[-1].load_state_dict({"weight": weight.T, "bias": bias[0]})
            if f"layers.norms.{index}.weight" in state:
                modules.append(torch.nn.LayerNorm(weight.shape[1]))
                norm = {name: state[f"layers.norms.{index}.{name}"][member, 0] for name in ("weight", "bias")}
                modules[-1].load_state_dict(norm)
            modules.append(torch.nn.ReLU())
    return torch.nn.Sequential(*modules[:-1])


@torch.no_grad()
def test_losses_of_two_samples_by_hand(engine, spec, make_batch):
    batch = make_batch(spec, 2, weights=np.array([1.0, 0.5], np.float32))
    learner = updated(SMALL, network={"engine": engine}).build(spec, 0)
    for parameter in learner.target_critic.parameters():
        parameter.mul_(1.3)  # so that online and target critics differ
    observations, following = seen(batch)
    (noise,) = noises(learner, 1, (2, 2))
    alpha = torch.tensor(0.3)
    data = learner.parts.batch(batch)

    next_actions, next_log_densities = actor_by_hand(learner.actor, following, noise)
    soft_values = q_by_hand(learner.target_critic, following, next_actions).min(0) - 0.3 * next_log_densities
    targets = batch.rewards + batch.discounts * batch.masks * soft_values
    np.testing.assert_allclose(learner.critic_target(data, alpha), targets, rtol=1e-4)

    values = q_by_hand(learner.critic, observations, batch.actions)
    critic_loss = sum(0.5 * np.mean([1.0, 0.5] * (q - targets) ** 2) for q in values)
    found = learner.critic_loss(torch.as_tensor(values), torch.as_tensor(targets), data.weights)
    assert found == pytest.approx(critic_loss, rel=1e-4)

    (noise,) = noises(learner, 1, (2, 2))
    actions, log_densities = actor_by_hand(learner.actor, observations, noise)
    drawn, drawn_log_densities = learner.actor.sample(data.observations, learner.parts.generator)
    np.testing.assert_allclose(drawn, actions, rtol=1e-4)
    np.testing.assert_allclose(drawn_log_densities, log_densities, rtol=1e-4)
    actor_loss = np.mean(0.3 * log_densities - q_by_hand(learner.critic, observations, actions).min(0))
    result = learner.actor_loss(data.observations, drawn, drawn_log_densities, alpha)
    assert result == pytest.approx(actor_loss, rel=1e-4)

    target_entropy = -2.0
    temperature_loss = -np.mean(np.log(0.3) * (log_densities + target_entropy))
    assert learner.temperature.loss(drawn_log_densities) == pytest.approx(temperature_loss, rel=1e-4)


class Plain:
    """The same learner with plain torch modules, autograd and torch.optim, the equations written once more."""

    def __init__(self, learner):
        self.config, self.target_entropy = learner.config, learner.temperature.target_entropy
        self.actor = torch_network(learner.actor, 0)
        self.critics, self.targets = (
            torch.nn.ModuleList(torch_network(part, member) for member in range(part.members))
            for part in (learner.critic, learner.target_critic)
        )
        self.log_alpha = torch.nn.Parameter(learner.temperature.log_alpha.detach().clone())
        groups = (self.actor.parameters(), self.critics.parameters(), [self.log_alpha])
        self.actor_adam, self.critic_adam, self.alpha_adam = (torch.optim.Adam(group, self.config.lr) for group in groups)

    def sample(self, observations, noise):
        mean, log_std = self.actor(observations).chunk(2, -1)
        normal = torch.distributions.Normal(mean, log_std.clamp(-20, 2).exp())
        unbounded = normal.mean + normal.stddev * noise
        actions = torch.tanh(unbounded)
        return actions, (normal.log_prob(unbounded) - torch.log1p(-(actions**2))).sum(-1)

    def q(self, networks, observations, actions):
        return torch.stack([network(torch.cat((observations, actions), -1))[:, 0] for network in networks])

    def update(self, batch, noise, next_noise):
        observations, following = (torch.as_tensor(part) for part in seen(batch))
        rewards, masks, discounts, taken, weights = (
            torch.as_tensor(part) for part in (batch.rewards, batch.masks, batch.discounts, batch.actions, batch.weights)
        )
        actions, log_densities = self.sample(observations, noise)
        alpha = self.log_alpha.exp().detach()
        step(self.alpha_adam, -(self.log_alpha * (log_densities.detach() + self.target_entropy)).mean())
        with torch.no_grad():
            next_actions, next_log_densities = self.sample(following, next_noise)
            soft_values = self.q(self.targets, following, next_actions).amin(0) - alpha * next_log_densities
            targets = rewards + discounts * masks * soft_values
        residuals = self.q(self.critics, observations, taken) - targets
        step(self.critic_adam, 0.5 * (weights * residuals**2).mean(1).sum())
        step(self.actor_adam, (alpha * log_densities - self.q(self.critics, observations, actions).amin(0)).mean())
        with torch.no_grad():
            for target, online in zip(self.targets.parameters(), self.critics.parameters(), strict=True):
                target.lerp_(online, self.config.tau)


def step(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


@pytest.mark.parametrize("layer_norm", [False, True])
def test_updates_equal_those_of_plain_torch_modules(layer_norm, engine, spec, make_batch):
    learner = SACConfig(network=Network(hidden=(32, 24), layer_norm=layer_norm, engine=engine), critics=3, tau=0.05).build(
        spec, 0
    )
    plain = Plain(learner)
    for seed in range(10):
        batch = make_batch(spec, 48, seed, weights=np.linspace(0.5, 1.5, 48, dtype=np.float32))
        noise, next_noise = (torch.as_tensor(part) for part in noises(learner, 2, (48, 2)))
        plain.update(batch, noise, next_noise)
        learner.update(batch)
    pairs = [(learner.actor, [plain.actor]), (learner.critic, plain.critics), (learner.target_critic, plain.targets)]
    for ours, networks in pairs:
        for member, theirs in enumerate(networks):
            for one, other in zip(torch_network(ours, member).parameters(), theirs.parameters(), strict=True):
                torch.testing.assert_close(one, other, rtol=1e-3, atol=2e-5)
    torch.testing.assert_close(learner.temperature.log_alpha.detach(), plain.log_alpha.detach(), rtol=1e-4, atol=1e-6)


def test_target_critics_follow_by_tau(spec, make_batch):
    learner = replace(SMALL, tau=0.25).build(spec, 0)
    before = learner.parts.state_dict()["networks"]["target_critic"]
    learner.update(make_batch(spec, 4))
    after = learner.parts.state_dict()["networks"]
    for name, value in before.items():
        torch.testing.assert_close(after["target_critic"][name], 0.75 * value + 0.25 * after["critic"][name])


def test_temperature_moves_entropy_to_its_target(spec, make_batch):
    for target, falls in ((-50.0, True), (50.0, False)):
        learner = replace(SMALL, target_entropy_per_action=target).build(spec, 0)
        learner.update(make_batch(spec, 4))
        assert (learner.temperature.alpha() < 0.3) == falls


THREE_STATES = make_spec("three-states", ArraySpec("state", (3,)))


@pytest.fixture
def three_states():
    """A chain of three states with rewards 0.5, -1 and 2, whose last state ends the task or leads back to the first."""

    def make(ends: bool, size: int = 96) -> Batch:
        state = np.arange(size) % 3
        one_hot = np.eye(3, dtype=np.float32)
        return Batch(
            observations={"state": one_hot[state]},
            actions=np.random.default_rng(0).uniform(-1, 1, (size, 1)).astype(np.float32),
            rewards=np.array([0.5, -1.0, 2.0], np.float32)[state],
            masks=np.where(ends & (state == 2), 0.0, 1.0).astype(np.float32),
            discounts=np.full(size, 0.8, np.float32),
            next_observations={"state": one_hot[(state + 1) % 3]},
            weights=np.ones(size, np.float32),
            sources=np.zeros(size, np.int8),
        )

    return make


def true_values(ends: bool) -> np.ndarray:
    """Solves V = r + 0.8 P V; the rewards do not depend on actions."""
    to_next = np.roll(np.eye(3), 1, axis=1)
    to_next[2] *= not ends
    return np.linalg.solve(np.eye(3) - 0.8 * to_next, [0.5, -1.0, 2.0])


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("ends", [True, False])
def test_three_states_reach_their_known_values(ends, precision, three_states):
    config = SACConfig(
        network=Network(hidden=(16,), precision=precision),
        lr=1e-2,
        tau=0.1,
        initial_temperature=1e-6,
        target_entropy_per_action=-50.0,
    )
    learner, batch = config.build(THREE_STATES, 0), three_states(ends)
    for _ in range(400):
        learner.update(batch)
    with torch.no_grad():
        values = learner.critic(torch.eye(3), torch.tensor([[-0.5], [0.0], [0.5]]))
    np.testing.assert_allclose(values, [true_values(ends)] * 2, atol=0.05)


class Still(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))


class Shown:
    """A replay that always shows the same batch to Stable-Baselines3."""

    def __init__(self, batch: Batch) -> None:
        observations, following = (torch.as_tensor(part, dtype=torch.float32) for part in seen(batch))
        columns = [torch.as_tensor(v)[:, None] for v in (1 - batch.masks, batch.rewards, batch.discounts)]
        self._samples = ReplayBufferSamples(observations, torch.as_tensor(batch.actions), following, *columns)

    def sample(self, batch_size: int, env: object = None) -> ReplayBufferSamples:
        return self._samples


def test_training_equals_that_of_stable_baselines(spec, make_batch, monkeypatch):
    """Same weights, batch and noise give the same losses over many updates, and the same policy."""
    monkeypatch.setattr(metrics, "METRICS_EVERY", 1)
    batch, ours = make_batch(spec, 64), SACConfig(network=Network(hidden=(16, 16))).build(spec, 0)
    with torch.random.fork_rng():
        theirs = SB3SAC("MlpPolicy", Still(), policy_kwargs={"net_arch": [16, 16]}, buffer_size=1, device="cpu")
        copy_weights(ours, theirs)
        theirs.replay_buffer = Shown(batch)
        theirs.set_logger(Logger(folder=None, output_formats=[]))
        torch.manual_seed(123)
        ours.parts.generator.manual_seed(123)
        for _ in range(30):
            found = ours.update(batch)
            theirs.train(gradient_steps=1, batch_size=64)
            logged = theirs.logger.name_to_value
            for tag in ("train/critic_loss", "train/actor_loss", "train/ent_coef_loss", "train/ent_coef"):
                assert found[tag] == pytest.approx(logged[tag], rel=1e-3, abs=1e-4), tag
    observations, _ = seen(batch)
    expected, _ = theirs.predict(observations, deterministic=True)
    with torch.no_grad():
        np.testing.assert_allclose(ours.actor.mode(torch.as_tensor(observations)), expected, atol=1e-3)


def copy_weights(ours, theirs):
    """Stable-Baselines3 has one layer for the mean and one for the deviation where ours has both in one."""
    actor = torch_network(ours.actor, 0)
    linear = [layer for layer in actor if isinstance(layer, torch.nn.Linear)]
    pairs = [*zip([layer for layer in theirs.actor.latent_pi if isinstance(layer, torch.nn.Linear)], linear[:-1], strict=True)]
    pairs += [(theirs.actor.mu, (linear[-1].weight[:2], linear[-1].bias[:2]))]
    pairs += [(theirs.actor.log_std, (linear[-1].weight[2:], linear[-1].bias[2:]))]
    for index, network in enumerate(theirs.critic.q_networks):
        pairs += [
            (layer, source)
            for layer, source in zip(network, torch_network(ours.critic, index), strict=True)
            if isinstance(layer, torch.nn.Linear)
        ]
    for layer, source in pairs:
        weight, bias = source if isinstance(source, tuple) else (source.weight, source.bias)
        layer.load_state_dict({"weight": weight, "bias": bias})
    theirs.critic_target.load_state_dict(theirs.critic.state_dict())


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_saved_and_loaded_gives_the_same_next_update(precision, spec, make_batch, leaves, tmp_path):
    learner = updated(SMALL, network={"normalization_rows": 50, "precision": precision}).build(spec, 0)
    for seed in range(5):
        learner.update(make_batch(spec, 8, seed))
    save_checkpoint(tmp_path, Checkpoint(5, {"learner": learner.state_dict()}))
    copy = updated(SMALL, network={"normalization_rows": 50, "precision": precision}).build(spec, 99)
    copy.load_state_dict(load_checkpoint(tmp_path).parts["learner"])
    for seed in range(5, 9):
        learner.update(make_batch(spec, 8, seed))
        copy.update(make_batch(spec, 8, seed))
    assert leaves(copy.state_dict()) == leaves(learner.state_dict())
    observation = {name: value[0] for name, value in make_batch(spec, 1).observations.items()}
    np.testing.assert_array_equal(learner.policy.act(observation), copy.policy.act(observation))


def test_a_fresh_learner_can_be_saved_and_loaded(spec, leaves):
    learner, copy = SMALL.build(spec, 0), SMALL.build(spec, 1)
    copy.load_state_dict(learner.state_dict())
    assert leaves(copy.state_dict()) == leaves(learner.state_dict())


def test_the_saved_state_is_a_copy(spec, make_batch, leaves):
    learner = SMALL.build(spec, 0)
    learner.update(make_batch(spec, 4))
    state = learner.state_dict()
    before = leaves(state)
    learner.update(make_batch(spec, 4))
    assert leaves(state) == before


def test_seed_determines_result_and_globals_are_untouched(spec, make_batch, leaves):
    before = torch.get_rng_state()
    first, second, third = (SMALL.build(spec, seed) for seed in (0, 0, 1))
    for learner in (first, second, third):
        learner.update(make_batch(spec, 8))
    assert leaves(first.state_dict()) == leaves(second.state_dict())
    assert leaves(first.state_dict()) != leaves(third.state_dict())
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.slow
def test_metrics_are_means_and_come_every_hundred_updates(spec, make_batch):
    learner, batch = SMALL.build(spec, 0), make_batch(spec, 4)
    reports = [learner.update(batch) for _ in range(200)]
    assert [k for k, report in enumerate(reports) if report] == [99, 199]
    assert set(reports[99]) == {
        f"train/{name}" for name in ("critic_loss", "actor_loss", "ent_coef_loss", "ent_coef", "q_mean", "entropy")
    }
    assert all(isinstance(value, float) for value in reports[99].values())


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_reward_that_is_not_finite_refuses_the_update(value, spec, make_batch, leaves):
    learner = SMALL.build(spec, 0)
    learner.update(make_batch(spec, 4))
    before = leaves(learner.state_dict())
    bad = make_batch(spec, 4, rewards=np.array([0.0, value, 1.0, 0.0], np.float32))
    with pytest.raises(NonFiniteUpdate, match=r"Update 1 was refused: batch rewards are not finite(.*\n)*.*1 of 4 rows"):
        learner.update(bad)
    assert leaves(learner.state_dict()) == before


def test_a_loss_that_overflows_keeps_the_parameters(spec, make_batch, leaves):
    learner = SMALL.build(spec, 0)
    before = leaves(learner.state_dict()["networks"]["critic"])
    huge = make_batch(spec, 4, rewards=np.full(4, 1e30, np.float32))
    with pytest.raises(NonFiniteUpdate, match=r"the critic loss is not finite; the parameters before it(.*\n)*.*train/q_mean"):
        learner.update(huge)
    assert leaves(learner.state_dict()["networks"]["critic"]) == before


def test_large_finite_numbers_are_accepted(spec, make_batch):
    """Their sum overflows, which the quick test of a batch must not take for infinity."""
    SMALL.build(spec, 0).parts.batch(make_batch(spec, 4, rewards=np.full(4, 3e38, np.float32)))


def test_discrete_actions_are_refused_with_the_learners_that_fit(discrete_spec):
    with pytest.raises(InvalidSetting, match=r"SAC needs continuous actions(.*\n)*.*3 choices(.*\n)*.*dqn or ppo, or bc"):
        SMALL.build(discrete_spec, 0)


def test_settings_reach_the_training_loop():
    sampling = SACConfig(batch_size=32, replay=Replay(n_step=3, learning_starts=7, capacity=99), discount=0.9).sampling
    assert (sampling.batch_size, sampling.updates_per_step, sampling.n_step, sampling.discount) == (32, 1, 3, 0.9)
    assert (sampling.learning_starts, sampling.capacity, sampling.offline_fraction) == (7, 99, 0.0)
