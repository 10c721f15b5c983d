"""What actor and critic of PPO see: privileged entries are the critic's alone, pictures go through convolutions."""

from __future__ import annotations

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

from robo_policies import ppo_picture_speed
from robo_policies.learners.ppo import PPOConfig
from robo_policies.learners.ppo_learner import PPO
from robo_policies.networks.sight import FEATURES, Convolutions
from robo_rl.benchmark import Effort
from robo_rl.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from robo_rl.errors import InvalidSetting
from robo_rl.on_policy import VectorStep
from robo_rl.rollout import rollout
from robo_rl.spec import ActionSpec, ArraySpec, EnvironmentSpec, ObservationSpec

FLOAT = np.float32
MOVE = ActionSpec(("x",), (-1.0,), (1.0,), ("1",))


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

    environment_spec = EnvironmentSpec(
        "test/Coin", ObservationSpec((ArraySpec("dial", (1,)), ArraySpec("coin", (1,), role="privileged"))), MOVE, max_steps=4
    )

    def begin(self):
        self.coin = float(self.np_random.choice([-1.0, 1.0]))

    def act(self, action):
        return self.coin

    def observe(self):
        return {"dial": np.array([self.count], FLOAT), "coin": np.array([self.coin], FLOAT)}


COIN = PPOConfig(num_envs=8, steps_per_env=32, batch_size=64, lr=3e-3, hidden=(16,), discount=0.5, privileged_critic=True)


def trained(environment: type[Plain], config: PPOConfig, steps: int, kind: type[PPO] = PPO) -> tuple[PPO, dict[str, float]]:
    training, silent = config.training(environment, steps=steps, seed=0), Silent()
    training.learner = kind(environment.environment_spec, config, 0)
    training.run(silent)
    return training.learner, silent.metrics


@pytest.mark.parametrize("privileged", [True, False])
def test_what_only_privileged_data_tell_is_explained_with_them_and_not_without(privileged):
    _, metrics = trained(Coin, replace(COIN, privileged_critic=privileged), 3072)
    explained = metrics["train/explained_variance"]
    assert explained > 0.9 if privileged else explained < 0.3, explained


def test_the_policy_never_reads_what_is_privileged():
    learner, _ = trained(Coin, COIN, 512)
    observations = {"dial": np.full((3, 1), 2.0, FLOAT), "coin": np.array([[-1.0], [0.0], [9.0]], FLOAT)}
    inputs = learner.senses.inputs(observations)
    rows = ([part.copy() for part in learner.networks.forward(row[None])] for row in inputs)  # together they may round apart
    outputs, values = (np.concatenate(each) for each in zip(*rows, strict=True))
    assert np.ptp(outputs, axis=0).max() == 0.0 and np.ptp(values) > 0.1
    assert learner.senses.visible_inputs({"dial": observations["dial"][0]}).shape == (1, 2), "the dial and a one"
    actions = []
    for coin in ({}, {"coin": np.zeros(1, FLOAT)}, {"coin": np.ones(1, FLOAT)}, {"coin": np.full(1, np.nan, FLOAT)}):
        actions.append(learner.policy.act({"dial": observations["dial"][0]} | coin, deterministic=True))
    assert len({action.tobytes() for action in actions}) == 1


def test_first_weights_of_the_actor_are_orthogonal_in_what_it_sees(spec):
    learner = PPOConfig(num_envs=2, steps_per_env=8, batch_size=16, privileged_critic=True).build(spec, 0)
    first = learner.networks._weights[0][0]  # two joints, a goal, a mass, biases
    np.testing.assert_allclose(first[:3] @ first[:3].T, 2.0 * np.eye(3), atol=1e-5)
    assert not first[3:].any()


def test_a_critic_that_is_to_see_more_than_there_is_is_refused():
    spec = EnvironmentSpec("test/Bare", ObservationSpec((ArraySpec("x", (1,)),)), MOVE)
    with pytest.raises(
        InvalidSetting, match=r"privileged_critic is set, and 'test/Bare' has no privileged entry(.|\n)*got: +\['x'\]"
    ):
        PPOConfig(privileged_critic=True).build(spec, 0)
    with pytest.raises(InvalidSetting, match=r"convolutions is set, and 'test/Bare' has no image entry"):
        PPOConfig(convolutions=(4,)).build(spec, 0)


# pictures

