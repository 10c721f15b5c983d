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

from robo_policies import learning
from robo_policies.learning import TensorBatch
from robo_policies.sac import SACConfig
from robo_rl.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from robo_rl.errors import InvalidSetting, NonFiniteUpdate
from robo_rl.spec import ActionSpec, ArraySpec, EnvironmentSpec, ObservationSpec
from robo_rl.types import Batch

SMALL = SACConfig(hidden=(8, 8), initial_temperature=0.3)


def dense(x, weight, bias):
    return x @ weight + bias


def q_by_hand(ensemble, observations, actions):
    """Returns (N, B) with numpy alone."""
    weights = [weight.detach().numpy() for weight in ensemble.weights]
    biases = [bias.detach().numpy() for bias in ensemble.biases]
    rows = []
    for member in range(len(weights[0])):
        hidden = np.concatenate((observations, actions), axis=1)
        for layer in range(len(weights)):
            hidden = dense(hidden, weights[layer][member], biases[layer][member])
            hidden = np.maximum(hidden, 0) if layer < len(weights) - 1 else hidden
        rows.append(hidden[:, 0])
    return np.stack(rows)


def actor_by_hand(actor, observations, noise):
    """Returns actions and log densities with numpy alone."""
    layers = [layer for layer in actor.layers if isinstance(layer, torch.nn.Linear)]
    hidden = observations
    for index, layer in enumerate(layers):
        hidden = dense(hidden, layer.weight.detach().numpy().T, layer.bias.detach().numpy())
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


def test_losses_of_two_samples_by_hand(spec, make_batch):
    batch = make_batch(spec, 2, weights=np.array([1.0, 0.5], np.float32))
    learner = SMALL.build(spec, 0)
    for parameter in learner.target_critic.parameters():  # so that online and target critics differ
        parameter.mul_(1.3)
    observations, following = seen(batch)
    (noise,) = noises(learner, 1, (2, 2))
    alpha = 0.3
    data, alpha_tensor = TensorBatch.of(batch, learner.encoder, 0), torch.tensor(alpha)

    next_actions, next_log_densities = actor_by_hand(learner.actor, following, noise)
    soft_values = q_by_hand(learner.target_critic, following, next_actions).min(0) - alpha * next_log_densities
    targets = batch.rewards + batch.discounts * batch.masks * soft_values
    np.testing.assert_allclose(learner.critic_target(data, alpha_tensor), targets, rtol=1e-4)

    values = q_by_hand(learner.critic, observations, batch.actions)
    critic_loss = sum(0.5 * np.mean([1.0, 0.5] * (q - targets) ** 2) for q in values)
    result = learner.critic_loss(torch.tensor(values), torch.tensor(targets), data.weights)
    assert result.item() == pytest.approx(critic_loss, rel=1e-4)

    (noise,) = noises(learner, 1, (2, 2))
    actions, log_densities = actor_by_hand(learner.actor, observations, noise)
    drawn, drawn_log_densities = learner.actor.sample(data.observations, learner.parts.generator)
    np.testing.assert_allclose(drawn.detach(), actions, rtol=1e-4)
    np.testing.assert_allclose(drawn_log_densities.detach(), log_densities, rtol=1e-4)
    actor_loss = np.mean(alpha * log_densities - q_by_hand(learner.critic, observations, actions).min(0))
    result = learner.actor_loss(data.observations, drawn, drawn_log_densities, alpha_tensor)
    assert result.item() == pytest.approx(actor_loss, rel=1e-4)

    target_entropy = -2.0
    temperature_loss = -np.mean(np.log(alpha) * (log_densities + target_entropy))
    assert learner.temperature.loss(drawn_log_densities).item() == pytest.approx(temperature_loss, rel=1e-4)


def test_target_critics_follow_by_tau(spec, make_batch):
    learner = replace(SMALL, tau=0.25).build(spec, 0)
    before = [parameter.clone() for parameter in learner.target_critic.parameters()]
    learner.update(make_batch(spec, 4))
    for old, new, online in zip(before, learner.target_critic.parameters(), learner.critic.parameters(), strict=True):
        torch.testing.assert_close(new, 0.75 * old + 0.25 * online)


def test_temperature_falls_while_entropy_is_above_its_target_and_rises_below(spec, make_batch):
    for target, falls in ((-50.0, True), (50.0, False)):
        learner = replace(SMALL, target_entropy_per_action=target).build(spec, 0)
        learner.update(make_batch(spec, 4))
        assert (learner.temperature.value < 0.3).item() == falls


THREE_STATES = EnvironmentSpec(
    "three-states", ObservationSpec((ArraySpec("state", (3,)),)), ActionSpec(("a",), (-1.0,), (1.0,), ("1",))
)


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
            is_human=np.zeros(size, np.bool_),
        )

    return make


def true_values(ends: bool) -> np.ndarray:
    """Solves V = r + 0.8 P V; the rewards do not depend on actions."""
    to_next = np.roll(np.eye(3), 1, axis=1)
    to_next[2] *= not ends
    return np.linalg.solve(np.eye(3) - 0.8 * to_next, [0.5, -1.0, 2.0])


