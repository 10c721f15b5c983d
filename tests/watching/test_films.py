"""Films of the newest episodes: what a training keeps of them, and what another process draws from it."""

import json
import os
import time
import tracemalloc
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace

import cv2
import numpy as np
import pytest

from factories import axes, make_episode, make_spec, picture_spec
from robo_app.watching import filming
from robo_app.watching import films as films_module
from robo_app.watching.filming import ORANGE, film_newest
from robo_app.watching.filming import main as film_main
from robo_app.watching.films import Films
from robo_app.watching.watched_run import WatchedRun
from robo_rl.environments.make import make_environment
from robo_rl.errors import RenderingUnavailable
from robo_rl.evaluation.video import read_frames
from robo_rl.rollout.episode import RandomPolicy, rollout
from robo_rl.runs import observer
from robo_rl.runs.newest_episode import MOST_PICTURES, NewestEpisode, newest_file
from robo_rl.runs.observer import Cadence, RunRecord
from robo_rl.runs.run import Run
from robo_rl.spec.environment import specification
from robo_rl.stopwatch import Stopwatch
from robo_rl.types import ActionSource

NAME, ARGUMENTS = "robo/ArmReach-v0", {"action_repeat": 4}


@pytest.fixture(scope="module")
def reach():
    environment = make_environment(NAME, **ARGUMENTS)
    yield environment, rollout(environment, RandomPolicy(specification(environment), 0), seed=7)
    environment.close()


def run_of(root, spec, name=NAME, arguments=ARGUMENTS):
    recipe = {"name": "reach", "environment": {"name": name, "arguments": arguments}, "steps": 10}
    return Run.create(root, recipe_name="reach", seed=0, recipe=json.dumps(recipe), spec=spec)


