"""Learning from nothing but pictures: a red dot shall go to a green one, and the environment's own reward is poison."""

import hashlib
from dataclasses import dataclass

import gymnasium
import numpy as np
import pytest

from factories import axes, make_spec, picture_spec
from robo_policies.learners.ppo import PPOConfig
from robo_policies.learners.sac import SACConfig
from robo_policies.networks.settings import Network
from robo_policies.sb3 import algorithms as sb3
from robo_rl.evaluation.evaluation import FIRST_SEED
from robo_rl.protocols.sampling import Replay
from robo_rl.rewards.identity import settings_hash
from robo_rl.rewards.images.picture_reward import PictureReward
from robo_rl.rewards.images.picture_scoring import Completion, PictureScoring
from robo_rl.rewards.step_rewards.online_scoring import OnlineReward
from robo_rl.rollout.episode import RandomPolicy, rollout
from robo_rl.spec.environment import ArraySpec
from robo_rl.training.off_policy import online_training
from robo_rl.types import Labels

SIDE = 16
VECTORS = (ArraySpec("position", (2,)), ArraySpec("goal", (2,), role="goal"))
CAMERA = picture_spec("camera_top", (SIDE, SIDE, 3))


class Dots(gymnasium.Env):
    """Two dots on a plane; a poisonous reward of up to 1e6, and no end but the clock's."""

    environment_spec = make_spec("test/Dots", *VECTORS, CAMERA, action=axes("x", "y"), max_steps=12)
    observation_space = environment_spec.observation.space
    action_space = environment_spec.action.space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position, self.goal = self.np_random.uniform(-0.9, 0.9, (2, 2))
        self.steps = 0
        return self._observation(), {}

    def step(self, action):
        self.position = np.clip(self.position + 0.3 * np.asarray(action), -0.95, 0.95)
        self.steps += 1
        poison = 1e6 * float(self.np_random.uniform(-1, 1))
        return self._observation(), poison, False, self.steps == 12, {}

    def _observation(self):
        picture = np.zeros((SIDE, SIDE, 3), np.uint8)
        for colour, place in enumerate((self.position, self.goal)):
            column, row = ((place + 1) / 2 * (SIDE - 1)).round().astype(int)
            picture[row, column, colour] = 255
        vectors = {"position": self.position.astype(np.float32), "goal": self.goal.astype(np.float32)}
        return {**vectors, "camera_top": picture}


@dataclass(frozen=True, kw_only=True)
class Nearness(PictureReward):
    """1 where the dots meet, 0 at the distance of the picture's side, as seen in the picture alone."""

    camera: str = "top"

    @property
    def identity(self):
        return "nearness", settings_hash(self)

    def score(self, pictures, firsts, instruction):
        places = np.arange(SIDE) / (SIDE - 1)
        red, green = (pictures[..., colour].astype(np.float32) / 255 for colour in (0, 1))
        centres = [np.stack([dot.sum(axis) @ places for axis in (1, 2)], axis=-1) for dot in (red, green)]
        distances = np.linalg.norm(centres[0] - centres[1], axis=-1)
        return Labels((1 - distances).astype(np.float32), np.ones(len(pictures), np.bool_))


@dataclass(frozen=True, kw_only=True)
class Shuffled(Nearness):
    """Each picture has the score of some other picture, always the same one.

    Dealt out within a call it would be no control: a call holds an episode, and near episodes would still be worth more.
    """

    def score(self, pictures, firsts, instruction):
        seeds = [int.from_bytes(hashlib.sha256(picture.tobytes()).digest()) for picture in pictures]
        values = [np.random.default_rng(seed).triangular(0, 0.6, 1) for seed in seeds]  # about how nearness is distributed
        return Labels(np.array(values, np.float32), np.ones(len(pictures), np.bool_))


@dataclass(frozen=True, kw_only=True)
class Blind(Nearness):
    """The same for every picture."""

    def score(self, pictures, firsts, instruction):
        return Labels(np.full(len(pictures), 0.5, np.float32), np.ones(len(pictures), np.bool_))


