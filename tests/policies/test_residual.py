"""Residual RL: what is executed, and that a learnt correction makes a wrong base good."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest

from factories import make_spec, picture_spec
from robo_policies.learners.residual import ResidualEnv
from robo_policies.learners.sac import SACConfig
from robo_policies.networks.settings import Network
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting, SpecMismatch
from robo_rl.evaluation.evaluation import evaluate
from robo_rl.protocols.sampling import Replay
from robo_rl.rollout.episode import rollout
from robo_rl.spec.environment import ActionSpec, ArraySpec, ObservationSpec
from robo_rl.training.off_policy import online_training


class Point(gymnasium.Env):
    """A point in a plane that is to come to a goal; each step costs its distance."""

    environment_spec = make_spec(
        "a/Point",
        ArraySpec("goal_from_point", (2,), unit="m"),
        action=ActionSpec(("x", "y"), (-0.1, 0.0), (0.1, 0.2), ("m", "m"), control_period=0.1),
        max_steps=10,
    )
    observation_space, action_space = environment_spec.observation.space, environment_spec.action.space
    is_robot = False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.told, self._away = [], self.np_random.uniform(-0.5, 0.5, 2).astype(np.float32)
        return {"goal_from_point": self._away}, {}

    def step(self, action):
        self.told.append(action)
        self._away = (self._away - 0.1 * np.asarray(action)).astype(np.float32)
        near = float(np.linalg.norm(self._away))
        info = {"success": near < 0.07 and len(self.told) >= 10} | (
            {"executed_action": np.asarray(action) / 2} if self.is_robot else {}
        )
        return {"goal_from_point": self._away}, -near, False, len(self.told) >= 10, info


class Biased:
    """Goes to the goal, but beside it."""

    environment_spec = Point.environment_spec

    def reset(self):
        pass

    def act(self, observation, *, deterministic=False):
        return np.clip(3 * (observation["goal_from_point"] + np.array([0.15, -0.1])), -1, 1).astype(np.float32)


class Zero:
    def __init__(self, spec, value=0.0):
        self.environment_spec, self._value = spec, value

    def reset(self):
        pass

    def act(self, observation, *, deterministic=False):
        return np.full(2, self._value, np.float32)


def residual(scale=0.25):
    return ResidualEnv(Point(), lambda seed: Biased(), scale=scale)


def test_what_is_executed_is_the_base_and_a_bounded_correction():
    environment = residual(0.25)
    environment.unwrapped.is_robot = True
    observation, _ = environment.reset(seed=0)
    wanted = observation["base_action"]
    np.testing.assert_allclose(wanted, Biased().act(observation))
    *_, info = environment.step(np.array([1.0, -0.5], np.float32))
    executed = np.clip(wanted + np.array([0.25, -0.125]), -1, 1)
    np.testing.assert_allclose(environment.unwrapped.told[0], executed, atol=1e-6)
    np.testing.assert_allclose(info["executed_action"], np.clip((executed / 2 - wanted) / 0.25, -1, 1), atol=1e-5)
    spec = environment.environment_spec
    assert spec.action.names == ("x_correction", "y_correction")
    np.testing.assert_allclose([spec.action.low, spec.action.high], [[-0.025, -0.025], [0.025, 0.025]])


def test_without_a_correction_the_base_acts():
    environment = residual()
    corrected = rollout(environment, Zero(environment.environment_spec), seed=3)
    alone = rollout(Point(), Biased(), seed=3)
    np.testing.assert_allclose(corrected.rewards, alone.rewards, atol=1e-6)


def test_base_without_cameras_acts_beside_pictures():
    class Filmed(Point):
        picture = picture_spec("camera_front", (2, 2, 3))
        observation = ObservationSpec((*Point.environment_spec.observation.arrays, picture))
        environment_spec = replace(Point.environment_spec, observation=observation)

    environment = ResidualEnv(Filmed(), lambda _: Biased())
    assert set(environment.reset(seed=0)[0]) == {"goal_from_point", "base_action"}


def test_what_has_no_residual_is_refused():
    with pytest.raises(InvalidSetting, match="no residual"):
        residual(0.0)
    with pytest.raises(SpecMismatch, match="base policy"):
        ResidualEnv(Point(), lambda seed: Zero(residual().environment_spec)).reset(seed=0)


@pytest.mark.slow
def test_a_learnt_correction_beats_the_base():
    class Silent:
        def on_episode(self, *_, **__):
            pass

        def on_metrics(self, *_):
            pass

        def on_step(self, *_):
            pass

    environment = residual(0.6)
    config = SACConfig(
        network=Network(hidden=(32, 32)),
        lr=3e-3,
        batch_size=64,
        replay=Replay(learning_starts=100, capacity=2000),
        discount=0.9,
        initial_temperature=0.02,
    )
    learner = config.build(environment.environment_spec, 0)
    online_training(environment, learner, config.sampling, steps=1200, seed=0).run(Silent())
    base = evaluate(Zero(environment.environment_spec), environment, seeds=range(20))
    found = evaluate(learner.policy, environment, seeds=range(20))
    assert sum(base.successes) == 0
    assert sum(found.successes) >= 15
    assert np.mean(found.returns) > np.mean(base.returns)


def test_an_arm_task_with_its_expert_as_the_base():
    environment = make_environment("robo/ArmReach-v0", max_steps=80, wrappers=[{"name": "residual", "scale": 0.1}])
    assert environment.environment_spec.name == "residual:robo/ArmReach-v0"
    assert environment.environment_spec.max_steps == 80

    class Nothing(Zero):
        def act(self, observation, *, deterministic=False):
            return np.zeros(5, np.float32)

    episodes = [rollout(environment, Nothing(environment.environment_spec), seed=7) for _ in range(2)]
    assert episodes[0].success
    np.testing.assert_array_equal(*[episode.observations["base_action"] for episode in episodes])  # it follows from the seed
