"""Environments that anybody wrote: found by names of code, described by their spaces, refused with one clear error."""

from __future__ import annotations

import functools
import sys
import warnings
from importlib import invalidate_caches
from importlib.util import find_spec

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple
from gymnasium.wrappers import TimeLimit

import robo_rl
from robo_rl import code_names
from robo_rl.code_names import NotImportable
from robo_rl.conformance.environments import ENVIRONMENT_CHECKS
from robo_rl.environments import foreign
from robo_rl.environments.foreign import ForeignEnv, UnitsUnknown
from robo_rl.environments.importing import name_of, portable_id
from robo_rl.environments.make import make_environment, make_vector_environment
from robo_rl.errors import EnvironmentFailed, InvalidAction, InvalidSetting, RoboRLError, UnknownName
from robo_rl.rollout.episode import RandomPolicy, rollout
from robo_rl.spec.environment import specification

NUMBER = Box(-1.0, 1.0, (2,), np.float32)


@pytest.fixture(autouse=True)
def _as_in_a_new_process(monkeypatch):
    monkeypatch.setattr(foreign, "_WARNED", set())
    monkeypatch.setattr(code_names, "_GIVEN", {})


class Spaces(gymnasium.Env):
    """Samples of its spaces; remembers the actions that it was given."""

    def __init__(self, observation=NUMBER, action=NUMBER, info=None, length=5):
        self.observation_space, self.action_space = observation, action
        self.length, self.info, self.taken = length, info or {}, []

    def _sampled(self):
        self.observation_space.seed(int(self.np_random.integers(1000)))
        return self.observation_space.sample()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.taken = []
        return self._sampled(), {}

    def step(self, action):
        assert self.action_space.contains(action), (action, self.action_space)
        self.taken.append(action)
        return self._sampled(), float(len(self.taken)), len(self.taken) >= self.length, False, dict(self.info)


def of_spaces(**settings):
    return ForeignEnv(Spaces(**settings), "mine")


OBSERVED = {
    "box": (Box(-2.0, 3.0, (4,), np.float32), {"observation": (4,)}),
    "matrix": (Box(-2.0, 3.0, (2, 3), np.float64), {"observation": (6,)}),
    "integers": (Box(0, 9, (3,), np.int64), {"observation": (3,)}),
    "nested": (
        Dict({"robotArm": Dict({"q-pos": NUMBER}), "desired_goal": NUMBER}),
        {"robot_arm_q_pos": (2,), "desired_goal": (2,)},
    ),
    "choice": (Discrete(3, start=2), {"observation": (3,)}),
    "choices": (MultiDiscrete([2, 3]), {"observation": (5,)}),
    "bits": (MultiBinary(4), {"observation": (4,)}),
    "picture": (Box(0, 255, (20, 24, 3), np.uint8), {"camera_view": (20, 24, 3)}),
    "channels_first": (Dict({"rgb": Box(0, 255, (4, 20, 24), np.uint8)}), {"camera_rgb": (20, 24, 4)}),
    "grey": (Dict({"2nd eye": Box(0, 255, (20, 24), np.uint8)}), {"camera_entry_2nd_eye": (20, 24, 1)}),
    "cells": (Box(0, 255, (7, 7, 3), np.uint8), {"observation": (147,)}),
}
ACTED = {
    "box": Box(np.float32([0.0, -4.0]), np.float32([1.0, 4.0])),
    "matrix": Box(-0.3, 0.7, (2, 2), np.float64),
    "choice": Discrete(3, start=-1),
    "choices": MultiDiscrete([2, 3]),
    "bits": MultiBinary(3),
}


@pytest.mark.parametrize("kind", OBSERVED)
def test_observations_become_named_arrays(kind):
    space, shapes = OBSERVED[kind]
    environment = of_spaces(observation=space)
    assert {name: array.shape for name, array in environment.environment_spec.observation.items()} == shapes
    for check in ENVIRONMENT_CHECKS:
        check(lambda: of_spaces(observation=space))