@pytest.mark.parametrize("ends", [True, False])
def test_three_states_reach_their_known_values(ends, three_states):
    config = SACConfig(hidden=(16,), lr=1e-2, tau=0.1, initial_temperature=1e-6, target_entropy_per_action=-50.0)
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
    monkeypatch.setattr(learning, "METRICS_EVERY", 1)
    batch, ours = make_batch(spec, 64), SACConfig(hidden=(16, 16)).build(spec, 0)
    with torch.random.fork_rng():
        theirs = SB3SAC("MlpPolicy", Still(), policy_kwargs={"net_arch": [16, 16]}, buffer_size=1, device="cpu")
        copy_weights(ours, theirs)
        theirs.replay_buffer = Shown(batch)
        theirs.set_logger(Logger(folder=None, output_formats=[]))
        torch.manual_seed(123)
        ours.parts.generator.manual_seed(123)
        for _ in range(30):
            metrics = ours.update(batch)
            theirs.train(gradient_steps=1, batch_size=64)
            logged = theirs.logger.name_to_value
            for tag in ("train/critic_loss", "train/actor_loss", "train/ent_coef_loss", "train/ent_coef"):
                assert metrics[tag] == pytest.approx(logged[tag], rel=1e-3, abs=1e-4), tag
    observations, _ = seen(batch)
    expected, _ = theirs.predict(observations, deterministic=True)
    np.testing.assert_allclose(ours.actor.mode(torch.as_tensor(observations)).detach(), expected, atol=1e-3)


def copy_weights(ours, theirs):
    """Stable-Baselines3 has one layer for the mean and one for the deviation where ours has both in one."""
    linear = [layer for layer in ours.actor.layers if isinstance(layer, torch.nn.Linear)]
    pairs = [*zip([layer for layer in theirs.actor.latent_pi if isinstance(layer, torch.nn.Linear)], linear[:-1], strict=True)]
    pairs += [(theirs.actor.mu, (linear[-1].weight[:2], linear[-1].bias[:2]))]
    pairs += [(theirs.actor.log_std, (linear[-1].weight[2:], linear[-1].bias[2:]))]
    for index, network in enumerate(theirs.critic.q_networks):
        layers = [layer for layer in network if isinstance(layer, torch.nn.Linear)]
        pairs += [
            (layer, (weight[index].T, bias[index, 0]))
            for layer, weight, bias in zip(layers, ours.critic.weights, ours.critic.biases, strict=True)
        ]
    for layer, source in pairs:
        weight, bias = source if isinstance(source, tuple) else (source.weight, source.bias)
        layer.load_state_dict({"weight": weight, "bias": bias})
    theirs.critic_target.load_state_dict(theirs.critic.state_dict())


def test_saved_and_loaded_gives_the_same_next_update(spec, make_batch, leaves, tmp_path):
    learner = replace(SMALL, normalization_rows=50).build(spec, 0)
    for seed in range(5):
        learner.update(make_batch(spec, 8, seed))
    save_checkpoint(tmp_path, Checkpoint(5, {"learner": learner.state_dict()}))
    copy = replace(SMALL, normalization_rows=50).build(spec, 99)
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


def test_a_seed_determines_everything_and_global_generators_are_left_alone(spec, make_batch, leaves):
    before = torch.get_rng_state()
    first, second, third = (SMALL.build(spec, seed) for seed in (0, 0, 1))
    for learner in (first, second, third):
        learner.update(make_batch(spec, 8))
    assert leaves(first.state_dict()) == leaves(second.state_dict())
    assert leaves(first.state_dict()) != leaves(third.state_dict())
    assert torch.equal(torch.get_rng_state(), before)


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
    before = leaves(learner.state_dict()["critic"])
    huge = make_batch(spec, 4, rewards=np.full(4, 1e30, np.float32))
    with pytest.raises(NonFiniteUpdate, match=r"the critic loss is not finite; the parameters before it(.*\n)*.*train/q_mean"):
        learner.update(huge)
    assert leaves(learner.state_dict()["critic"]) == before


def test_large_finite_numbers_are_accepted(spec, make_batch):
    """Their sum overflows, which the quick test of a batch must not take for infinity."""
    encoder = SMALL.build(spec, 0).encoder
    TensorBatch.of(make_batch(spec, 4, rewards=np.full(4, 3e38, np.float32)), encoder, 0)


def test_discrete_actions_are_refused_with_the_learners_that_fit(discrete_spec):
    with pytest.raises(
        InvalidSetting, match=r"SAC needs continuous actions(.*\n)*.*3 choices(.*\n)*.*sb3-dqn or sb3-ppo, or bc"
    ):
        SMALL.build(discrete_spec, 0)


def test_settings_reach_the_training_loop():
    sampling = SACConfig(batch_size=32, n_step=3, discount=0.9, learning_starts=7, replay_capacity=99).sampling
    assert (sampling.batch_size, sampling.updates_per_step, sampling.n_step, sampling.discount) == (32, 1, 3, 0.9)
    assert (sampling.learning_starts, sampling.replay_capacity, sampling.offline_fraction) == (7, 99, 0.0)
