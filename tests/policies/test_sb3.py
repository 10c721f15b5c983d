"""Stable-Baselines3 behind our protocols: equal to plain SB3, started from demonstrations, saved and resumed."""

from __future__ import annotations

from copy import deepcopy

import gymnasium
import numpy as np
import pytest
import stable_baselines3 as sb3
import torch
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from factories import axes, choices, make_spec, picture_spec, rest_slow
from robo_policies.sb3.algorithms import A2CConfig, DQNConfig, PPOConfig, SACConfig, SB3Normalization, TD3Config
from robo_policies.sb3.policy_input import STATE, PolicyInput
from robo_rl.entry_points import load
from robo_rl.environments.make import make_environment, make_vector_environment
from robo_rl.environments.vector import SequentialEnvironments
from robo_rl.errors import InvalidSetting, SpecMismatch, UnknownName
from robo_rl.protocols.components import Policy, Training
from robo_rl.rollout.episode import rollout
from robo_rl.runs.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from robo_rl.settings import updated
from robo_rl.spec.environment import ArraySpec
from robo_rl.training.compatibility import needs_of
from robo_sims.batched.environment import BatchedEnvironment

pytestmark = pytest.mark.usefixtures("one_thread")
SMALL = {"policy_kwargs": {"net_arch": [16, 16]}}
REPLAY = {"buffer_size": 5000, "learning_starts": 50, "batch_size": 16}


class CartPole(gymnasium.Wrapper):
    """Gymnasium's CartPole with a spec."""

    environment_spec = make_spec(
        "test/CartPole", ArraySpec("cart", (2,)), ArraySpec("pole", (2,)), action=choices("left", "right"), max_steps=500
    )

    def __init__(self):
        super().__init__(gymnasium.make("CartPole-v1"))
        self.observation_space = self.environment_spec.observation.space

    def reset(self, *, seed=None, options=None):
        observation, info = self.env.reset(seed=seed, options=options)
        return {"cart": observation[:2], "pole": observation[2:]}, info

    def step(self, action):
        observation, *rest = self.env.step(action)
        return {"cart": observation[:2], "pole": observation[2:]}, *rest


class Reach(gymnasium.Env):
    """A point in the plane walks to a goal; with a camera the goal is a white square in the image."""

    def __init__(self, camera: int = 0, discrete: bool = False):
        arrays = [ArraySpec("position", (2,), unit="m"), ArraySpec("goal", (2,), unit="m", role="goal")]
        arrays += [ArraySpec("friction", (1,), role="privileged")]
        arrays += [picture_spec("camera_top", (camera, camera, 3))] if camera else []
        moves = choices("left", "right", "down", "up")
        velocity = axes("x", "y", limit=0.1, unit="m")
        self.environment_spec = make_spec(
            f"test/Reach{camera}{discrete}", *tuple(arrays), action=moves if discrete else velocity, max_steps=30
        )
        self.observation_space = self.environment_spec.observation.space
        self.action_space = self.environment_spec.action.space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position, self.goal, self.time = self.np_random.uniform(-1, 1, 2), self.np_random.uniform(-1, 1, 2), 0
        return self._observation(), {}

    def step(self, action):
        spec = self.environment_spec.action
        move = 0.1 * np.array([[-1, 0], [1, 0], [0, -1], [0, 1]])[action] if spec.is_discrete else spec.to_physical(action)
        self.position, self.time = self.position + move, self.time + 1
        distance = float(np.linalg.norm(self.goal - self.position))
        success, late = distance < 0.15, self.time >= 30
        info = {"success": success} | ({"stop_reason": "goal" if success else "time_limit"} if success or late else {})
        return self._observation(), -distance, success, late and not success, info

    def _observation(self):
        values = {"position": self.position, "goal": self.goal, "friction": np.ones(1)}
        observation = {name: value.astype(np.float32) for name, value in values.items()}
        for array in self.environment_spec.observation.subset("image").arrays:
            observation[array.name] = np.full(array.shape, 7, np.uint8)
        return observation


class Expert:
    """Walks straight to the goal."""

    def reset(self):
        pass

    def act(self, observation, *, deterministic=False):
        return np.clip((observation["goal"] - observation["position"]) / 0.1, -1, 1).astype(np.float32)


class DiscreteExpert(Expert):
    def act(self, observation, *, deterministic=False):
        gap = observation["goal"] - observation["position"]
        axis = int(np.abs(gap).argmax())
        return np.array(2 * axis + int(gap[axis] > 0), np.int64)