CAMERAS = ObservationSpec(
    (
        ArraySpec("joint", (2,)),
        ArraySpec("birdseye", (9, 12, 6), "uint8", 0, 255, role="image"),
        ArraySpec("camera_front", (7, 5, 3), "uint8", 0, 255, role="image"),
        ArraySpec("load", (1,), role="privileged"),
    )
)
DRIVE = EnvironmentSpec("test/Drive", CAMERAS, MOVE)
SEEING = PPOConfig(
    num_envs=4, steps_per_env=8, batch_size=16, epochs=1, hidden=(8,), convolutions=(4, 6), privileged_critic=True
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


def test_pictures_are_kept_as_they_are_beside_their_rows():
    learner = SEEING.build(DRIVE, 0)
    given = fill(learner)
    rows = learner.trajectories.acted_on
    for name in ("birdseye", "camera_front"):
        kept = rows.pictures[name][rows.places]
        expected = np.stack([step[name] for step in given[:-1]], axis=1).reshape(32, *CAMERAS[name].shape)
        assert kept.dtype == np.uint8 and np.array_equal(kept, expected)  # environment after environment
    newest = learner.trajectories.newest
    assert np.array_equal(newest.pictures["birdseye"][newest.places], given[-1]["birdseye"])
    learner.update()
    newest = learner.trajectories.newest
    assert np.array_equal(newest.pictures["birdseye"][newest.places], given[-1]["birdseye"]), "the next rollout begins there"


def test_what_is_privileged_is_scaled_by_moments_of_its_own():
    learner = SEEING.build(DRIVE, 0)
    given = fill(learner)
    loads = np.concatenate([step["load"] for step in given])
    scaled = learner.trajectories.inputs[-1, :, -2]
    np.testing.assert_allclose(scaled, (given[-1]["load"][:, 0] - loads.mean()) / loads.std(), atol=0.1)
    assert learner.senses.normalizer.moments.mean.shape == (2,), "those of the policy are of the joint alone"


def test_features_are_those_of_the_same_layers_in_torch_scaled_once():
    learner, random = SEEING.build(DRIVE, 0), np.random.default_rng(0)
    learner.networks.parameters += 0.1 * random.standard_normal(len(learner.networks.parameters), FLOAT)
    observations = seen(random, 3)
    inputs = learner.senses.inputs(observations)
    assert inputs.shape == (3, 2 * FEATURES + 2 + 1 + 1)
    arrays = iter(learner.sight._arrays)
    for number, name in enumerate(("birdseye", "camera_front")):
        x = torch.from_numpy(observations[name]).permute(0, 3, 1, 2) / 255
        for channels in SEEING.convolutions:
            layer = nn.Conv2d(x.shape[1], channels, 3, stride=2, padding=1)
            layer.weight, layer.bias = nn.Parameter(next(arrays)), nn.Parameter(next(arrays))
            x = layer(x).relu()
        x = nn.functional.linear(x.flatten(1), next(arrays), next(arrays))
        expected = torch.tanh((x - x.mean(1, keepdim=True)) / (x.var(1, correction=0, keepdim=True) + 1e-5).sqrt())
        part = inputs[:, number * FEATURES : (number + 1) * FEATURES]
        np.testing.assert_allclose(part, expected.detach(), atol=1e-4)


def test_the_gradient_reaches_the_convolutions_as_in_autograd():
    """Of the sum of some outputs and values, through both networks, into every layer that sees."""
    learner, random = SEEING.build(DRIVE, 0), np.random.default_rng(0)
    networks, sight, rows = learner.networks, learner.sight, learner.trajectories
    fill(learner)
    networks.parameters += 0.1 * random.standard_normal(len(networks.parameters), FLOAT)
    networks._first[learner.networks._seen : -1] = 0.0
    by_outputs, by_values = random.normal(size=(32, 1)).astype(FLOAT), random.normal(size=32).astype(FLOAT)
    networks.forward(sight.forward(rows.acted_on))
    networks.backward(by_outputs, by_values)
    sight.backward(networks.input_gradient(sight.features))

    features = sight._features(rows.acted_on)
    inputs = torch.cat((features, torch.from_numpy(rows.acted_on.vectors)), 1)
    weights, actor, critic, _ = networks._parts(torch.from_numpy(networks.parameters))
    hidden = torch.tanh(inputs @ weights)
    ones = torch.ones(2, 32, 1)
    top = torch.cat((hidden, ones), -1)
    total = (top[0] @ actor * torch.from_numpy(by_outputs)).sum() + (top[1] @ critic)[:, 0] @ torch.from_numpy(by_values)
    for ours, expected in zip(sight._gradients, torch.autograd.grad(total, sight._arrays), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-3, atol=1e-4)
        assert expected.abs().max() > 0


def test_a_large_batch_is_learnt_from_in_parts_as_if_it_were_whole(monkeypatch):
    whole, parts = (replace(SEEING, batch_size=32).build(DRIVE, 0) for _ in range(2))
    monkeypatch.setattr(parts.sight, "most_rows", 12)  # 12, 12 and 8 rows
    taken = []
    for learner in (whole, parts):
        fill(learner)
        taken.append(learner.update())
    assert taken[0] == pytest.approx(taken[1], rel=1e-3, abs=1e-5)
    np.testing.assert_allclose(parts.networks.gradient, whole.networks.gradient, rtol=1e-2, atol=1e-5)
    np.testing.assert_allclose(parts.networks.parameters, whole.networks.parameters, atol=2e-5)


class Dots(Plain):
    """A dot in a picture is to go to another dot; nothing but the picture tells where both are."""

    environment_spec = EnvironmentSpec(
        "test/Dots", ObservationSpec((ArraySpec("picture", (4, 12, 2), "uint8", 0, 255, role="image"),)), MOVE, max_steps=10
    )

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
def test_a_dot_goes_to_another_dot_from_pixels_alone(environment, learns):
    config = PPOConfig(num_envs=16, steps_per_env=32, batch_size=128, epochs=6, lr=2e-3, hidden=(32,), convolutions=(8, 16))
    learner, _ = trained(environment, replace(config, policy="beta", discount=0.9), 6144)
    ours, by_chance = (
        np.mean([rollout(environment(), policy, seed=seed, deterministic=True).undiscounted_return for seed in range(40)])
        for policy in (learner.policy, Drunk())
    )
    assert (ours > 0.5 * by_chance) == learns, (ours, by_chance)


def test_pictures_alone_are_not_enough_for_who_does_not_look():
    with pytest.raises(InvalidSetting, match=r"PPO sees nothing of 'test/Dots'(.|\n)*set convolutions"):
        PPOConfig().build(Dots.environment_spec, 0)


@pytest.mark.parametrize(("shape", "dtype"), [((4, 4), "uint8"), ((4, 4, 1), "float32")])
def test_what_is_no_picture_of_bytes_is_refused(shape, dtype):
    spec = EnvironmentSpec("test/Depth", ObservationSpec((ArraySpec("depth", shape, dtype, role="image"),)), MOVE)
    with pytest.raises(
        InvalidSetting, match=r"'depth' is not a picture that convolutions can see(.|\n)*uint8 \(height, width, channels\)"
    ):
        PPOConfig(convolutions=(4,)).build(spec, 0)


def test_each_picture_has_layers_of_its_own():
    sight = Convolutions(CAMERAS.subset("image").arrays, (4, 6))
    birdseye = 4 * 6 * 9 + 4 + 6 * 4 * 9 + 6 + FEATURES * 6 * 3 * 3 + FEATURES  # 9 x 12, then 5 x 6, then 3 x 3
    front = 4 * 3 * 9 + 4 + 6 * 4 * 9 + 6 + FEATURES * 6 * 2 * 2 + FEATURES  # 7 x 5, then 4 x 3, then 2 x 2
    assert (sight.features, sight.parameters) == (2 * FEATURES, birdseye + front)


# saving

EVERYTHING = replace(
    COIN, steps_per_env=8, batch_size=32, policy="beta", convolutions=(4,), lr_schedule="cosine", target_kl=1e-9
)


class Filmed(Coin):
    """The coin with a picture of the dial."""

    environment_spec = EnvironmentSpec(
        "test/Filmed",
        ObservationSpec(
            (*Coin.environment_spec.observation.arrays, ArraySpec("film", (4, 4, 1), "uint8", 0, 255, role="image"))
        ),
        MOVE,
        max_steps=4,
    )

    def observe(self):
        return super().observe() | {"film": np.full((4, 4, 1), 50 * self.count, np.uint8)}


def test_a_saved_policy_acts_as_before_without_what_is_privileged(tmp_path):
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


def test_a_state_of_before_rates_could_fall_knows_its_rollouts():
    learner = SEEING.build(DRIVE, 0)
    fill(learner)
    learner.update()
    state = learner.state_dict()
    del state["rollouts"]
    copy = SEEING.build(DRIVE, 1)
    copy.load_state_dict(state)
    assert copy.rollouts == 1


# large batches


def test_a_batch_of_sixteen_thousand_rows(spec, monkeypatch):
    """One step on all of it at once follows the same gradient as in parts."""
    config = PPOConfig(num_envs=64, steps_per_env=256, batch_size=16384, epochs=1, hidden=(8,), policy="beta")
    learners = [config.build(DRIVE, 0) for _ in range(2)]
    monkeypatch.setattr(learners[1].sight, "most_rows", 3000)
    for learner in learners:
        data, random = learner.trajectories, np.random.default_rng(0)
        data.inputs[..., :-1] = random.normal(size=data.inputs[..., :-1].shape)
        data.actions[:], data.rewards[:] = random.uniform(0.1, 0.9, data.actions.shape), random.normal(size=data.rewards.shape)
        data.length = 256
        assert learner.update()["train/n_updates"] == 1
    np.testing.assert_allclose(learners[0].networks.gradient, learners[1].networks.gradient, rtol=1e-2, atol=1e-6)


@pytest.mark.parametrize(
    ("schedule", "shares"),
    [("constant", [1, 1, 1, 1]), ("linear", [1, 0.75, 0.5, 0.25]), ("cosine", [1, 0.853553, 0.5, 0.146447])],
)
def test_the_learning_rate_falls_rollout_by_rollout(schedule, shares):
    config = PPOConfig(num_envs=2, steps_per_env=8, batch_size=16, epochs=2, hidden=(4,), lr=1e-3, lr_schedule=schedule)
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
    assert before == passes and learner.rollouts == 2


def test_the_cost_of_a_picture_is_measured():
    """That it works, for a moment; the figures mean nothing."""
    config = replace(ppo_picture_speed.CONFIG, num_envs=1, steps_per_env=4, batch_size=4, epochs=1)
    row = ppo_picture_speed.measure(Effort(seconds=0.001, repeats=1, threads=1), config)
    assert row.unit == "us" and row.ours > row.limit > 0, "a picture costs more than none"