@pytest.mark.parametrize("kind", ACTED)
def test_actions_of_the_spec_are_of_the_space(kind):
    for check in ENVIRONMENT_CHECKS:
        check(lambda: of_spaces(action=ACTED[kind]))


def test_values_are_those_of_the_source():
    source = Spaces(Dict({"a": Dict({"b": NUMBER}), "pixels": Box(0, 255, (3, 20, 30), np.uint8), "n": Discrete(3)}))
    seen, _ = ForeignEnv(source, "mine").reset(seed=4)
    source.reset(seed=4)
    raw, _ = source.reset(seed=4)
    np.testing.assert_array_equal(seen["a_b"], raw["a"]["b"])
    np.testing.assert_array_equal(seen["camera_pixels"], raw["pixels"].transpose(1, 2, 0))
    assert seen["n"].argmax() == raw["n"] and seen["n"].sum() == 1


def test_a_box_is_scaled_from_its_limits():
    environment = of_spaces(action=ACTED["box"])
    environment.reset(seed=0)
    for action, physical in (([-1, -1], [0, -4]), ([1, 1], [1, 4]), ([0, 0.5], [0.5, 2]), ([3, -9], [1, -4])):
        environment.step(np.float32(action))
        np.testing.assert_allclose(environment.unwrapped.taken[-1], physical, atol=1e-6)


def test_every_choice_reaches_the_source():
    for space, count in ((ACTED["choice"], 3), (ACTED["choices"], 6), (ACTED["bits"], 8)):
        environment = of_spaces(action=space, length=99)
        environment.reset(seed=0)
        for choice in range(environment.environment_spec.action.size):
            environment.step(choice)
        assert len({str(np.ravel(each)) for each in environment.unwrapped.taken}) == count


def test_units_are_unknown_and_limits_known():
    spec = of_spaces(observation=Box(np.float32([-1, -np.inf]), np.float32([2, np.finfo(np.float32).max]))).environment_spec
    array = spec.observation["observation"]
    assert (array.low, array.high, array.unit, array.frame) == ((-1.0, -np.inf), (2.0, np.inf), "unknown", None)
    assert (spec.action.units, spec.action.mode, spec.action.control_period) == (("unknown",) * 2, "unknown", None)


