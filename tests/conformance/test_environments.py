"""Every environment keeps every rule. The default run takes a few of each family, `-m slow` takes all of them."""

import functools
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check
from stable_baselines3.common.env_checker import check_env as stable_baselines_check

from factories import axes, make_spec
from robo_rl.conformance.environments import ENVIRONMENT_CHECKS, check_environment
from robo_rl.entry_points import known
from robo_rl.environments.make import environment_names, make_environment, tasks_of
from robo_rl.errors import ConformanceFailure
from robo_rl.papers import papers
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec

SERVED = {"carla": "tests/sims/driving", "robot": "tests/real_robot", "world": "policies/robo_papers/world_models/tests"}
"""Family at a server or in a folder -> where its environments are checked."""
OF_PAPERS = [family for paper in papers().values() for family in paper.components.get("environments", {})]
FAMILIES = sorted({*known("environments")} - {*SERVED})
COSTLY = {"safety_gymnasium"}
"""Families whose resets build a model, a second each: `-m slow` takes them."""
REPRESENTATIVES = (
    "robo/ArmPick-v0",
    "gymnasium/HalfCheetah-v5",
    "gymnasium/Hopper-v5",
    "gymnasium/Humanoid-v5",
    "gymnasium/InvertedDoublePendulum-v5",
    "gymnasium/Pusher-v5",
    "dm_control/cheetah-run",
    "dm_control/cartpole-swingup",
    "dm_control/swimmer-swimmer6",
    "dm_control/manipulator-bring_ball",
    "metaworld/peg-insert-side-v3",
    "metaworld/pick-place-v3",
    "gymnasium_robotics/FetchReach-v4",
    "gymnasium_robotics/FetchPickAndPlace-v4",
    "gymnasium_robotics/AdroitHandDoorSparse-v1",
    "minigrid/MiniGrid-DoorKey-5x5-v0",
    "minigrid/MiniGrid-LavaGapS5-v0",
    "minigrid/BabyAI-GoToLocal-v0",
    *(task for family in OF_PAPERS if family not in COSTLY for task in [*tasks_of(family)][:3]),
)


