"""Policies of others in evaluations: models, functions, objects, in environments of any spelling."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.wrappers import FlattenObservation

import robo_rl
from robo_rl.code_names import NotImportable
from robo_rl.environments.foreign import UnitsUnknown
from robo_rl.errors import InvalidAction, InvalidSetting

pytestmark = [pytest.mark.filterwarnings("ignore", category=category) for category in (UnitsUnknown, NotImportable)]


class Line(gymnasium.Env):
    """A number that actions of up to 2 change; an episode of three steps returns the sum of the actions."""

    def __init__(self, action=None):
        self.observation_space = Box(-10, 10, (1,), np.float32)
        self.action_space = action or Box(-2, 2, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.x = 0, 1.0
        return np.float32([self.x]), {}

    def step(self, action):
        self.steps, self.x = self.steps + 1, self.x + float(np.ravel(action)[0])
        return np.float32([self.x]), float(np.ravel(action)[0]), False, self.steps >= 3, {}


class Acting:
    """Remembers what it saw."""

    def __init__(self):
        self.seen = []

    def act(self, observation):
        self.seen.append(observation)
        return np.float32([1.5])


class Recurrent:
    """Counts its steps in a state, as a recurrent model of Stable-Baselines3."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        count = 0 if episode_start.all() else state
        return np.float32([count]), count + 1


def returns(policy, environment):
    return robo_rl.evaluate(policy, environment, episodes=2).returns


@pytest.mark.parametrize("environment", [Line, Line(), lambda: Line(None)], ids=["class", "instance", "function"])
def test_a_function_sees_and_returns_what_the_environment_does(environment):
    assert returns(lambda observation: np.clip(-observation, -2, 2), environment) == pytest.approx((-1.0, -1.0))


def test_objects_with_act_and_predict():
    acting = Acting()
    assert returns(acting, Line) == pytest.approx((4.5, 4.5))
    assert np.array_equal(acting.seen[0], np.float32([1.0]))
    assert returns(Recurrent(), Line) == pytest.approx((3.0, 3.0))  # 0 + 1 + 2: the state is kept, and forgotten


def test_an_environment_with_a_spec_in_hand_shows_its_spec():
    acting = Acting()
    assert returns(acting, robo_rl.make_environment(Line)) == pytest.approx((6.0, 6.0))  # 1.5 of [-1, 1] is clipped to 1
    assert acting.seen[0].keys() == {"observation"}


def test_choices_are_those_of_the_environment():
    assert returns(lambda observation: 4, Line(Discrete(3, start=2))) == (12.0, 12.0)
    with pytest.raises(InvalidAction, match="allowed: 2, 3, 4"):
        returns(lambda observation: 0, Line(Discrete(3, start=2)))


def test_an_environment_by_name_and_by_id():
    made = gymnasium.make("CartPole-v1")
    assert returns(lambda observation: 0, "CartPole-v1") == returns(lambda observation: 0, made)


def test_a_wrapper_that_flattens_our_environment_is_respected():
    seen = []
    environment = FlattenObservation(gymnasium.make("robo/ArmReach-v0", max_steps=2))
    still = np.zeros(environment.action_space.shape)
    robo_rl.evaluate(lambda observation: seen.append(observation.shape) or still, environment, 1)
    assert {*seen} == {environment.observation_space.shape}


def test_a_model_of_stable_baselines():
    from stable_baselines3 import PPO

    model = PPO("MlpPolicy", Line(), n_steps=8, batch_size=8, device="cpu", seed=0)
    action, _ = model.predict(np.float32([1.0]), deterministic=True)
    first = []
    robo_rl.evaluate(model, Line, 1, on_episode=lambda episode: first.append(float(episode.rewards[0])))
    assert first == pytest.approx([float(action[0])], rel=1e-5)


def test_no_policy_and_a_policy_that_fails_say_so():
    with pytest.raises(InvalidSetting, match=r"This is no policy(.|\n)*give an instance, not its class"):
        returns(Acting, Line)
    with pytest.raises(InvalidSetting, match=r"a function, failed(.|\n)*KeyError(.|\n)*wrappers in which the policy"):
        returns(lambda observation: {}[0], Line)
    with pytest.raises(InvalidAction, match="the shape of Box"):
        returns(lambda observation: np.zeros(3), Line)