BAD = {
    "tuple": ({"observation": Tuple((NUMBER, NUMBER))}, "observation space of mine has no arrays of fixed size"),
    "text": ({"observation": Dict({"words": Text(5)})}, "words: Text"),
    "empty": ({"observation": Dict({})}, "observations of mine are empty"),
    "alike": ({"observation": Dict({"a b": NUMBER, "a_b": NUMBER})}, "have one name"),
    "unbounded": ({"action": Box(-np.inf, np.inf, (2,))}, "actions of mine have no limits"),
    "half": ({"action": Box(0.0, np.inf, (2,))}, "actions of mine have no limits"),
    "dict": ({"action": Dict({"a": NUMBER})}, "of a kind that no learner here has"),
    "integers": ({"action": Box(0, 9, (2,), np.int64)}, "of a kind that no learner here has"),
    "many": ({"action": MultiDiscrete([100, 100])}, "of a kind that no learner here has"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_space_without_a_spec_is_one_error(kind):
    settings, words = BAD[kind]
    with pytest.raises(InvalidSetting, match=words) as caught:
        of_spaces(**settings)
    assert "allowed:" in str(caught.value) or "do:" in str(caught.value)


@pytest.mark.parametrize("wrong", [np.zeros(3, np.float32), None, "x", {"a": 1}])
def test_an_observation_outside_its_space_is_one_error(wrong):
    environment = of_spaces()
    environment.unwrapped._sampled = lambda: wrong
    with pytest.raises(EnvironmentFailed, match=r"mine returned an observation that is not in its observation_space"):
        environment.reset(seed=0)


@pytest.mark.parametrize(("method", "found"), [("reset", np.zeros(2)), ("step", (np.zeros(2), 0.0, False, {}))])
def test_answers_of_the_package_gym_are_one_error(method, found):
    environment = of_spaces()
    environment.reset(seed=0)
    setattr(environment.unwrapped, method, lambda *_, **__: found)
    with pytest.raises(EnvironmentFailed, match=f"mine returned no {method}(.|\n)*rewritten for Gymnasium"):
        getattr(environment, method)(*([np.zeros(2)] if method == "step" else []))


@pytest.mark.parametrize(
    ("info", "success", "reason"),
    [({}, None, "terminated"), ({"is_success": np.True_}, True, "goal"), ({"is_success": 0.0}, False, "terminated")],
)
def test_success_is_what_the_source_tells(info, success, reason):
    environment = of_spaces(info=info)
    episode = rollout(environment, RandomPolicy(environment.environment_spec, 0), seed=1)
    assert (episode.success, episode.stop_reason) == (success, reason)
    outcome = robo_rl.evaluate(RandomPolicy(environment.environment_spec, 0), environment, 2)
    assert (outcome.success_rate is None) is (success is None)


def test_a_time_limit_is_known_and_truncates():
    environment = ForeignEnv(TimeLimit(Spaces(length=99), 4), "mine")
    assert environment.environment_spec.max_steps == 4
    episode = rollout(environment, RandomPolicy(environment.environment_spec, 0), seed=1)
    assert (len(episode), episode.truncated, episode.stop_reason) == (4, True, "time_limit")
    both = ForeignEnv(TimeLimit(Spaces(length=4), 4), "mine")
    episode = rollout(both, RandomPolicy(both.environment_spec, 0), seed=1)
    assert (episode.terminated, episode.truncated) == (True, False)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A stranger's folder with a package, in which a command is started."""
    package = tmp_path / "strangers_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    text = """
import gymnasium
from gymnasium.envs.classic_control import PendulumEnv
from gymnasium.wrappers import TimeLimit
import strangers_helper
class Mine(PendulumEnv):
    def __init__(self, g=10.0, render_mode=None):
        super().__init__(render_mode, g)
def short(steps=7, render_mode=None):
    return TimeLimit(Mine(render_mode=render_mode), steps)
def nothing():
    return 3
def broken():
    raise ZeroDivisionError("mine")
number = 4
gymnasium.register("Strangers-v0", entry_point="strangers_package.envs:Mine", max_episode_steps=9)
"""
    (package / "envs.py").write_text(text)
    (package / "training.py").write_text("import robo_rl\nrobo_rl.train('sac', environment='CartPole-v1')\n")
    (package / "torn.py").write_text("import strangers_missing\n")
    (tmp_path / "strangers_helper.py").write_text("")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in [name for name in gymnasium.registry if "Strangers" in name]:
        del gymnasium.registry[name]
    for name in [name for name in sys.modules if name.startswith(("strangers_", "ale_py"))]:
        del sys.modules[name]


def test_a_class_of_the_present_folder_is_an_environment(folder):
    before = list(sys.path)
    with pytest.warns(UnitsUnknown, match=r"strangers_package\.envs:Mine .* spec is derived .* no time limit"):
        made = make_environment("strangers_package.envs:Mine", g=3.0)
    assert made.unwrapped.g == 3.0 and sys.path == before
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_environment("strangers_package.envs:Mine")  # says it once


def test_functions_and_registered_names_are_environments(folder):
    with pytest.warns(UnitsUnknown) as said:
        limits = [
            specification(make_environment(name)).max_steps
            for name in ("strangers_package.envs:short", "strangers_package.envs:Strangers-v0", "CartPole-v1")
        ]
    assert limits == [7, 9, 500] and not any("time limit" in str(each.message) for each in said)


def test_one_with_units_is_named_in_the_place_of_a_plain_one():
    with pytest.warns(UnitsUnknown, match="gymnasium/Pusher-v5 is the same task with units"):
        make_environment("Pusher-v5").close()


WRONG = {
    "strangers_package.envs:Min": (UnknownName, "did you mean 'Mine'"),
    "strangers_package.env:Mine": (InvalidSetting, "No module named 'strangers_package.env'(.|\n)*modules are searched in"),
    "strangers_package.torn:Mine": (InvalidSetting, "No module named 'strangers_missing'(.|\n)*torn.py, line 1"),
    "strangers_package.envs:number": (InvalidSetting, "is no class and no function"),
    "strangers_package.envs:nothing": (InvalidSetting, "makes no environment(.|\n)*int"),
    "strangers_package.envs:broken": (EnvironmentFailed, "ZeroDivisionError: mine(.|\n)*envs.py, line 14"),
    "strangers_package.training:Mine": (InvalidSetting, "calls robo_rl.train"),
    "strangers_package.training:Strangers-v0": (InvalidSetting, "calls robo_rl.train(.|\n)*put the call below: if __name__"),
    "strangers_package.envs:<lambda>": (InvalidSetting, "known in that process alone"),
    "strangers_missing.envs:Mine-v0": (
        EnvironmentFailed,
        "no module strangers_missing in .*\n.*install the package that has it",
    ),
    "Pendulum": (UnknownName, "did you mean 'Pendulum-v1'"),
    "CartPole-v9": (UnknownName, "CartPole-v1"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_name_that_makes_nothing_is_one_error(folder, name):
    kind, words = WRONG[name]
    with pytest.raises(RoboRLError, match=words) as caught:
        make_environment(name)
    assert type(caught.value) is kind


ATARI = ("gym:ALE/Strangers-v5", "ALE/Strangers-v5", "StrangersNoFrameskip-v4", "gym:StrangersNoFrameskip-v4")


@pytest.mark.parametrize("name", ATARI)
def test_atari_games_are_found_as_people_type_them(folder, name):
    if find_spec("ale_py") is None:
        with pytest.raises(EnvironmentFailed, match=r"needs a package that is not installed(.|\n)*do: +pip install ale-py"):
            make_environment(name)
    registered = name.removeprefix("gym:")
    text = f"""
import gymnasium
gymnasium.register({registered!r}, entry_point="strangers_package.envs:Mine", max_episode_steps=9)
"""
    (folder / "ale_py.py").write_text(text)  # in the place of the package, which registers its games when it is imported
    invalidate_caches()
    with pytest.warns(UnitsUnknown):
        assert specification(make_environment(name)).max_steps == 9


def test_an_argument_that_it_lacks_is_one_error(folder):
    with pytest.raises(
        EnvironmentFailed,
        match=r"cannot be made(.|\n)*unexpected keyword argument 'length'\n +allowed: g=10.0, render_mode=None\n",
    ):
        make_environment("strangers_package.envs:Mine", length=3)


class OfTheOldGym(Spaces):
    def reset(self):
        return super().reset()


class Heavy(Spaces):
    def __init__(self, mass):
        super().__init__()


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (OfTheOldGym, r"write the reset of .*OfTheOldGym as reset\(self, \*, seed=None, options=None\)"),
        (Heavy, r"it was given no arguments; --environment.arguments.KEY VALUE gives one"),
    ],
)
@pytest.mark.filterwarnings("ignore::robo_rl.environments.foreign.UnitsUnknown")
def test_a_call_that_fails_names_none_of_our_files(kind, words):
    with pytest.raises(EnvironmentFailed, match=rf"do: +{words}") as caught:
        robo_rl.run_episode(make_environment(kind), lambda seen: [0.0, 0.0], seed=0)
    assert "robo_rl/" not in str(caught.value)


@pytest.mark.parametrize(
    ("action", "words"), [(0.5, "one number is np.array"), ([np.nan, 0.0], "look at the policy that returned it")]
)
@pytest.mark.filterwarnings("ignore::robo_rl.environments.foreign.UnitsUnknown")
def test_an_action_that_is_none_says_what_to_do(action, words):
    with pytest.raises(InvalidAction, match=f"do: .*{words}"):
        robo_rl.evaluate(lambda seen: action, Spaces, episodes=1)


def test_several_are_stepped_side_by_side(folder):
    with pytest.warns(UnitsUnknown):
        environments = make_vector_environment("strangers_package.envs:short", 3)
    observations, _ = environments.reset(seed=0)
    assert observations["observation"].shape == (3, 3)
    environments.close()


def test_a_class_has_the_name_by_which_it_is_imported(folder):
    assert name_of(Spaces)[0].endswith("test_own_environments:Spaces")
    assert name_of(functools.partial(Spaces, length=3))[1] == {"length": 3}
    with pytest.raises(InvalidSetting, match="makes no environment"):
        name_of(3)


def test_what_has_no_name_says_what_it_cannot_do():
    with pytest.warns(NotImportable, match="in another process `robo-rl resume`, `evaluate`"):
        name, _ = name_of(lambda: Spaces(length=3))
    with pytest.warns(UnitsUnknown):
        assert make_environment(name).unwrapped.length == 3  # in this process it is found


def test_an_instance_is_copied_as_it_is():
    mine = Spaces(length=3)
    with pytest.warns(NotImportable):
        name, arguments = name_of(mine)
    with pytest.warns(UnitsUnknown):
        made = [make_environment(name, **arguments).unwrapped for _ in range(2)]
    assert [each.length for each in made] == [3, 3] and len({*map(id, made), id(mine)}) == 3


def test_an_instance_of_gymnasium_is_made_by_its_id(folder):
    made = gymnasium.make("CartPole-v1", render_mode="rgb_array", max_episode_steps=7)
    assert name_of(made) == ("CartPole-v1", {"max_episode_steps": 7})
    with pytest.warns(UnitsUnknown):
        assert make_environment("gym:CartPole-v1").environment_spec.max_steps == 500


def test_an_instance_that_cannot_be_copied_says_what_to_give():
    mine = Spaces()
    mine.lock = sys.stdout
    with pytest.raises(InvalidSetting, match=r"cannot be copied(.|\n)*do: +environment=Spaces, or environment=lambda"):
        name_of(mine)


def test_an_id_of_a_module_names_the_module(folder):
    gymnasium.register("Own-v0", entry_point="strangers_package.envs:Mine")
    try:
        assert portable_id("Own-v0") == "strangers_package:Own-v0" and portable_id("CartPole-v1") == "CartPole-v1"
    finally:
        del gymnasium.registry["Own-v0"]
    with pytest.raises(UnknownName, match="my_module:MyEnv-v0 if the module registers"):
        make_environment("Own-v0")


def test_two_functions_without_names_are_two():
    with pytest.warns(NotImportable):
        names = [name_of(lambda length=length: Spaces(length=length))[0] for length in (2, 3)]
    assert len({*names}) == 2


def test_a_class_that_a_new_notebook_defines_again_is_found(monkeypatch):
    monkeypatch.setattr(sys.modules["__main__"], "Again", Spaces, raising=False)
    with pytest.warns(UnitsUnknown, match="__main__:Again"):
        assert isinstance(make_environment("__main__:Again").unwrapped, Spaces)


def test_a_name_of_another_process_says_what_to_do():
    for name in ("__main__:Mine", "lab:cell.<locals>.Mine"):
        with pytest.raises(InvalidSetting, match=r"known in that process alone(.|\n)*move it to a file such as mine.py"):
            make_environment(name)


def test_one_with_a_spec_needs_no_other():
    class Described(Spaces):
        environment_spec = of_spaces().environment_spec

    with pytest.warns(NotImportable):
        made = make_environment(Described)
    assert isinstance(made, Described)
