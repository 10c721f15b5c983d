"""Pictures of the arm tasks, drawn without a display."""

import ctypes
import os
import subprocess
import sys

import gymnasium
import mujoco
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check

from robo_rl.errors import RenderingUnavailable
from robo_sims import rendering
from robo_sims.arm.environment import ArmEnv

STILL = np.zeros(5, np.float32)


@pytest.fixture
def env():
    env = ArmEnv("ArmPick-v0", cameras=("front", "wrist"), image_size=64, render_mode="rgb_array")
    yield env
    env.close()


def test_pictures_come_only_on_request():
    assert not [name for name in ArmEnv("ArmPick-v0").environment_spec.observation if name.startswith("camera")]
    assert ArmEnv("ArmPick-v0").render() is None


def test_pictures_are_in_the_observation_and_differ(env):
    observation, _ = env.reset(seed=0)
    env.environment_spec.observation.validate(observation)
    assert [array.role for array in env.environment_spec.observation.arrays][-2:] == ["image", "image"]
    front, wrist = observation["camera_front"], observation["camera_wrist"]
    assert front.shape == wrist.shape == (64, 64, 3)
    assert front.std() > 10 and not np.array_equal(front, wrist)


@pytest.mark.slow
def test_the_scene_is_light_and_the_cube_is_seen_red(env):
    env.reset(seed=0)
    picture = env.render().astype(int)
    assert picture.shape == (480, 640, 3)
    assert 140 < picture.mean() < 235
    red = (picture[..., 0] > 150) & (picture[..., 1] < 100) & (picture[..., 2] < 100)
    assert red.sum() > 100


def test_pictures_follow_the_motion_and_repeat(env):
    first = env.reset(seed=0)[0]["camera_front"].copy()
    for _ in range(5):
        moved = env.step(STILL + 1)[0]["camera_front"]
    assert not np.array_equal(first, moved)
    assert np.array_equal(first, env.reset(seed=0)[0]["camera_front"])


@pytest.mark.slow
def test_looking_does_not_change_what_happens(env):
    blind = ArmEnv("ArmPick-v0")
    env.reset(seed=4)
    blind.reset(seed=4)
    for _ in range(10):
        env.render()
        seen, unseen = env.step(STILL + 0.5)[0], blind.step(STILL + 0.5)[0]
    assert all(np.array_equal(seen[name], unseen[name]) for name in unseen)


@pytest.mark.slow
def test_a_list_has_each_control_step_since_the_call_before():
    env = ArmEnv("ArmPick-v0", action_repeat=3, render_mode="rgb_array_list")
    env.reset(seed=4)
    env.step(STILL)
    env.reset(seed=4)
    (start,) = env.render()
    first, second = env.step(STILL + 0.5)[0], env.step(STILL + 0.5)[0]
    assert first is not second
    frames = env.render()
    assert len(frames) == 6 and env.render() == []
    assert all(not np.array_equal(one, other) for one, other in zip([start, *frames], frames, strict=False))
    env.close()


@pytest.mark.slow
def test_list_holds_lazy_pictures_until_episode_end():
    listing, single = (ArmEnv("ArmPick-v0", action_repeat=3, render_mode=mode) for mode in ("rgb_array_list", "rgb_array"))
    steps = []
    for env in (listing, single):
        env.reset(seed=4)
        steps.append([env.step(STILL + 0.5) for _ in range(3)])
    assert np.array_equal(listing.render()[-1], single.render())
    for drawn, undrawn in zip(*steps, strict=True):
        assert all(np.array_equal(drawn[0][name], undrawn[0][name]) for name in drawn[0])
        assert drawn[1:] == undrawn[1:]
    listing.physics.data.qvel[3] = np.nan
    assert listing.step(STILL)[4]["stop_reason"] == "sim_diverged"
    assert listing.render() == []  # there is nothing to see in a state that is not a number
    listing.close()
    single.close()


@pytest.mark.parametrize(("render_mode", "rate"), [("rgb_array_list", 20.0), ("rgb_array", 20.0 / 3)])
def test_video_lasts_as_long_as_its_episode(render_mode, rate):
    assert ArmEnv("ArmPick-v0", action_repeat=3, render_mode=render_mode).metadata["render_fps"] == pytest.approx(rate)
    assert ArmEnv.metadata["render_fps"] == 20.0


@pytest.mark.filterwarnings("ignore:.*Box observation space m.*imum value is -?infinity:UserWarning")  # true: m and rad/s
def test_gymnasium_is_content_with_every_render_mode():
    env = gymnasium.make("robo/ArmReach-v0", render_mode="rgb_array")
    gymnasium_check(env.unwrapped)  # makes the environment once more with each mode
    env.close()


@pytest.mark.slow
def test_closing_twice_and_drawing_again(env):
    env.reset(seed=0)
    before = env.render()
    env.close()
    env.close()
    assert np.array_equal(before, env.render())


@pytest.mark.slow
@pytest.mark.parametrize("before", ["", "import weakref; weakref.finalize(type, str); "], ids=["alone", "after_others"])
def test_a_process_that_forgets_to_close_ends_without_a_word(before):
    code = (
        f"{before}import robo_sims; from robo_sims.arm.environment import ArmEnv\n"
        "env = ArmEnv('ArmPick-v0', cameras=('front',), render_mode='rgb_array'); env.reset(seed=0); env.render()"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_back_end_that_cannot_draw_says_what_to_install(env, monkeypatch):
    def broken(*arguments):
        raise AttributeError("'NoneType' object has no attribute 'eglQueryString'")

    monkeypatch.setattr(mujoco, "GLContext", broken)
    with pytest.raises(RenderingUnavailable, match=r"eglQueryString(.|\n)*egl or osmesa(.|\n)*apt-get install -y libegl1"):
        env.reset(seed=0)


def test_ctrl_c_while_a_context_opens_interrupts(env, monkeypatch):
    def interrupted(*arguments):
        raise ctypes.ArgumentError("argument 3: KeyboardInterrupt: ")  # as ctypes reports it

    monkeypatch.setattr(mujoco, "GLContext", interrupted)
    with pytest.raises(KeyboardInterrupt):
        env.reset(seed=0)


@pytest.mark.slow
def test_probe_tells_a_working_back_end_from_a_broken_one():
    backend = rendering.choose_backend()
    assert backend in rendering.BACKENDS
    assert rendering.probe("no-such-back-end")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["robo/ArmReach-v0", "gymnasium/HalfCheetah-v5", ""])
def test_unusable_renderer_is_one_error(name):
    """The list of environments needs no MuJoCo, a description of one does."""
    environment = {**os.environ, "MUJOCO_GL": "non\x1bsense"}
    words = [sys.executable, "-m", "robo_cli.main", "envs", *filter(None, [name])]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert "Traceback" not in said and "\x1b" not in said
    assert (r"MUJOCO_GL=non\x1bsense: no back end of that name" in said) == bool(name)
    assert done.returncode == (1 if name else 0)
