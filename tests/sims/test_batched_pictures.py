"""Cameras of a batch show what those of single environments show, to the bit, wherever an episode stands."""

import contextlib

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from robo_rl.conformance.vector import (
    VECTOR_CHECKS,
    Subject,
    compare,
    divergence_stays_with_its_environment,
    everything_equals_the_singles,
    observations_are_not_shared,
)
from robo_rl.environments.make import make_environment, make_vector_environment
from robo_rl.errors import ConformanceFailure, InvalidSetting, RoboRLError, UnknownName
from robo_sims import cameras
from robo_sims.batched.environment import BatchedEnvironment
from robo_sims.batched.pictures import LatestPictures

SMALL = {"image_size": 16}
ARM = Subject("robo/ArmPick-v0", {"cameras": ["front", "wrist"], "action_repeat": 2, "max_steps": 5, **SMALL})
CHEETAH = Subject("gymnasium/HalfCheetah-v5", {"cameras": ["track"], **SMALL})
HOPPER = Subject("gymnasium/Hopper-v5", {"cameras": ["track"], **SMALL})
TARGETS = Subject("dm_control/reacher-hard", {"cameras": ["fixed"], **SMALL})  # drawn into the model at every reset
TERRAIN = Subject("dm_control/quadruped-escape", {"cameras": ["x"], **SMALL})


@pytest.mark.slow
@pytest.mark.parametrize("check", VECTOR_CHECKS, ids=lambda check: check.__name__)
def test_pictures_keep_every_rule(check):
    check(ARM)


def follow_the_singles(subject, mode, steps):
    """Returns the number of episodes that ended."""
    with subject.vector(mode) as vector, subject.singles(mode) as singles:
        assert isinstance(vector, BatchedEnvironment)
        return compare(subject, "pictures", vector, singles, subject.actions(steps))


@pytest.mark.parametrize("mode", AutoresetMode, ids=lambda mode: mode.value)
@pytest.mark.slow
def test_pictures_equal_single_ones_across_uneven_episodes(mode):
    assert follow_the_singles(HOPPER, mode, 40) == 2


@pytest.mark.parametrize("subject", [TARGETS, pytest.param(TERRAIN, marks=pytest.mark.slow)], ids=lambda it: it.name)
def test_environments_with_models_of_their_own_show_their_own(subject):
    follow_the_singles(subject, AutoresetMode.NEXT_STEP, 3)


@pytest.mark.slow
def test_diverged_simulation_shows_last_picture_when_restored():
    action = CHEETAH.actions(1)[0]
    with CHEETAH.vector() as vector, CHEETAH.vector() as other:
        before = vector.reset(seed=0)[0]["camera_track"]
        other.load_state_dict(vector.state_dict())
        for batch in (vector, other):
            batch.datas[1].qvel[-1] = np.nan
            after = batch.step(action)[0]["camera_track"]
            np.testing.assert_array_equal(after[1], before[1])
            assert not np.array_equal(after[0], before[0])


def test_a_state_of_other_cameras_is_refused():
    other = Subject(CHEETAH.name, {**CHEETAH.arguments, "image_size": 8})
    with CHEETAH.vector() as vector, other.vector() as small:
        state = vector.state_dict()
        with pytest.raises(InvalidSetting, match="The state is of other pictures") as caught:
            small.load_state_dict(state)
        assert "{'camera_track': (3, 16, 16, 3)}" in str(caught.value)
        with pytest.raises(InvalidSetting, match=r"got:     \{\}"):
            vector.load_state_dict(state | {"pictures": {}})


@pytest.mark.slow
def test_a_batch_draws_with_one_context():
    with ARM.vector(render_mode="rgb_array") as vector:
        before = set(cameras._STAGES)
        vector.reset(seed=0)
        assert len(set(cameras._STAGES) - before) == 1, "one for observations,"
        vector.render()
        assert len(set(cameras._STAGES) - before) == 2, "one for people"
    assert not set(cameras._STAGES) - before


def draws_one_for_all(monkeypatch):
    draw = cameras.Cameras.draw
    monkeypatch.setattr(cameras.Cameras, "draw", lambda self, datas, *rest: draw(self, [datas[0]] * len(datas), *rest))