class Recorder:
    """An observer that remembers, and acts at every step as an evaluation would."""

    def __init__(self, act_on=None):
        self.steps, self.episodes, self.metrics, self.act_on = [], [], {}, act_on

    def on_step(self, step, training):
        assert step <= training.step < step + training.model.n_envs
        self.steps.append(step)
        if self.act_on is not None:
            training.policy.act(self.act_on, deterministic=False)

    def on_episode(self, step, *, episode_return, length, success, stop_reason, **_):
        self.episodes.append((step, episode_return, length, success, stop_reason))

    def on_metrics(self, step, metrics):
        self.metrics |= metrics


def demonstrations(environment, expert, count=20):
    return [rollout(environment, expert, seed=seed) for seed in range(count)]


def success_rate(policy, environment, episodes=20):
    return np.mean([rollout(environment, policy, seed=1000 + seed, deterministic=True).success for seed in range(episodes)])


def parameters_of(model):
    return {name: value.clone() for name, value in model.policy.state_dict().items()}


def assert_equal(a, b):
    assert a.keys() == b.keys()
    different = [name for name in a if not torch.equal(a[name], b[name])]
    assert not different


def cheetah():
    return make_environment("gymnasium/HalfCheetah-v5")


EQUAL = {
    "ppo": (PPOConfig(n_steps=128, n_epochs=2, **SMALL), sb3.PPO, {"n_steps": 128, "n_epochs": 2}),
    "a2c": (A2CConfig(n_steps=16, **SMALL), sb3.A2C, {"n_steps": 16}),
    "sac": (SACConfig(train_freq=4, **REPLAY, **SMALL), sb3.SAC, REPLAY | {"train_freq": 4}),
    "td3": (
        updated(TD3Config(), REPLAY, SMALL, noise={"type": "normal"}),
        sb3.TD3,
        REPLAY | {"action_noise": NormalActionNoise(np.zeros(6), 0.1 * np.ones(6))},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", rest_slow(EQUAL))
def test_equals_plain_sb3_on_halfcheetah_bit_for_bit(name):
    config, algorithm, arguments = EQUAL[name]
    plain = algorithm("MlpPolicy", gymnasium.make("HalfCheetah-v5"), seed=3, device="cpu", **arguments, **deepcopy(SMALL))
    untrained = parameters_of(plain)
    # beyond the time limit of an episode, for all but the slowest; in whole rollouts, of which SB3 takes one too many elsewhere
    steps = {"td3": 400, "ppo": 1152}.get(name, 1120)
    plain.learn(steps)

    training = config.training(cheetah, steps=steps, seed=3)
    np.random.seed(0)  # noqa: NPY002 - what others draw between building and running must not count
    torch.manual_seed(0)
    training.run(Recorder(act_on=cheetah().reset(seed=0)[0]))

    assert_equal(parameters_of(training.model), parameters_of(plain))
    with pytest.raises(AssertionError):
        assert_equal(untrained, parameters_of(plain))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "taken"), [("ppo", 256), ("a2c", 288), ("sac", 300), ("td3", 300)])
def test_no_rollout_is_begun_that_would_exceed_the_budget(name, taken):
    config, recorder = EQUAL[name][0], Recorder(act_on=cheetah().reset(seed=0)[0])
    training = config.training(cheetah, steps=303 if name != "td3" else 300, seed=3)
    training.run(recorder)
    assert training.step == taken == training.model.num_timesteps


def test_fewer_steps_than_a_rollout_are_refused():
    with pytest.raises(InvalidSetting, match=r"shorter than one rollout of PPO(.|\n)*got: +2047 steps(.|\n)*2048 or more"):
        PPOConfig().training(Reach, steps=2047, seed=0)
    with pytest.raises(InvalidSetting, match=r"shorter than one rollout of SAC(.|\n)*8 or more"):
        SACConfig(train_freq=4, n_envs=2).training(Reach, steps=7, seed=0)


@pytest.mark.slow
def test_dqn_equals_plain_sb3_on_cartpole_bit_for_bit():
    settings = REPLAY | {"exploration_fraction": 0.5, "target_update_interval": 100}
    plain = sb3.DQN("MlpPolicy", gymnasium.make("CartPole-v1"), seed=3, device="cpu", **settings, **deepcopy(SMALL))
    plain.learn(2000)
    training = DQNConfig(**settings, **SMALL).training(CartPole, steps=2000, seed=3)
    training.run(Recorder(act_on=CartPole().reset(seed=0)[0]))
    assert_equal(parameters_of(training.model), parameters_of(plain))


