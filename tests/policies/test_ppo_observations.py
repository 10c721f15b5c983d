"""What actor and critic of PPO see: privileged entries are the critic's alone, pictures go through convolutions."""

from __future__ import annotations

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

from factories import axes, make_spec, picture_spec
from robo_policies.learners import ppo
from robo_policies.learners.ppo import PPO, PPOConfig
from robo_policies.networks.convolutions import FEATURES, ConvEncoder
from robo_policies.networks.policy_value import PolicyValueNetwork
from robo_rl.errors import InvalidSetting
from robo_rl.rollout.episode import rollout
from robo_rl.runs.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from robo_rl.settings import updated
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec, ObservationSpec
from robo_rl.training.on_policy import VectorStep

FLOAT = np.float32
MOVE = axes("x")


class Silent:
    """An observer that keeps the last metrics."""

    def __init__(self):
        self.metrics = {}

    def on_metrics(self, step, metrics):
        self.metrics = metrics

    def on_episode(self, *_, **__): ...
    def on_step(self, *_): ...


class Plain(gymnasium.Env):
    """An environment of this file: what it observes and what a step is worth."""

    environment_spec: EnvironmentSpec

    @property
    def observation_space(self):
        return self.environment_spec.observation.space

    @property
    def action_space(self):
        return self.environment_spec.action.space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        self.begin()
        return self.observe(), {}

    def step(self, action):
        self.count += 1
        reward = self.act(float(action[0]))
        return self.observe(), reward, False, self.count == self.environment_spec.max_steps, {}


# an asymmetric critic


class Coin(Plain):
    """A coin that is hidden from the policy decides what every step of an episode is worth, whatever is done."""

    environment_spec = make_spec(
        "test/Coin", ArraySpec("dial", (1,)), ArraySpec("coin", (1,), role="privileged"), action=MOVE, max_steps=4
    )

    def begin(self):
        self.coin = float(self.np_random.choice([-1.0, 1.0]))

    def act(self, action):
        return self.coin

    def observe(self):
        return {"dial": np.array([self.count], FLOAT), "coin": np.array([self.coin], FLOAT)}


COIN = PPOConfig(
    num_envs=8,
    steps_per_env=32,
    batch_size=64,
    lr=3e-3,
    network=PolicyValueNetwork(hidden=(16,)),
    discount=0.5,
    privileged_critic=True,
)


def trained(environment: type[Plain], config: PPOConfig, steps: int, kind: type[PPO] = PPO) -> tuple[PPO, dict[str, float]]:
    training, silent = config.training(environment, steps=steps, seed=0), Silent()
    training.learner = kind(environment.environment_spec, config, 0)
    training.run(silent)
    return training.learner, silent.metrics


@pytest.mark.parametrize("privileged", [True, False])
def test_privileged_signal_needs_privileged_critic(privileged):
    _, metrics = trained(Coin, replace(COIN, privileged_critic=privileged), 3072)
    explained = metrics["train/explained_variance"]
    assert explained > 0.9 if privileged else explained < 0.3, explained


@pytest.mark.parametrize("engine", ["reference", "accelerated"])
def test_policy_never_reads_what_is_privileged(engine):
    learner, _ = trained(Coin, updated(COIN, network={"engine": engine}), 512)
    vectors = torch.tensor([[0.5, -1.0], [0.5, 0.0], [0.5, 9.0]])
    heads = learner.kernel.heads if learner.kernel else learner.networks.heads
    rows = [heads(learner.networks.encoded(row[None], {})) for row in vectors]  # together they may round apart
    outputs, values = (torch.cat([part.detach().clone() for part in each]) for each in zip(*rows, strict=True))
    assert torch.equal(outputs[0], outputs[1]) and torch.equal(outputs[0], outputs[2]) and values.max() - values.min() > 0.1
    actions = []
    for coin in ({}, {"coin": np.zeros(1, FLOAT)}, {"coin": np.ones(1, FLOAT)}, {"coin": np.full(1, np.nan, FLOAT)}):
        actions.append(learner.policy.act({"dial": np.full(1, 2.0, FLOAT)} | coin, deterministic=True))
    assert len({action.tobytes() for action in actions}) == 1