def draws_the_diverged(monkeypatch):
    draw = LatestPictures.draw
    monkeypatch.setattr(LatestPictures, "draw", lambda self, where: draw(self, np.ones_like(where)))


def hands_out_its_own(monkeypatch):
    monkeypatch.setattr(LatestPictures, "copy", lambda self: self._pictures)


@pytest.mark.parametrize(
    ("spoil", "check", "words"),
    [
        (draws_one_for_all, everything_equals_the_singles, "after the reset(.|\\n)*camera_track"),
        (draws_the_diverged, divergence_stays_with_its_environment, "at the divergence(.|\\n)*camera_track"),
        (hands_out_its_own, observations_are_not_shared, "a later step writes into an earlier observation"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_wrong_pictures_are_caught(monkeypatch, spoil, check, words):
    spoil(monkeypatch)
    with pytest.raises(ConformanceFailure, match=words):
        check(CHEETAH)


@pytest.mark.slow
def test_pictures_of_a_finished_episode_are_caught(monkeypatch):
    draw = LatestPictures.draw
    monkeypatch.setattr(LatestPictures, "draw", lambda self, where: draw(self, where) if where.all() else None)
    with pytest.raises(ConformanceFailure, match="0/camera_track"):
        follow_the_singles(HOPPER, AutoresetMode.SAME_STEP, 40)


@pytest.mark.parametrize(
    "name", ["gymnasium/Ant-v5", "gymnasium/InvertedPendulum-v5", "robo/ArmPush-v0", "dm_control/cheetah-run"]
)
@pytest.mark.slow
def test_render_returns_a_picture_of_each_environment(name):
    subject = Subject(name, {"render_mode": "rgb_array", "detail": "sensor"})
    with subject.vector() as vector, subject.singles() as singles:
        assert vector.render_mode == "rgb_array" and "rgb_array" in vector.metadata["render_modes"]
        assert vector.metadata["render_fps"] == pytest.approx(singles.metadata["render_fps"], abs=0.5)
        for both in (vector, singles):
            both.reset(seed=0)
            both.step(subject.actions(1)[0])
        ours, expected = vector.render(), singles.render()
        assert isinstance(ours, tuple)
        np.testing.assert_array_equal(np.stack(ours), np.stack(expected))
    with contextlib.closing(make_vector_environment(name, 1)) as vector:
        vector.reset()
        assert vector.render() is None


def test_make_vec_passes_cameras_on():
    with contextlib.closing(
        gymnasium.make_vec(
            "robo/ArmReach-v0", 2, "vector_entry_point", cameras=["wrist"], image_size=8, render_mode="rgb_array"
        )
    ) as vector:
        assert vector.reset(seed=0)[0]["camera_wrist"].shape == (2, 8, 8, 3)
        assert [picture.shape for picture in vector.render()] == [(480, 640, 3)] * 2


@pytest.mark.parametrize("name", ["gymnasium/HalfCheetah-v5", "robo/ArmPick-v0", "dm_control/cheetah-run"])
@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"cameras": ["trak"]}, UnknownName, "Unknown camera 'trak'."),
        ({"cameras": "front"}, InvalidSetting, "cameras must be a list."),
        ({"image_size": 100_000}, InvalidSetting, "image_size is out of range."),
        ({"cameras": [], "image_size": 4.0}, InvalidSetting, "image_size is out of range."),
        ({"detail": "prety"}, UnknownName, "Unknown detail of pictures 'prety'."),
        ({"camera": ["front"]}, UnknownName, "Unknown argument of"),
    ],
)
def test_wrong_settings_give_the_single_environments_errors(name, arguments, kind, words):
    messages = []
    for make in (make_environment, lambda name, **settings: make_vector_environment(name, 2, **settings)):
        with pytest.raises(RoboRLError) as caught:
            make(name, **arguments)
        assert type(caught.value) is kind
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert messages[0].startswith(words)


def test_a_batch_records_no_film_of_single_control_steps():
    words = "Unknown render_mode.\n  got:     'rgb_array_list'\n  allowed: (None, 'rgb_array')"
    with pytest.raises(InvalidSetting) as caught:
        make_vector_environment("robo/ArmPick-v0", 2, render_mode="rgb_array_list")
    assert str(caught.value).startswith(words)
