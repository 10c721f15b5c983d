"""Learning from what whole episodes returned: a point shall go to another one, and hears of no single reward."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest

from factories import axes, make_spec
from robo_papers.lare.decoder import DecoderConfig
from robo_papers.lare.learned import Decomposition
from robo_papers.lare.reward import EpisodicReward, LatentReward
from robo_policies.learners.sac import SACConfig
from robo_rl.evaluation.evaluation import FIRST_SEED
from robo_rl.rewards.programs.program import RewardProgram
from robo_rl.rollout.episode import rollout
from robo_rl.settings import updated
from robo_rl.spec.environment import ArraySpec
from robo_rl.training.off_policy import online_training

PROGRAM = """
def reward(batch):
    distance = np.linalg.norm(batch["goal"] - batch["position"], axis=1)
    before = np.linalg.norm(batch["goal"] - batch["previous_position"], axis=1)
    near = np.exp(-3 * distance)
    effort = np.mean(np.abs(batch["action"]), axis=1)
    return near, {"near": near, "approach": before - distance, "effort": effort}
"""


class Points(gymnasium.Env):
    """Two points on a plane for 30 steps; the reward is minus their distance."""

    environment_spec = make_spec(
        "test/Points", ArraySpec("position", (2,)), ArraySpec("goal", (2,), role="goal"), action=axes("x", "y"), max_steps=30
    )
    observation_space = environment_spec.observation.space
    action_space = environment_spec.action.space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position, self.goal = self.np_random.uniform(-0.9, 0.9, (2, 2))
        self.steps = 0
        return self._observation(), {}

    def step(self, action):
        self.position = np.clip(self.position + 0.15 * np.asarray(action), -1, 1)
        self.steps += 1
        return self._observation(), -float(np.linalg.norm(self.position - self.goal)), False, self.steps == 30, {}

    def _observation(self):
        return {"position": self.position.astype(np.float32), "goal": self.goal.astype(np.float32)}


class Silent:
    def on_episode(self, step, **outcome):
        pass

    def on_metrics(self, step, metrics):
        pass

    def on_step(self, step, training):
        pass


def mean_return(model) -> float:
    """Returns what a policy achieves that has learned for 4,000 steps from such a reward."""
    spec = Points.environment_spec
    settings = {
        "replay": {"learning_starts": 600, "capacity": 10_000},
        "initial_temperature": 0.05,
        "discount": 0.9,
        "lr": 1e-3,
    }
    config = updated(SACConfig(), settings, network={"hidden": (64, 64)})
    reward = model.online(spec, weight=1.0, discount=0.9).running(1)
    training = online_training(Points(), config.build(spec, 0), config.sampling, steps=4000, seed=0, rewards=reward)
    training.run(Silent())
    episodes = [rollout(Points(), training.policy, seed=FIRST_SEED + at, deterministic=True) for at in range(30)]
    return float(np.mean([episode.undiscounted_return for episode in episodes]))


@pytest.fixture
def model(tmp_path):
    decoder = DecoderConfig(hidden=(64, 64), lr=1e-3)
    return LatentReward(str(RewardProgram.parse(PROGRAM).save(tmp_path / "factors.py")), steps=10, decoder=decoder)


@pytest.mark.slow
def test_policy_learns_from_factors_not_from_random_decoder(model, monkeypatch):
    learned = mean_return(model)
    assert learned > -6.0
    assert mean_return(EpisodicReward()) < learned - 1.0, "one return at the end teaches less in as many steps"
    monkeypatch.setattr(Decomposition, "update", lambda self: {})  # what it says then is chance
    chance = [mean_return(replace(model, seed=seed)) for seed in (1, 2)]
    assert max(chance) < learned - 3.0