def test_actor_first_layer_is_orthogonal_in_visible_fields(spec):
    learner = PPOConfig(num_envs=2, steps_per_env=8, batch_size=16, privileged_critic=True).build(spec, 0)
    networks = learner.networks
    actor, critic = (trunk.weight0.detach() for trunk in (networks.actor_trunk, networks.critic_trunk))
    assert actor.shape == (3, 64) and critic.shape == (4, 64), "two joints, a goal, and a mass for the critic"
    for first in (actor, critic):
        np.testing.assert_allclose(first @ first.T, 2.0 * np.eye(len(first)), atol=1e-5)


def test_a_critic_that_is_to_see_more_than_there_is_is_refused():
    spec = make_spec("test/Bare", ArraySpec("x", (1,)), action=MOVE)
    with pytest.raises(
        InvalidSetting, match=r"privileged_critic is set, and 'test/Bare' has no privileged entry(.|\n)*got: +\['x'\]"
    ):
        PPOConfig(privileged_critic=True).build(spec, 0)
    with pytest.raises(InvalidSetting, match=r"convolutions is set, and 'test/Bare' has no image entry"):
        PPOConfig(network=PolicyValueNetwork(convolutions=(4,))).build(spec, 0)


# pictures

CAMERAS = ObservationSpec(
    (
        ArraySpec("joint", (2,)),
        picture_spec("birdseye", (9, 12, 6)),
        picture_spec("camera_front", (7, 5, 3)),
        ArraySpec("load", (1,), role="privileged"),
    )
)
DRIVE = EnvironmentSpec("test/Drive", CAMERAS, MOVE)
SEEING = PPOConfig(
    num_envs=4,
    steps_per_env=8,
    batch_size=16,
    epochs=1,
    network=PolicyValueNetwork(hidden=(8,), convolutions=(4, 6)),
    privileged_critic=True,
)


