"""What offline learning is for, on Reacher with adverse data (slow): better than cloning, red where limits count as ends."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from robo_policies.learners.bc import BCConfig
from robo_policies.learners.iql import IQLConfig
from robo_rl.environments.make import make_environment
from robo_rl.evaluation.evaluation import evaluate
from robo_rl.replay.recorded import RecordedReplay
from robo_rl.rollout.episode import rollout
from robo_rl.settings import updated
from robo_rl.spec.environment import specification

LENGTHS = 0.1, 0.11  # [m] of the two links
RANDOM, UPDATES, EVALUATED = -43.0, 5_000, range(1_000_000, 1_000_040)
SMALL = {"network": {"hidden": (128, 128)}, "batch_size": 128, "lr": 1e-3}


class ReacherScript:
    """Pulls the tip along the line to the target by the transposed Jacobian; pushes it away where `gain` is negative."""

    def __init__(self, spec, gain: float, damping: float, noise: float, seed: int) -> None:
        self.environment_spec, self.gain, self.damping, self.noise = spec, gain, damping, noise
        self.generator = np.random.default_rng(seed)

    def reset(self) -> None:
        pass

    def act(self, observation, *, deterministic: bool = False):
        values = np.concatenate([np.ravel(part) for part in observation.values()])
        cos1, cos2, sin1, sin2 = values[:4]
        velocity, to_tip = values[6:8], values[8:10]
        cos12, sin12 = cos1 * cos2 - sin1 * sin2, sin1 * cos2 + cos1 * sin2
        first, second = LENGTHS
        jacobian = np.array(
            [[-first * sin1 - second * sin12, -second * sin12], [first * cos1 + second * cos12, second * cos12]]
        )
        torque = -self.gain * jacobian.T @ to_tip - self.damping * velocity
        return np.clip(torque + self.generator.normal(0, self.noise, 2), -1, 1).astype(np.float32)


def recorded(environment, gain, damping, noise, seeds):
    spec = specification(environment)
    return [rollout(environment, ReacherScript(spec, gain, damping, noise, seed), seed=seed) for seed in seeds]


@pytest.fixture(scope="module")
def reacher():
    environment = make_environment("gymnasium/Reacher-v5")
    yield environment
    environment.close()


@pytest.fixture(scope="module")
def adverse(reacher):
    """30 % of the episodes reach for the target, 70 % push away from it: 30,000 steps."""
    return recorded(reacher, 30, 0.12, 0.0, range(180)) + recorded(reacher, -30, 0.12, 0.3, range(1000, 1420))


def trained(config, episodes, environment, seed):
    learner, spec = config.build(specification(environment), seed), specification(environment)
    replay = RecordedReplay.of(spec, episodes, seed)
    for _ in range(UPDATES):
        learner.update(replay.sample(config.batch_size, 1, 0.99))
    return learner, replay


def score(learner, environment, expert: float) -> float:
    found = evaluate(learner.policy, environment, seeds=EVALUATED).mean_return.estimate
    return 100 * (found - RANDOM) / (expert - RANDOM)


def mean_value(learner, replay) -> float:
    batch = replay.sample(1000, 1, 0.99)
    parts = learner.parts
    vectors = parts.encoder.tensors(parts.encoder.stack(batch.observations), batch.observations, parts.device)
    return float(learner.value(parts.encoder(vectors)).mean().detach())


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(3))
def test_iql_finds_the_way_where_most_of_the_data_lead_astray(reacher, adverse, seed):
    """At least 95 of 100 and 20 better than cloning."""
    expert = evaluate(ReacherScript(specification(reacher), 30, 0.12, 0.0, 0), reacher, seeds=EVALUATED).mean_return.estimate
    cloned, _ = trained(updated(BCConfig(), SMALL), adverse, reacher, seed)
    learnt, _ = trained(updated(IQLConfig(), SMALL, expectile=0.9, inverse_temperature=10.0), adverse, reacher, seed)
    scores = score(learnt, reacher, expert), score(cloned, reacher, expert)
    assert scores[0] >= 95, scores
    assert scores[0] >= scores[1] + 20, scores


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_time_limit_that_counts_as_an_end_shows_in_the_values(reacher, adverse):
    """Every episode of Reacher is cut after 50 steps, and the observation does not tell when.

    A reward c for each step is worth 100 c where the limit is no end (discount 0.99), and on average over the steps left
    to an end (1 to 50) 22 c where it is one: values differ by a factor of more than 4 where nothing changes along the way,
    by less where actions improve. Targets follow quickly (tau), so that 5,000 updates reach the horizon.
    """
    config = updated(IQLConfig(), SMALL, tau=0.05)
    right = mean_value(*trained(config, adverse, reacher, 0))
    ended = [replace(episode, terminated=True, truncated=False) for episode in adverse]
    wrong = mean_value(*trained(config, ended, reacher, 0))
    assert right < 2 * wrong < 0, (right, wrong)
