"""SAC for the mean reward: its target beside SAC's own, and a longer loop that it prefers."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch

from factories import axes, make_spec
from robo_bench.trainings import Silent
from robo_papers.sac_average.learner import SACAverageConfig
from robo_policies.learners.sac import SACConfig
from robo_rl.errors import InvalidSetting
from robo_rl.spec.environment import ArraySpec, specification
from robo_rl.training.off_policy import online_training
from robo_rl.types import Batch

SMALL = {"hidden": (16,), "batch_size": 64, "lr": 3e-3, "learning_starts": 200, "initial_temperature": 0.05}


def trained(environment, config, steps):
    learner = config.build(specification(environment), 0)
    online_training(environment, learner, config.sampling, steps=steps, seed=0).run(Silent())
    return learner


class Loops(gymnasium.Env):
    """At the fork left pays 1 and comes back after two steps; right pays 4 and comes back after four."""

    environment_spec = make_spec("a/Loops", ArraySpec("place", (5,)), action=axes("way"), max_steps=24)
    observation_space, action_space = environment_spec.observation.space, environment_spec.action.space
    ends = False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._place = self._steps = 0
        return self._seen(), {}

    def step(self, action):
        before, self._steps = self._place, self._steps + 1
        ways = {0: 1 if action[0] < 0 else 2, 1: 0, 2: 3, 3: 4, 4: 0}
        self._place = ways[before]
        reward = {(0, 1): 1.0, (4, 0): 4.0}.get((before, self._place), 0.0)
        return self._seen(), reward, self.ends, self._steps == 24, {}

    def _seen(self):
        return {"place": np.eye(5, dtype=np.float32)[self._place]}


def test_the_target_takes_the_mean_reward_off():
    """Against SAC's own target from the same networks and draws: less the running mean, which moves by rate_step."""
    settings = {**SMALL, "batch_size": 8, "learning_starts": 1}
    average = SACAverageConfig(**settings, rate_step=0.25).build(Loops.environment_spec, 0)
    plain = SACConfig(**settings, discount=1.0).build(Loops.environment_spec, 0)
    rows = {"place": np.eye(5, dtype=np.float32)[np.arange(8) % 5]}
    ones = np.ones(8, np.float32)
    batch = Batch(rows, np.zeros((8, 1), np.float32), 2.0 * ones, ones, ones, rows, ones, ones < 0)
    for expected in (0.25, 0.4375):  # of a mean value v each: v / 4, then v (1/4 + 3/4 / 4)
        data = plain.parts.batch(batch), average.parts.batch(batch)
        alpha = torch.tensor(0.1)
        states = plain.parts.generator.get_state(), average.parts.generator.get_state()
        assert torch.equal(*states)
        target, found = plain.critic_target(data[0], alpha), average.sac.critic_target(data[1], alpha)
        plain.parts.generator.set_state(states[0])
        average.parts.generator.set_state(states[1])
        rate = expected * (target - 2.0).mean()
        torch.testing.assert_close(average.objective.rate, rate)
        torch.testing.assert_close(found, target - rate)


@pytest.mark.slow
def test_the_mean_reward_prefers_the_longer_loop():
    settings = {**SMALL, "target_entropy_per_action": -2.0, "tau": 0.02}
    average = trained(Loops(), SACAverageConfig(**settings, rate_step=0.02), 1500)
    short = trained(Loops(), SACConfig(**settings, discount=0.5), 1500)
    fork = {"place": np.eye(5, dtype=np.float32)[0]}
    assert average.policy.act(fork, deterministic=True)[0] > 0 > short.policy.act(fork, deterministic=True)[0]
    assert float(average.objective.rate) == pytest.approx(1.0, abs=0.3)  # 4 in four steps, and a little entropy
    again = SACAverageConfig(**settings).build(Loops.environment_spec, 1)
    again.load_state_dict(average.state_dict())
    assert float(again.objective.rate) == float(average.objective.rate)


def test_a_task_that_ends_has_no_mean_reward():
    line = Loops()
    line.ends = True
    with pytest.raises(InvalidSetting, match="do not end"):
        trained(line, SACAverageConfig(**SMALL), 400)
    with pytest.raises(InvalidSetting, match="no discount"):
        SACAverageConfig(discount=0.9)