def seen(random: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    return {
        array.name: random.integers(0, 256, (count, *array.shape)).astype(np.uint8)
        if array.dtype == "uint8"
        else random.normal(3.0, 2.0, size=(count, *array.shape)).astype(FLOAT)
        for array in CAMERAS.arrays
    }


def fill(learner: PPO, seed: int = 0) -> list[dict[str, np.ndarray]]:
    """Fills a rollout and returns all observations."""
    random, count = np.random.default_rng(seed), learner.config.num_envs
    given = [seen(random, count)]
    learner.begin(given[0])
    no = np.zeros(count, bool)
    while not learner.is_ready:
        learner.act()
        given.append(seen(random, count))
        learner.observe(VectorStep(given[-1], random.normal(size=count), no, no, {}))
    return given


def test_pictures_are_kept_as_they_are():
    learner = SEEING.build(DRIVE, 0)
    given = fill(learner)
    for name in ("birdseye", "camera_front"):
        kept = learner.buffer.pictures[name]
        assert kept.dtype == np.uint8 and np.array_equal(kept, np.stack([step[name] for step in given]))
    assert np.array_equal(learner.buffer.newest()[1]["birdseye"], given[-1]["birdseye"])
    learner.update()
    assert np.array_equal(learner.buffer.newest()[1]["birdseye"], given[-1]["birdseye"]), "the next rollout begins there"


def test_what_is_privileged_is_scaled_by_running_moments():
    learner = SEEING.build(DRIVE, 0)
    given = fill(learner)
    loads = np.concatenate([step["load"] for step in given])
    scaled = learner.buffer.vectors[-1, :, -1]
    np.testing.assert_allclose(scaled, (given[-1]["load"][:, 0] - loads.mean()) / loads.std(), atol=0.1)


def tensors(observations: dict[str, np.ndarray]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Returns joint and load side by side, and the pictures."""
    pictures = {name: torch.from_numpy(observations[name]) for name in ("birdseye", "camera_front")}
    return torch.from_numpy(np.hstack((observations["joint"], observations["load"]))), pictures


def test_features_are_those_of_the_layers_one_by_one_scaled_once():
    learner, random = SEEING.build(DRIVE, 0), np.random.default_rng(0)
    observations = seen(random, 3)
    vectors, pictures = tensors(observations)
    inputs = learner.networks.encoded(vectors, pictures).detach()
    assert inputs.shape == (3, 2 * FEATURES + 2 + 1)
    parameters = iter(learner.networks.encoder.parameters())
    for number, name in enumerate(("birdseye", "camera_front")):
        x = pictures[name].permute(0, 3, 1, 2) / 255
        for _ in SEEING.network.convolutions:
            x = nn.functional.conv2d(x, next(parameters), next(parameters), stride=2, padding=1).relu()
        x = nn.functional.linear(x.flatten(1), next(parameters), next(parameters))
        expected = torch.tanh((x - x.mean(1, keepdim=True)) / (x.var(1, correction=0, keepdim=True) + 1e-5).sqrt())
        np.testing.assert_allclose(inputs[:, number * FEATURES : (number + 1) * FEATURES], expected.detach(), atol=1e-4)


@pytest.mark.parametrize("policy", ["normal", "beta"])
def test_gradient_reaches_the_convolutions_through_the_kernel(policy):
    config = updated(SEEING, network={"distribution": policy})
    learners = [updated(config, network={"engine": engine}).build(DRIVE, 0) for engine in ("reference", "accelerated")]
    random = np.random.default_rng(0)
    vectors, pictures = tensors(seen(random, 16))
    actions, old, returns, advantages = (
        torch.from_numpy(random.uniform(0.1, 0.9, shape).astype(FLOAT)) for shape in ((16, 1), 16, 16, 16)
    )
    gradients = [learner.gradient(vectors, pictures, (actions, old, returns, advantages))[0] for learner in learners]
    np.testing.assert_allclose(gradients[0], gradients[1], rtol=1e-3, atol=1e-5)
    sizes = [parameter.numel() for parameter in learners[0].networks.parameters()]
    names = [name for name, _ in learners[0].networks.named_parameters()]
    parts = dict(zip(names, gradients[1].split(sizes), strict=True))
    assert all(part.abs().max() > 0 for name, part in parts.items() if "encoder" in name)


@pytest.mark.parametrize("engine", ["reference", "accelerated"])
def test_large_batch_in_parts_is_learnt_from_as_a_whole(engine, monkeypatch):
    taken, learners = [], []
    for most in (512, 12):  # 32 rows at once; 12, 12 and 8
        monkeypatch.setattr(ppo, "MOST_ROWS", most)
        learners.append(updated(SEEING, batch_size=32, network={"engine": engine}).build(DRIVE, 0))
        fill(learners[-1])
        taken.append(learners[-1].update())
    assert taken[0] == pytest.approx(taken[1], rel=1e-3, abs=1e-5)
    np.testing.assert_allclose(learners[0].parameters, learners[1].parameters, atol=2e-5)


class Dots(Plain):
    """A dot in a picture is to go to another dot; nothing but the picture tells where both are."""

    environment_spec = make_spec("test/Dots", picture_spec("picture", (4, 12, 2)), action=MOVE, max_steps=10)

    def begin(self):
        self.dots = self.np_random.uniform(0, 11, 2)

    def act(self, action):
        self.dots[0] = np.clip(self.dots[0] + 2.0 * np.clip(action, -1, 1), 0, 11)
        return -abs(self.dots[0] - self.dots[1]) / 11

    def observe(self):
        picture = np.zeros((4, 12, 2), np.uint8)
        for channel, place in enumerate(np.rint(self.dots).astype(int)):
            picture[1:3, place, channel] = 255
        return {"picture": picture}


class Shuffled(Dots):
    def observe(self):
        picture = super().observe()["picture"]
        return {"picture": self.np_random.permutation(picture.reshape(-1)).reshape(picture.shape)}


class Drunk:
    """Acts by chance."""

    def reset(self):
        self.random = np.random.default_rng(0)

    def act(self, observation, *, deterministic=False):
        return self.random.uniform(-1, 1, 1).astype(FLOAT)


@pytest.mark.parametrize(("environment", "learns"), [(Dots, True), (Shuffled, False)])
@pytest.mark.slow
def test_a_dot_goes_to_another_dot_from_pixels_alone(environment, learns):
    config = PPOConfig(
        num_envs=16,
        steps_per_env=32,
        batch_size=128,
        epochs=6,
        lr=2e-3,
        network=PolicyValueNetwork(hidden=(32,), convolutions=(8, 16)),
    )
    learner, _ = trained(environment, updated(config, network={"distribution": "beta"}, discount=0.9), 6144)
    ours, by_chance = (
        np.mean([rollout(environment(), policy, seed=seed, deterministic=True).undiscounted_return for seed in range(40)])
        for policy in (learner.policy, Drunk())
    )
    assert (ours > 0.5 * by_chance) == learns, (ours, by_chance)


class Apart(Dots):
    """One camera sees the dot, another one a mark, and the goal is an offset away from the mark."""

    environment_spec = make_spec(
        "test/Apart",
        ArraySpec("offset", (1,)),
        picture_spec("camera_dot", (4, 12, 1)),
        picture_spec("camera_mark", (3, 12, 3)),
        action=MOVE,
        max_steps=10,
    )
    hidden = ""

    def begin(self):
        dot, self.mark = self.np_random.uniform(0, 11), self.np_random.uniform(4, 7)
        self.offset = self.np_random.choice([-4.0, 4.0])
        self.dots = [dot, self.mark + self.offset]

    def observe(self):
        seen = {"offset": np.array([self.offset / 4], FLOAT)}
        for name, place in (("camera_dot", self.dots[0]), ("camera_mark", self.mark)):
            seen[name] = np.zeros(self.environment_spec.observation[name].shape, np.uint8)
            seen[name][:, round(place)] = 255
        return {name: np.zeros_like(value) if name == self.hidden else value for name, value in seen.items()}


@pytest.mark.slow
def test_two_cameras_and_a_vector_are_read_together():
    config = PPOConfig(
        num_envs=16,
        steps_per_env=32,
        batch_size=128,
        epochs=6,
        lr=2e-3,
        network=PolicyValueNetwork(hidden=(32,), convolutions=(8, 16)),
    )
    learner, _ = trained(Apart, updated(config, network={"distribution": "beta"}, discount=0.9), 8192)

    def score(environment, hidden=""):
        environment.hidden = hidden
        episodes = (rollout(environment, learner.policy, seed=seed, deterministic=True) for seed in range(30))
        return np.mean([episode.undiscounted_return for episode in episodes])

    whole, without = score(Apart()), {name: score(Apart(), name) for name in Apart.environment_spec.observation}
    assert whole > -1.1 and all(blind < 1.4 * whole for blind in without.values()), (whole, without)


def test_pictures_alone_are_not_enough_for_who_does_not_look():
    with pytest.raises(InvalidSetting, match=r"PPO reads nothing of 'test/Dots'(.|\n)*set network.convolutions"):
        PPOConfig().build(Dots.environment_spec, 0)


@pytest.mark.parametrize(("shape", "dtype"), [((4, 4), "uint8"), ((4, 4, 1), "float32")])
def test_what_is_no_picture_of_bytes_is_refused(shape, dtype):
    spec = make_spec("test/Depth", ArraySpec("depth", shape, dtype, role="image"), action=MOVE)
    with pytest.raises(
        InvalidSetting, match=r"'depth' is not a picture that convolutions can read(.|\n)*uint8 \(height, width, channels\)"
    ):
        PPOConfig(network=PolicyValueNetwork(convolutions=(4,))).build(spec, 0)


def test_each_picture_has_layers_of_its_own():
    encoder = ConvEncoder(DRIVE, (4, 6))
    birdseye = 4 * 6 * 9 + 4 + 6 * 4 * 9 + 6 + FEATURES * 6 * 3 * 3 + FEATURES  # 9 x 12, then 5 x 6, then 3 x 3
    front = 4 * 3 * 9 + 4 + 6 * 4 * 9 + 6 + FEATURES * 6 * 2 * 2 + FEATURES  # 7 x 5, then 4 x 3, then 2 x 2
    assert encoder.size == 2 * FEATURES + 2, "two joints follow"
    assert sum(parameter.numel() for parameter in encoder.parameters()) == birdseye + front


# saving

EVERYTHING = updated(
    COIN,
    steps_per_env=8,
    batch_size=32,
    network={"distribution": "beta", "convolutions": (4,)},
    lr_schedule="cosine",
    target_kl=1e-9,
)


class Filmed(Coin):
    """The coin with a picture of the dial."""

    environment_spec = make_spec(
        "test/Filmed", *Coin.environment_spec.observation.arrays, picture_spec("film", (4, 4, 1)), action=MOVE, max_steps=4
    )

    def observe(self):
        return super().observe() | {"film": np.full((4, 4, 1), 50 * self.count, np.uint8)}


def test_saved_policy_acts_equally_without_privileged_fields(tmp_path):
    training = EVERYTHING.training(Filmed, steps=192, seed=0)
    training.run(Silent())
    save_checkpoint(tmp_path, Checkpoint(training.step, training.state_dict()))
    restored = EVERYTHING.restored_policy(Filmed, seed=5, state=load_checkpoint(tmp_path).parts)
    observation = {"dial": np.ones(1, FLOAT), "film": np.full((4, 4, 1), 50, np.uint8)}
    for deterministic in (True, False, False):
        actions = [policy.act(observation, deterministic=deterministic) for policy in (training.policy, restored)]
        assert np.array_equal(*actions) and np.abs(actions[0]) <= 1
    darker = observation | {"film": np.zeros((4, 4, 1), np.uint8)}
    assert not np.array_equal(restored.act(darker, deterministic=True), restored.act(observation, deterministic=True))


# schedules


@pytest.mark.parametrize(
    ("schedule", "shares"),
    [("constant", [1, 1, 1, 1]), ("linear", [1, 0.75, 0.5, 0.25]), ("cosine", [1, 0.853553, 0.5, 0.146447])],
)
def test_the_learning_rate_falls_rollout_by_rollout(schedule, shares):
    config = PPOConfig(
        num_envs=2,
        steps_per_env=8,
        batch_size=16,
        epochs=2,
        network=PolicyValueNetwork(hidden=(4,)),
        lr=1e-3,
        lr_schedule=schedule,
    )
    training, rates = config.training(Coin, steps=60, seed=0), []  # the fourth rollout of 16 holds the last step
    observer = Silent()
    observer.on_metrics = lambda step, metrics: rates.append(metrics["train/learning_rate"])
    training.run(observer)
    assert rates == pytest.approx([1e-3 * share for share in shares], rel=1e-5)
    assert training.learner.learning_rate == pytest.approx(1e-3 if schedule == "constant" else 0.0)


@pytest.mark.parametrize(("target", "passes"), [(1e-9, 1), (1e9, 5), (None, 5)])
def test_no_further_pass_is_taken_once_the_policy_has_moved_far(target, passes):
    learner = replace(SEEING, epochs=5, target_kl=target).build(DRIVE, 0)
    fill(learner)
    learner.update()
    fill(learner, seed=1)
    before = learner.updates
    assert learner.update()["train/n_updates"] == before + passes == learner.updates
    assert before == passes and learner.buffer.rollouts == 2