@pytest.mark.slow
def test_normalized_ppo_in_several_environments_equals_plain_sb3():
    def plain_environment():
        made, space = gymnasium.make("HalfCheetah-v5"), gymnasium.spaces.Box(-np.inf, np.inf, (17,), np.float32)
        return gymnasium.wrappers.TransformObservation(made, np.float32, space)

    vectorized = VecNormalize(DummyVecEnv([plain_environment] * 2), gamma=0.98)
    plain = sb3.PPO("MlpPolicy", vectorized, n_steps=64, gamma=0.98, seed=3, device="cpu", **deepcopy(SMALL))
    plain.learn(512)
    config = updated(PPOConfig(), SMALL, n_steps=64, gamma=0.98, n_envs=2, normalize={"observations": True, "rewards": True})
    training = config.training(cheetah, steps=512, seed=3)
    recorder = Recorder()
    training.run(recorder)
    assert_equal(parameters_of(training.model), parameters_of(plain))
    assert recorder.steps == list(range(1, 513))
    observation = cheetah().reset(seed=0)[0]
    flat = np.concatenate([observation[name] for name in observation], dtype=np.float32)
    expected, _ = plain.predict(vectorized.normalize_obs(flat), deterministic=True)
    assert np.array_equal(training.policy.act(observation, deterministic=True), expected)


class BatchedCheetahs:
    """Simulates many at once."""

    def __call__(self):
        return cheetah()

    def make_vector(self, num_envs):
        return make_vector_environment("gymnasium/HalfCheetah-v5", num_envs, threads=1, autoreset_mode="SameStep")