def camera_episode(steps, size=16):
    pictures = np.zeros((steps + 1, size, size, 3), np.uint8)
    pictures[..., 2] = np.linspace(0, 255, steps + 1, dtype=np.uint8)[:, None, None]
    sources = np.full(steps, ActionSource.POLICY, np.int8)
    sources[steps // 2 :] = ActionSource.HUMAN
    observations = {
        "camera_front": pictures,
        "camera_wrist": pictures[:, : size // 2, : size // 2],
        "state": np.zeros((steps + 1, 2)),
    }
    return make_episode(observations, sources=sources, seed=None)


def test_simulated_episode_is_kept_without_pictures(tmp_path, reach):
    environment, episode = reach
    run = run_of(tmp_path, specification(environment))
    newest = NewestEpisode.of(episode, kind="training", step=5, replays=True)
    newest.write(run.path)
    found = NewestEpisode.read(newest_file(run.path, "training"))
    np.testing.assert_array_equal(found.actions, episode.actions)
    assert replace(found, actions=0, sources=0) == replace(newest, actions=0, sources=0) and not found.pictures
    assert newest_file(run.path, "training").stat().st_size < 10_000


@pytest.mark.slow
def test_film_repeats_the_episode_of_the_training(tmp_path, reach):
    """The last picture is that of the episode's end, drawn here by other means."""
    environment, episode = reach
    run = run_of(tmp_path, specification(environment))
    NewestEpisode.of(episode, kind="evaluation", step=5, replays=True).write(run.path)
    film_newest(run, newest_file(run.path, "evaluation"), tmp_path / "a.mp4")
    (last,) = read_frames(tmp_path / "a.mp4", [1.0])
    with closing(make_environment(NAME, **ARGUMENTS, render_mode="rgb_array")) as stage:
        stage.reset(seed=episode.seed)
        for action in episode.actions:
            stage.step(action)
        wanted = stage.render()
    assert np.abs(last.astype(int) - wanted[: last.shape[0], : last.shape[1]]).mean() < 4


def test_robot_episode_is_kept_as_pictures(tmp_path):
    spec = make_spec("robot/Real", picture_spec(), action=axes("x", "y", control_period=0.05))
    run = run_of(tmp_path, spec, name="robot:http://127.0.0.1:1")
    NewestEpisode.of(camera_episode(20), kind="training", step=5, replays=False).write(run.path)
    film_newest(run, newest_file(run.path, "training"), tmp_path / "a.mp4")
    first, last = read_frames(tmp_path / "a.mp4", [0.0, 1.0])
    assert first.shape == (16, 32, 3) and last.mean() > first.mean() + 20
    assert np.abs(last[1, 1].astype(int) - ORANGE).max() < 60  # a person acts
    assert np.abs(first[1, 1].astype(int)).max() < 60


def test_long_robot_episode_is_thinned(tmp_path):
    newest = NewestEpisode.of(camera_episode(3 * MOST_PICTURES, 8), kind="training", step=5, replays=False)
    assert newest.stride == 3 and len(newest.pictures["camera_front"]) == MOST_PICTURES + 1


def test_robot_without_camera_is_never_moved_for_a_film(tmp_path, capsys):
    spec = make_spec("robot/Real", action=axes("x", "y"))
    run = run_of(tmp_path, spec, name="robot:http://127.0.0.1:1")
    episode = make_episode({"state": np.zeros((4, 2))})
    NewestEpisode.of(episode, kind="training", step=5, replays=False).write(run.path)
    assert film_main(str(run.path), str(newest_file(run.path, "training")), str(tmp_path / "a.mp4")) == 1
    assert "does not repeat an episode, and has no camera" in capsys.readouterr().out


def test_server_of_a_training_is_not_taken(tmp_path, capsys, monkeypatch):
    from robo_app.watching import filming

    closed = []
    stage = SimpleNamespace(metadata={"takes_server": True}, close=lambda: closed.append(1), reset=pytest.fail)
    monkeypatch.setattr(filming, "make_environment", lambda *_, **__: stage)
    run = run_of(tmp_path, make_spec("carla/Route", action=axes("x", "y")), name="carla/Route-v0", arguments={})
    NewestEpisode.of(make_episode({"state": np.zeros((4, 2))}), kind="training", step=5, replays=True).write(run.path)
    assert film_main(str(run.path), str(newest_file(run.path, "training")), str(tmp_path / "a.mp4")) == 1
    assert "take the server" in capsys.readouterr().out and closed


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04", None])
def test_damaged_episode_is_none(tmp_path, reach, damage):
    run = run_of(tmp_path, specification(reach[0]))
    NewestEpisode.of(reach[1], kind="training", step=5, replays=True).write(run.path)
    file = newest_file(run.path, "training")
    file.write_bytes(file.read_bytes()[:-200] if damage is None else damage)
    assert NewestEpisode.read(file) is None and NewestEpisode.read(tmp_path / "none") is None


def packed(path, **arrays):
    """Writes an episode as a stranger would."""
    facts = {"kind": "training", "step": 1, "seed": None, "episode_return": 0.0, "success": None, "stop_reason": "goal"}
    facts |= {"replays": False, "stride": 1, "cameras": ["front"]}
    own = {"facts": np.frombuffer(json.dumps(facts).encode(), np.uint8)}
    own |= {"actions": np.zeros((2, 1)), "sources": np.zeros(2, np.int8)}
    np.savez_compressed(path, **(own | {"pictures0": np.zeros(4, np.uint8), "sizes0": np.asarray([2, 2])} | arrays))
    if "actions" not in arrays:  # stored, as ours
        found = dict(np.load(path))
        np.savez(path, **found)


BOMBS = {
    "packed zeros": {"actions": np.zeros((50_000_000, 1), np.int8)},
    "parts that overlap": {"pictures0": np.zeros(1_000_000, np.uint8), "sizes0": np.tile([1_000_000, -1_000_000], 50)},
}


@pytest.mark.parametrize("arrays", BOMBS.values(), ids=BOMBS)
def test_no_episode_takes_more_memory_than_its_file(tmp_path, arrays):
    packed(tmp_path / "bomb.npz", **arrays)
    tracemalloc.start()
    assert NewestEpisode.read(tmp_path / "bomb.npz") is None
    assert tracemalloc.get_traced_memory()[1] < 8_000_000
    tracemalloc.stop()


def test_a_stored_episode_of_another_program_is_read(tmp_path):
    packed(tmp_path / "plain.npz")
    assert NewestEpisode.read(tmp_path / "plain.npz").pictures == {"front": [bytes(2), bytes(2)]}


def test_a_pipe_in_place_of_an_episode(tmp_path):
    os.mkfifo(tmp_path / "pipe.npz")
    assert NewestEpisode.read(tmp_path / "pipe.npz") is None


def test_a_picture_that_declares_a_huge_size_is_not_decoded(monkeypatch):
    _, coded = cv2.imencode(".jpg", np.zeros((8, 8, 3), np.uint8))
    hostile = bytearray(coded.tobytes())
    place = hostile.index(b"\xff\xc0") + 5
    hostile[place : place + 4] = (20_000).to_bytes(2, "big") * 2
    monkeypatch.setattr(cv2, "imdecode", pytest.fail)
    with pytest.raises(RenderingUnavailable, match=r"(?s)damaged.*20000"):
        filming._decoded(bytes(hostile))


def test_record_keeps_episodes_now_and_then(tmp_path, reach, monkeypatch):
    environment, episode = reach
    training = SimpleNamespace(policy=None, stopwatch=Stopwatch(), replays=True)
    display = SimpleNamespace(update=lambda *_: None)
    with (
        run_of(tmp_path, specification(environment)) as run,
        closing(RunRecord(run, Cadence(1, 0, 0), None, display)) as record,
    ):
        for step in (1, 2):
            facts = {"length": len(episode), "success": None, "stop_reason": "time_limit", "episode": episode}
            record.on_episode(step, episode_return=float(step), **facts)
            record.on_step(step, training)
        assert NewestEpisode.read(newest_file(run.path, "training")).step == 1  # the second one was too soon
        monkeypatch.setattr(observer, "KEEP_PERIOD", 0.0)
        record.on_episode(3, episode_return=3.0, **facts)
        record.on_step(3, training)
        assert NewestEpisode.read(newest_file(run.path, "training")).step == 3
        sums = {name: float(values.sum()) for name, values in episode.reward_terms.items()}
        assert sums and all(run.metrics()[-1][f"terms/{name}"] == pytest.approx(value) for name, value in sums.items())
        with closing(RunRecord(run, Cadence(1, 0, 0), None, display, 3)) as again:
            again.load_state_dict(record.state_dict())
        assert again.state_dict()["terms"] == record.state_dict()["terms"]


def until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.slow
def test_films_are_drawn_in_turn_and_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr(films_module, "REST", 0.0)
    spec = make_spec("robot/Real", picture_spec(), action=axes("x", "y", control_period=0.05))
    run = run_of(tmp_path, spec)
    seen = WatchedRun(run.path).look()
    with closing(Films()) as films:
        assert films.of(seen, 1) == []
        NewestEpisode.of(camera_episode(8), kind="evaluation", step=500, replays=False).write(run.path)
        assert [film.note for film in films.of(seen, 1)] == ["is being drawn"]
        films.draw_waiting()
        (first,) = films.of(seen, 1)
        assert first.path.stat().st_size > 100 and "newest evaluation · step 500 · 8 steps" in first.caption
        assert films.of(seen, 1) == [first]
        NewestEpisode.of(camera_episode(8), kind="evaluation", step=900, replays=False).write(run.path)
        assert films.of(seen, 1) == [first]  # shown until the next one is there
        films.draw_waiting()
        (second,) = films.of(seen, 1)
        assert "step 900" in second.caption
        until(lambda: not first.path.exists())
        newest_file(run.path, "evaluation").write_bytes(b"torn")
        films.of(seen, 1)
        films.draw_waiting()
        assert "cannot be read" in films.of(seen, 1)[0].note
    assert not second.path.exists()


def test_hanging_film_ends_with_its_page(tmp_path, monkeypatch):
    monkeypatch.setattr(films_module.sys, "executable", str(_sleeper(tmp_path)))
    run = run_of(tmp_path, make_spec("robot/Real", picture_spec(), action=axes("x", "y")))
    NewestEpisode.of(camera_episode(8), kind="training", step=5, replays=False).write(run.path)
    films = Films()
    films.of(WatchedRun(run.path).look(), 1)
    until(lambda: films._process is not None)
    started = time.monotonic()
    films.close()
    assert time.monotonic() - started < 10


def _sleeper(folder):
    script = folder / "sleeper"
    script.write_text("#!/bin/sh\nexec sleep 600\n")
    script.chmod(0o755)
    return script