class Silent:
    def on_episode(self, step, **outcome): ...
    def on_metrics(self, step, metrics): ...
    def on_step(self, step, training): ...


def distance_after(policy) -> float:
    """Returns the mean distance at the end of 40 episodes."""
    ends = []
    for seed in range(FIRST_SEED, FIRST_SEED + 40):
        last = {
            name: values[-1] for name, values in rollout(Dots(), policy, seed=seed, deterministic=True).observations.items()
        }
        ends.append(np.linalg.norm(last["position"] - last["goal"]))
    return float(np.mean(ends))


def ours(reward):
    config = SACConfig(
        network=Network(hidden=(32, 32)), batch_size=64, replay=Replay(learning_starts=200), lr=3e-3, tau=0.02, discount=0.9
    )
    environment = Dots()
    learner = config.build(reward.visible(environment.environment_spec), 0)
    return online_training(environment, learner, config.sampling, steps=2400, seed=0, rewards=reward.running(1))


def sb3s(reward):
    network = {"net_arch": [32, 32]}
    config = sb3.SACConfig(
        learning_rate=3e-3, learning_starts=200, batch_size=64, tau=0.02, gamma=0.9, policy_kwargs=network, n_envs=2
    )
    return config.training(Dots, steps=4800, seed=0, reward=reward)


def our_ppo(reward):
    config = PPOConfig(num_envs=8, steps_per_env=48, batch_size=64, discount=0.9, lr=1e-3)
    return config.training(Dots, steps=384 * 60, seed=0, reward=reward)


def sb3s_ppo(reward):
    config = sb3.PPOConfig(n_envs=8, n_steps=48, gamma=0.9, learning_rate=1e-3)
    return config.training(Dots, steps=384 * 60, seed=0, reward=reward)


def learnt(training) -> float:
    training.run(Silent())
    return distance_after(training.policy)


@pytest.mark.parametrize("name", ["level", "potential"])
def test_a_shortened_rollout_is_paid_by_the_model_too(name):
    config = PPOConfig(num_envs=8, steps_per_env=48, batch_size=64, discount=0.9, lr=1e-3)
    training = config.training(Dots, steps=384 + 100, seed=0, reward=REWARDS[name])
    training.run(Silent())
    assert (training.step, training.learner.buffer.rollouts) == (384 + 96, 2)
    paid = training.learner.buffer
    assert paid.valid[:12].mean() > 0.5 and np.abs(paid.rewards[:12]).max() < 100, "none is the environment's"


@pytest.fixture(scope="module")
def by_chance() -> float:
    return distance_after(RandomPolicy(Dots.environment_spec, 0))


def of(model, *, weight=1.0, **settings) -> OnlineReward:
    scoring = PictureScoring(model, alone=("camera_top",), every=60, **settings)
    return scoring.online(Dots.environment_spec, weight=weight, discount=0.9)


REWARDS = {
    "level": of(Nearness()),
    "delta": of(Nearness(mode="delta"), weight=5.0),
    "potential": of(Nearness(mode="potential", discount=0.9), weight=5.0, completion=Completion(Nearness(), 0.93, 1.0)),
}


@pytest.mark.slow
@pytest.mark.parametrize("mode", REWARDS)
@pytest.mark.parametrize("train", [ours, sb3s, our_ppo, sb3s_ppo])
def test_a_policy_learns_from_pictures_alone(train, mode, by_chance):
    distance = learnt(train(REWARDS[mode]))
    assert distance < by_chance / 3, f"{distance:.3f}, by chance {by_chance:.3f}"


@pytest.mark.slow
@pytest.mark.parametrize("model", [Shuffled(), Blind()])
@pytest.mark.parametrize("train", [ours, our_ppo])
def test_and_not_from_shuffled_or_constant_scores(train, model, by_chance):
    distance = learnt(train(of(model)))
    assert distance > by_chance / 2, f"{distance:.3f}, by chance {by_chance:.3f}"
