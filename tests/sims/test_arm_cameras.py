"""Pictures of the arm tasks, drawn without a display."""

import subprocess
import sys

import mujoco
import numpy as np
import pytest

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


def test_looking_does_not_change_what_happens(env):
    blind = ArmEnv("ArmPick-v0")
    env.reset(seed=4)
    blind.reset(seed=4)
    for _ in range(10):
        env.render()
        seen, unseen = env.step(STILL + 0.5)[0], blind.step(STILL + 0.5)[0]
    assert all(np.array_equal(seen[name], unseen[name]) for name in unseen)


def test_closing_twice_and_drawing_again(env):
    env.reset(seed=0)
    before = env.render()
    env.close()
    env.close()
    assert np.array_equal(before, env.render())


def test_a_process_that_forgets_to_close_ends_without_a_word():
    code = (
        "import robo_sims; from robo_sims.arm.environment import ArmEnv\n"
        "env = ArmEnv('ArmPick-v0', cameras=('front',), render_mode='rgb_array'); env.reset(seed=0); env.render()"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_back_end_that_cannot_draw_says_what_to_install(env, monkeypatch):
    def broken(*arguments):
        raise AttributeError("'NoneType' object has no attribute 'eglQueryString'")

    monkeypatch.setattr(mujoco, "Renderer", broken)
    with pytest.raises(RenderingUnavailable, match=r"eglQueryString(.|\n)*egl or osmesa(.|\n)*apt-get install -y libegl1"):
        env.reset(seed=0)


def test_probe_tells_a_working_back_end_from_a_broken_one():
    backend = rendering.choose_backend()
    assert backend in rendering.BACKENDS
    assert rendering.probe("no-such-back-end")


def test_choose_backend_lists_every_failure(monkeypatch):
    monkeypatch.setattr(rendering, "probe", lambda backend: f"{backend} is broken")
    with pytest.raises(RenderingUnavailable, match=r"egl: egl is broken; osmesa: osmesa is broken(.|\n)*as root: apt-get"):
        rendering.choose_backend()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [({}, "osmesa"), ({"MUJOCO_GL": "glfw"}, "glfw"), ({"DISPLAY": ":0"}, None), ({"WAYLAND_DISPLAY": "w"}, None)],
)
def test_headless_choice_respects_displays_and_settings(monkeypatch, environment, expected):
    for name in ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(rendering, "_is_loadable", lambda library: "OSMesa" in library)
    monkeypatch.setattr(rendering.sys, "platform", "linux")
    rendering.prefer_headless()
    assert rendering.os.environ.get("MUJOCO_GL") == expected
