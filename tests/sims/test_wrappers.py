"""What all wrapped families share: names, arguments, episode ends, pictures, and the parts of a flat vector."""

import functools
import importlib
import subprocess
import sys

import gymnasium
import numpy as np
import pytest

from factories import axes, make_spec
from robo_rl.environments.make import environment_names, make_environment
from robo_rl.errors import InvalidSetting, MissingExtra, UnknownName
from robo_rl.spec.environment import ArraySpec
from robo_sims.cameras import PLAIN, Cameras
from robo_sims.simulation import Simulation, SimulationEnvironment, SimulationStep, VectorLayout


class Script(Simulation):
    """A simulation that plays back what a test writes down."""

    mujoco = None

    def __init__(self, *steps, max_steps=None):
        self.steps = iter(steps)
        self.closed = 0
        self.spec = make_spec(
            "test/Script-v0",
            ArraySpec("x", (1,)),
            action=axes("push", limit=2.0, unit="N", mode="joint_torque", control_period=0.05),
            max_steps=max_steps,
        )

    def reset(self, seed):
        return {"x": np.zeros(1, np.float32)}

    def step(self, action):
        self.action = action
        step = next(self.steps)
        if isinstance(step, Exception):
            raise step
        return step

    def close(self):
        self.closed += 1


def step_of(x=1.0, reward=0.5, **details):
    return SimulationStep({"x": np.full(1, x, np.float32)}, reward, **details)


def play(*steps, **arguments):
    environment = SimulationEnvironment(Script(*steps, **arguments))
    environment.reset(seed=0)
    return environment


PUSH = np.ones(1, np.float32)


def test_actions_reach_the_simulation_in_physical_units():
    environment = play(step_of())
    environment.step(np.array([0.5], np.float32))
    assert environment._simulation.action == pytest.approx([1.0])


def test_ends_and_their_reasons():
    assert play(step_of(terminated=True)).step(PUSH)[2:] == (True, False, {"stop_reason": "failure"})
    assert play(step_of(terminated=True, success=True)).step(PUSH)[2:] == (
        True,
        False,
        {"success": True, "stop_reason": "goal"},
    )
    assert play(step_of(truncated=True)).step(PUSH)[2:] == (False, True, {"stop_reason": "time_limit"})
    assert play(step_of(), max_steps=1).step(PUSH)[2:] == (False, True, {"stop_reason": "time_limit"})
    assert play(step_of(terminated=True, truncated=True), max_steps=1).step(PUSH)[2:4] == (True, False)
    assert play(step_of(success=False, reward_terms={"a": 0.5})).step(PUSH)[2:] == (
        False,
        False,
        {"success": False, "reward_terms": {"a": 0.5}},
    )


@pytest.mark.parametrize("bad", [step_of(x=np.nan), step_of(reward=np.inf)], ids=["observation", "reward"])
def test_numbers_that_are_not_finite_end_the_episode(bad):
    environment = play(step_of(x=3.0), bad)
    environment.step(PUSH)
    observation, reward, terminated, truncated, info = environment.step(PUSH)
    assert (observation["x"], reward, terminated, truncated, info) == (3.0, 0.0, False, True, {"stop_reason": "sim_diverged"})


def test_an_error_without_divergence_is_not_hidden():
    with pytest.raises(ZeroDivisionError, match="in the simulator"):
        play(ZeroDivisionError("in the simulator")).step(PUSH)


def test_stepping_needs_an_episode_under_way():
    environment = play(step_of(terminated=True))
    environment.step(PUSH)
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset"):
        environment.step(PUSH)


def test_close_reaches_the_simulator_once():
    environment = play()
    environment.close()
    environment.close()
    assert environment._simulation.closed == 1


def test_vector_layout_splits_in_order_and_copies():
    layout = VectorLayout([ArraySpec("a", (2,)), ArraySpec("b", (1,)), ArraySpec("c", (2, 2))])
    vector = np.arange(7.0)
    parts = layout.split(vector)
    assert {name: value.tolist() for name, value in parts.items()} == {"a": [0, 1], "b": [2], "c": [[3, 4], [5, 6]]}
    vector[:] = -1
    assert parts["a"].tolist() == [0, 1]
    assert layout.size == 7