def check_with_gymnasium_and_stable_baselines(make):
    """Both checkers advise by warnings (infinite limits, no limits of -1 to 1); what they require, they raise."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        gymnasium_check(make(), skip_render_check=True)
        stable_baselines_check(make(), warn=False)


def all_names():
    names = environment_names()
    return [name for name in names if name.partition("/")[0] in FAMILIES and name not in REPRESENTATIVES]


@pytest.mark.parametrize("check", [*ENVIRONMENT_CHECKS, check_with_gymnasium_and_stable_baselines], ids=lambda c: c.__name__)
@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_representative_keeps_the_rule(name, check):
    check(functools.partial(make_environment, name))


@pytest.mark.slow
@pytest.mark.parametrize("name", all_names())
def test_environment_keeps_every_rule(name):
    make = functools.partial(make_environment, name)
    check_environment(make)
    check_with_gymnasium_and_stable_baselines(make)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [{"action_repeat": 4, "reward": "sparse"}, {"action_repeat": 3}])
def test_metaworld_arguments_keep_every_rule(arguments):
    check_environment(functools.partial(make_environment, "metaworld/reach-v3", **arguments))


def test_families_are_all_found():
    found = {name.partition("/")[0] for name, problem in environment_names().items() if problem is None}
    assert found >= set(FAMILIES)


# A small environment that keeps all rules, and one broken variant for each: the suite must be able to fail.


class Counter(gymnasium.Env):
    """Counts its steps; position is a random walk."""

    environment_spec = make_spec(
        "test/Counter-v0",
        ArraySpec("position", (2,), low=-100.0, high=100.0, unit="m", frame="world"),
        action=axes("x", "y", limit=0.1, unit="m", mode="end_effector_delta", control_period=0.05),
        max_steps=20,
    )
    observation_space = environment_spec.observation.space
    action_space = environment_spec.action.space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position = self.np_random.uniform(-1.0, 1.0, 2)
        self.steps = 0
        return self.observe(), {}

    def observe(self):
        return {"position": self.position.astype(np.float32)}

    def step(self, action):
        self.position = self.position + self.environment_spec.action.to_physical(action)
        self.steps += 1
        truncated = self.steps == self.environment_spec.max_steps
        return self.observe(), -1.0, False, truncated, {"stop_reason": "time_limit"} if truncated else {}


def test_a_good_environment_passes():
    check_environment(Counter)


class OtherSpace(Counter):
    observation_space = gymnasium.spaces.Dict({"position": gymnasium.spaces.Box(-1, 1, (2,), np.float32)})


class ChangingSpec(Counter):
    made = 0

    def __init__(self):
        ChangingSpec.made += 1
        spec = Counter.environment_spec
        self.environment_spec = EnvironmentSpec(spec.name, spec.observation, spec.action, version=ChangingSpec.made)


class WrongType(Counter):
    def observe(self):
        return {"position": self.position}


class OutOfLimits(Counter):
    def observe(self):
        return {"position": np.full(2, 101.0, np.float32)}


class RemembersTheEpisodeBefore(Counter):
    position = np.zeros(2)

    def reset(self, *, seed=None, options=None):
        before = self.position
        super().reset(seed=seed)
        self.position = self.position + before
        return self.observe(), {}


class UnseededNoise(Counter):
    def step(self, action):
        observation, *rest = super().step(action)
        return {"position": observation["position"] + np.float32(np.random.default_rng().normal())}, *rest


class InfiniteReward(Counter):
    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, float("inf"), *rest


class SuccessIsNumber(Counter):
    def step(self, action):
        *rest, info = super().step(action)
        return *rest, info | {"success": 1.0}


class NeverEnds(Counter):
    def step(self, action):
        observation, reward, *_ = super().step(action)
        return observation, reward, False, False, {}


class EndsTwice(Counter):
    def step(self, action):
        observation, reward, _, truncated, info = super().step(action)
        return observation, reward, truncated, truncated, info


class SilentEnd(Counter):
    def step(self, action):
        observation, reward, terminated, truncated, _ = super().step(action)
        return observation, reward, terminated, truncated, {}


class LimitIsTerminal(Counter):
    def step(self, action):
        observation, reward, _, truncated, info = super().step(action)
        return observation, reward, truncated, False, info


class AcceptsAnything(Counter):
    def step(self, action):
        action = np.nan_to_num(np.resize(action, 2), posinf=1.0)
        return super().step(action)


class OneBuffer(Counter):
    buffer = None

    def filled(self, found):
        observation, *rest = found
        self.buffer = self.buffer or {"position": np.zeros(2, np.float32)}
        self.buffer["position"][:] = observation["position"]
        return self.buffer, *rest

    def reset(self, *, seed=None, options=None):
        return self.filled(super().reset(seed=seed))

    def step(self, action):
        return self.filled(super().step(action))


class SharedBuffer(Counter):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position = self.position.astype(np.float32)
        return {"position": self.position}, {}

    def step(self, action):
        self.position += self.environment_spec.action.to_physical(action).astype(np.float32)
        _, *rest = Counter.step(self, np.zeros(2, np.float32))
        self.position = self.position.astype(np.float32)
        return {"position": self.position}, *rest


class ClosesOnce(Counter):
    is_closed = False

    def close(self):
        assert not self.is_closed, "already closed"
        self.is_closed = True


class SimulatedState:
    def __init__(self):
        self.qvel = np.zeros(1)


class HidesDivergence(Counter):
    def __init__(self):
        self.data = SimulatedState()


class DivergesForEver(HidesDivergence):
    def step(self, action):
        before = self.observe()
        if np.isnan(self.data.qvel).any():
            return before, 0.0, False, True, {"stop_reason": "sim_diverged"}
        return super().step(action)

    def reset(self, *, seed=None, options=None):
        result = super().reset(seed=seed)
        if np.isnan(self.data.qvel).any():
            self.position = self.position + 1.0
            return self.observe(), {}
        return result


BROKEN = [
    (OtherSpace, "spaces derive from spec", "the observation space is not the spec's"),
    (ChangingSpec, "specs of two instances agree", "version: "),
    (WrongType, "observations match spec", "wrong shape or type"),
    (OutOfLimits, "observations match spec", "'position' leaves its limits"),
    (RemembersTheEpisodeBefore, "reset depends on seed alone", "seed 7 begins otherwise"),
    (UnseededNoise, "episode replays", "observations differ at step 1 of a replay"),
    (InfiniteReward, "rewards are finite numbers", "not a finite number"),
    (SuccessIsNumber, "info has right types", "info['success'] is no bool"),
    (NeverEnds, "episodes end for one reason", "goes on past max_steps"),
    (EndsTwice, "episodes end for one reason", "both terminated and truncated"),
    (SilentEnd, "episodes end for one reason", "stop_reason comes with the end"),
    (LimitIsTerminal, "episodes end for one reason", "a time limit is a truncation"),
    (AcceptsAnything, "wrong actions are refused", "a wrong action is accepted"),
    (SharedBuffer, "observations are not shared", "an observation is reused"),
    (OneBuffer, "arrays are fresh", "a later step writes into an observation"),
    (ClosesOnce, "closing twice is harmless", "already closed"),
    (HidesDivergence, "divergence ends the episode", "is not truncated"),
    (DivergesForEver, "divergence ends the episode", "does not recover"),
]


@pytest.mark.parametrize(("broken", "rule", "words"), BROKEN, ids=lambda value: getattr(value, "__name__", None))
def test_a_broken_environment_is_caught_by_its_rule(broken, rule, words):
    if broken is ClosesOnce:  # the environment's own error is clear enough, and is not hidden
        with pytest.raises(AssertionError, match=words):
            check_environment(broken)
        return
    with pytest.raises(ConformanceFailure) as caught:
        check_environment(broken)
    assert caught.value.rule == rule
    assert caught.value.subject == "test/Counter-v0"
    assert f"test/Counter-v0 breaks the rule '{rule}'" in str(caught.value)
    assert words in str(caught.value)