@pytest.mark.slow
@pytest.mark.parametrize(
    "config", [PPOConfig(n_steps=16, n_envs=3, batch_size=48, **SMALL), SACConfig(n_envs=3, **REPLAY, **SMALL)]
)
def test_batched_simulation_gives_the_same_training(config):
    trainings = [config.training(factory, steps=480, seed=3) for factory in (cheetah, BatchedCheetahs())]
    for training in trainings:
        training.run(Recorder())
    one_by_one, batched = (training.model for training in trainings)
    assert type(batched.get_env()._rollout.environments) is BatchedEnvironment
    assert type(one_by_one.get_env()._rollout.environments) is SequentialEnvironments
    assert_equal(parameters_of(batched), parameters_of(one_by_one))
    assert batched.num_timesteps == 480


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "discrete"),
    [
        (PPOConfig(n_steps=64, **SMALL), True),
        (A2CConfig(n_steps=2, **SMALL), False),
        (SACConfig(**REPLAY, **SMALL), False),
        (TD3Config(**REPLAY, **SMALL), False),
        (DQNConfig(**REPLAY, **SMALL), True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_observer_sees_every_step_episodes_and_sb3s_own_tags(config, discrete):
    assert needs_of(config).trains_itself
    training = config.training(lambda: Reach(discrete=discrete), steps=320, seed=0)
    recorder = Recorder()
    training.run(recorder)
    assert isinstance(training, Training)
    assert isinstance(training.policy, Policy)
    assert recorder.steps == list(range(1, 321))
    assert sum(length for _, _, length, _, _ in recorder.episodes) <= 320
    assert {reason for *_, reason in recorder.episodes} <= {"goal", "time_limit"}
    assert all(success == (reason == "goal") for *_, success, reason in recorder.episodes)
    assert {"time/fps", "train/learning_rate"} <= set(recorder.metrics)
    assert "rollout/success_rate" not in recorder.metrics, "means of episodes are the record's own"
    assert set(training.stopwatch.state_dict()) == {"collect", "update", "log", "other"}
    action = training.policy.act(Reach(discrete=discrete).reset(seed=0)[0])
    assert training.policy.environment_spec.action.validate(action).dtype == (np.int64 if discrete else np.float32)


def test_input_joins_visible_vectors_in_order():
    environment = Reach()
    observation, _ = environment.reset(seed=0)
    view = PolicyInput(environment.environment_spec.observation)
    assert view.space.shape == (4,)
    assert np.array_equal(view(observation), np.concatenate([observation["position"], observation["goal"]]))
    small = PolicyInput(Reach(camera=7).environment_spec.observation)
    assert small.space.shape == (4 + 7 * 7 * 3,)


def test_cameras_make_dict_and_channels_first_demonstrations():
    environment = Reach(camera=36)
    episodes = demonstrations(environment, Expert(), 2)
    config = updated(SACConfig(), SMALL, buffer_size=200, batch_size=4, learning_starts=0, normalize={"observations": True})
    training = config.training(lambda: Reach(camera=36), steps=4, seed=0, demonstrations=episodes)
    replay = training.model.replay_buffer
    assert replay.observations["camera_top"].shape == (200, 1, 3, 36, 36)
    assert np.array_equal(replay.observations[STATE][0, 0, :2], episodes[0].observations["position"][0])
    assert replay.observations["camera_top"][0].max() == 7
    training.run(Recorder())
    assert training.policy.act(environment.reset(seed=0)[0]).shape == (2,)


def test_demonstrations_keep_executed_actions_and_true_ends():
    good = demonstrations(Reach(), Expert(), 3)
    late = rollout(Reach(), type("Still", (Expert,), {"act": lambda *_, **__: np.zeros(2, np.float32)})(), seed=8)
    assert late.truncated
    config = SACConfig(buffer_size=500, n_envs=2, **SMALL)
    training = config.training(Reach, steps=10, seed=0, demonstrations=[*good, late])
    replay = training.model.replay_buffer
    rows = sum(len(episode) for episode in good) + len(late)
    assert replay.pos == -(-rows // 2)
    first = len(good[0]) - 1
    assert replay.dones.reshape(-1)[first] == 1 and replay.timeouts.reshape(-1)[first] == 0
    assert replay.dones.reshape(-1)[rows - 1] == 1 and replay.timeouts.reshape(-1)[rows - 1] == 1
    assert replay.dones.reshape(-1)[:rows].sum() == 4
    assert np.array_equal(replay.actions.reshape(-1, 2)[: first + 1], good[0].actions)
    expected = PolicyInput(Reach().environment_spec.observation)(good[0].observations)
    assert np.array_equal(replay.next_observations.reshape(-1, 4)[: first + 1], expected[1:])


def test_off_policy_learning_from_demonstrations_starts_at_once():
    episodes = demonstrations(Reach(), Expert())
    training = SACConfig(buffer_size=2000, batch_size=64, learning_starts=0, **SMALL).training(
        Reach, steps=3, seed=0, demonstrations=episodes
    )
    training.run(Recorder())
    assert training.model._n_updates == 3


@pytest.mark.slow
@pytest.mark.parametrize(("discrete", "expert"), [(False, Expert()), (True, DiscreteExpert())], ids=["continuous", "discrete"])
def test_cloned_ppo_starts_far_better_than_uncloned(discrete, expert):
    environment = Reach(discrete=discrete)
    episodes = demonstrations(environment, expert, 30)
    uncloned = PPOConfig().training(lambda: Reach(discrete=discrete), steps=2048, seed=0)
    cloned = PPOConfig(clone_epochs=40, normalize=SB3Normalization(observations=True)).training(
        lambda: Reach(discrete=discrete), steps=2048, seed=0, demonstrations=episodes
    )
    assert success_rate(uncloned.policy, environment) <= 0.2
    assert success_rate(cloned.policy, environment) >= 0.8
    if not discrete:
        assert cloned.model.policy.log_std.min() >= np.log(0.1) - 1e-6


def test_initial_policy_is_cloned_where_the_demonstrations_went():
    episodes = demonstrations(Reach(), type("Still", (Expert,), {"act": lambda *_, **__: np.zeros(2, np.float32)})(), 10)
    training = A2CConfig(clone_epochs=20).training(Reach, steps=10, seed=0, demonstrations=episodes, initial_policy=Expert())
    observation = {name: value[0] for name, value in episodes[0].observations.items()}
    assert np.allclose(training.policy.act(observation, deterministic=True), Expert().act(observation), atol=0.5)
    assert np.abs(training.policy.act(observation, deterministic=True)).max() > 0.3


CONFIGS = [
    updated(PPOConfig(), SMALL, n_steps=32, batch_size=32, n_envs=2, normalize={"observations": True, "rewards": True}),
    updated(SACConfig(), REPLAY, SMALL, normalize={"observations": True}),
    updated(TD3Config(), REPLAY, SMALL, noise={"type": "ornstein-uhlenbeck"}),
]


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS, ids=lambda value: type(value).__name__)
def test_checkpoint_restores_all_but_running_episode(config, tmp_path):
    saved = config.training(Reach, steps=128, seed=0)
    saved.run(Recorder())
    save_checkpoint(tmp_path, Checkpoint(saved.step, saved.state_dict()))

    resumed = config.training(Reach, steps=192, seed=5)
    resumed.load_state_dict(load_checkpoint(tmp_path).parts)
    assert (resumed.step, resumed.resumed) == (128, "warm")
    assert_same(resumed.state_dict(), saved.state_dict())
    recorder = Recorder()
    resumed.run(recorder)
    assert recorder.steps[-1] == 192 and recorder.steps[0] > 128
    again = config.training(Reach, steps=192, seed=5)
    again.load_state_dict(load_checkpoint(tmp_path).parts)
    again.run(Recorder())
    assert_equal(parameters_of(again.model), parameters_of(resumed.model))


def assert_same(a, b, where=""):
    if isinstance(a, dict):
        assert a.keys() == b.keys(), where
        for key in a.keys() - {"seconds"}:  # the clock of the one that was saved runs on
            assert_same(a[key], b[key], f"{where}/{key}")
    elif isinstance(a, list | tuple):
        for index, pair in enumerate(zip(a, b, strict=True)):
            assert_same(*pair, f"{where}/{index}")
    else:
        assert np.array_equal(np.asarray(a), np.asarray(b)), where


@pytest.mark.slow
def test_dqn_goes_on_with_its_exploration_rate():
    config = DQNConfig(**REPLAY, exploration_fraction=0.9, **SMALL)
    saved = config.training(CartPole, steps=400, seed=0)
    states = []

    class Saver(Recorder):
        def on_step(self, step, training):
            states.extend([training.state_dict()] if step == 200 else [])

    saved.run(Saver())
    resumed = config.training(CartPole, steps=400, seed=0)
    resumed.load_state_dict(states[0])
    assert resumed.step == 200
    assert resumed.model.exploration_rate == pytest.approx(1 - 0.95 * 200 / 400 / 0.9)
    assert resumed.model.replay_buffer.pos == 200
    resumed.run(Recorder())
    assert resumed.model.exploration_rate == pytest.approx(0.05)


def test_every_entry_point_names_its_config():
    for name, config in [("sb3-ppo", PPOConfig), ("sb3-a2c", A2CConfig), ("sb3-sac", SACConfig)]:
        assert load("learners", name) is config
    assert load("learners", "sb3-td3") is TD3Config
    assert load("learners", "sb3-dqn") is DQNConfig


@pytest.mark.parametrize(("config", "discrete"), [(DQNConfig(), False), (SACConfig(), True), (TD3Config(), True)])
def test_an_algorithm_that_cannot_act_names_those_that_can(config, discrete):
    fitting = "sb3-a2c, sb3-dqn, sb3-ppo" if discrete else "sb3-a2c, sb3-ppo, sb3-sac, sb3-td3"
    with pytest.raises(InvalidSetting, match="cannot choose") as error:
        config.training(lambda: Reach(discrete=discrete), steps=2048, seed=0)
    assert f"choose one of {fitting}" in str(error.value)


def test_demonstrations_and_cloning_go_together():
    episodes = demonstrations(Reach(), Expert(), 1)
    for config, given in [(PPOConfig(), episodes), (PPOConfig(clone_epochs=3), [])]:
        with pytest.raises(InvalidSetting, match="both demonstrations and clone_epochs > 0, or neither"):
            config.training(Reach, steps=2048, seed=0, demonstrations=given)
    with pytest.raises(InvalidSetting, match="SAC starts from demonstrations in its replay, not from a policy"):
        SACConfig(buffer_size=10).training(Reach, steps=1, seed=0, initial_policy=Expert())
    with pytest.raises(InvalidSetting, match="raise buffer_size"):
        SACConfig(buffer_size=2).training(Reach, steps=1, seed=0, demonstrations=episodes)
    with pytest.raises(SpecMismatch, match="of episode 0"):
        SACConfig(buffer_size=10).training(lambda: Reach(camera=7), steps=1, seed=0, demonstrations=episodes)


def test_wrong_settings_are_named_when_read():
    with pytest.raises(InvalidSetting, match="lin_3e-4"):
        PPOConfig(learning_rate="cos_3e-4")
    with pytest.raises(UnknownName, match="did you mean 'ReLU'"):
        SACConfig(policy_kwargs={"activation_fn": "Relu"})
    with pytest.raises(InvalidSetting, match=r"\[count, step \| episode\]"):
        TD3Config(train_freq=(1, "hour"))
    with pytest.raises(InvalidSetting, match="n_envs must be positive"):
        A2CConfig(n_envs=0)


def test_schedules_and_activations_reach_sb3():
    network = {"activation_fn": "ELU", "net_arch": {"pi": [8], "vf": [4]}}
    config = PPOConfig(learning_rate="lin_1e-3", clip_range="lin_0.4", policy_kwargs=network)
    training = config.training(Reach, steps=2048, seed=0)
    assert training.model.lr_schedule(0.5) == pytest.approx(5e-4)
    assert training.model.clip_range(0.25) == pytest.approx(0.1)
    assert isinstance(training.model.policy.mlp_extractor.policy_net[1], torch.nn.ELU)