@pytest.mark.parametrize(
    ("got", "close"),
    [
        ("gymnasium/HalfCheeta-v5", "gymnasium/HalfCheetah-v5"),
        ("dm_control/cheetah-runs", "dm_control/cheetah-run"),
        ("metaworld/peg-insert-v3", "metaworld/peg-insert-side-v3"),
        ("gymnasium_robotics/FetchPick-v4", "gymnasium_robotics/FetchPush-v4"),
        ("minigrid/MiniGrid-DoorKey-5x5", "minigrid/MiniGrid-DoorKey-5x5-v0"),
    ],
)
def test_unknown_task_lists_close_matches(got, close):
    with pytest.raises(UnknownName, match=f"Unknown environment '{got}'") as caught:
        make_environment(got)
    assert close in caught.value.close
    assert f"did you mean '{caught.value.close[0]}'" in str(caught.value)


def test_minigrid_lists_the_newest_version_only():
    names = [name.removeprefix("minigrid/") for name in environment_names() if name.startswith("minigrid/")]
    assert "MiniGrid-MultiRoom-N4-S5-v1" in names
    assert "MiniGrid-MultiRoom-N4-S5-v0" not in names
    assert len({name.rpartition("-v")[0] for name in names}) == len(names)


@pytest.mark.parametrize("name", ["metaworld/reach-v3", "robo/ArmReach-v0"])
def test_unknown_argument_lists_what_exists(name):
    with pytest.raises(UnknownName, match=f"Unknown argument of {name} 'action_repeats'") as caught:
        make_environment(name, action_repeats=2)
    assert caught.value.close == ["action_repeat"]


@pytest.mark.parametrize("name", ["gymnasium/HalfCheetah-v5", "robo/ArmReach-v0"])
def test_a_render_mode_that_does_not_exist_is_refused(name):
    with pytest.raises(InvalidSetting, match=r"Unknown render_mode.\n  got:     'human'\n  allowed: .*rgb_array"):
        make_environment(name, render_mode="human")


@pytest.mark.parametrize(
    ("package", "module", "extra"),
    [
        ("metaworld", "robo_sims.metaworld_tasks", "metaworld"),
        ("gymnasium_robotics", "robo_sims.gymnasium_robotics_tasks", "gymnasium-robotics"),
    ],
)
def test_missing_package_names_the_extra(monkeypatch, package, module, extra):
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(MissingExtra) as caught:
        importlib.import_module(module)
    assert "which is not installed" in str(caught.value)
    assert f'do:      pip install "robo-rl[{extra}]"' in str(caught.value)


PICTURED = [
    "gymnasium/HalfCheetah-v5",
    "dm_control/cheetah-run",
    "dm_control/manipulation-reach_site_features",
    "metaworld/reach-v3",
    "gymnasium_robotics/FetchReach-v4",
    "minigrid/MiniGrid-Empty-5x5-v0",
    "safety_gymnasium/SafetyCarGoal1-v0",
]


@pytest.mark.slow
@pytest.mark.parametrize("name", PICTURED)
def test_render_returns_a_picture(name):
    make = functools.partial(make_environment, name)
    with make(render_mode="rgb_array") as environment:
        environment.reset(seed=0)
        picture = environment.render()
        assert picture.dtype == np.uint8
        assert picture.ndim == 3
        assert picture.shape[2] == 3
        assert picture.std() > 5, "the picture is one colour"
    with make() as environment:
        environment.reset(seed=0)
        assert environment.render() is None


@pytest.mark.slow
@pytest.mark.parametrize(("camera", "turns"), [("corner2", 2), ("behindGripper", 0)])
def test_metaworld_pictures_are_upright_and_not_mirrored(camera, turns):
    with make_environment("metaworld/reach-v3", camera=camera, render_mode="rgb_array") as environment:
        environment.reset(seed=0)
        picture = environment.render().astype(float)
        cameras = Cameras(height=picture.shape[0], width=picture.shape[1], detail=PLAIN)
        expected = np.rot90(cameras.picture(environment.unwrapped.data, camera), turns).astype(float)
        cameras.close()
    difference = np.abs(picture - expected).mean()
    assert difference < 0.3 * min(np.abs(picture - expected[::-1]).mean(), np.abs(picture - expected[:, ::-1]).mean())


QUIET_EXIT = """
import robo_rl.environments.make as make
environment = make.make_environment("dm_control/cartpole-swingup", render_mode="rgb_array")
environment.reset(seed=0)
environment.render()
environment.close()
"""


@pytest.mark.slow
def test_nothing_is_printed_at_exit_after_rendering():
    done = subprocess.run([sys.executable, "-c", QUIET_EXIT], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


IMPORT_QUIETLY = """
import robo_rl.environments.make as make
assert "minigrid/BabyAI-BossLevel-v0" in make.environment_names()
make.make_environment("minigrid/BabyAI-BossLevel-v0").reset(seed=0)
"""


@pytest.mark.slow
def test_nothing_is_printed_by_listing_and_making():
    done = subprocess.run([sys.executable, "-c", IMPORT_QUIETLY], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
