"""robo-rl play: films, the page's server asked by a real client, the page in Chromium if there is one, MuJoCo's window."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import av
import cv2
import gymnasium
import mujoco
import numpy as np
import pytest

import robo_rl
from factories import axes, make_spec
from robo_app.playback import drawing
from robo_app.playback import window as play_window
from robo_app.playback.page.server import PlayServer
from robo_app.playback.playback import Command, Moment, Player, episode_of
from robo_app.playback.window import Window, simulation_of
from robo_cli.main import dispatch
from robo_cli.train import play
from robo_rl.errors import InvalidSetting, RenderingUnavailable, SpecMismatch
from robo_rl.evaluation.video import read_frames
from robo_rl.rollout.episode import RandomPolicy
from robo_rl.spec.environment import ArraySpec

COMMON = {"evaluation": {"episodes": 2, "videos": 0}}
TINY = {"network": {"hidden": [8]}, "batch_size": 5}
RECIPES: dict[str, dict[str, Any]] = {
    "sac": COMMON
    | {
        "environment": {"name": "robo/ArmReach-v0", "arguments": {"max_steps": 6, "action_repeat": 2}},
        "algorithm": "sac",
        "learner": TINY | {"replay": {"learning_starts": 10}},
        "record_episodes": True,
    },
    "ppo": COMMON
    | {
        "environment": {"name": "gymnasium/InvertedPendulum-v5"},
        "algorithm": "ppo",
        "learner": TINY | {"num_envs": 2, "steps_per_env": 5, "epochs": 1},
    },
    "grid": COMMON
    | {
        "environment": {"name": "minigrid/MiniGrid-Empty-5x5-v0"},
        "algorithm": "sb3-ppo",
        "learner": {"n_steps": 10, "batch_size": 5, "n_epochs": 1},
    },
}


class Line(gymnasium.Env[Any, Any]):
    """A point that moves for five steps of 0.1 s, and draws its seed and its step."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    environment_spec = make_spec(
        "test/Line",
        ArraySpec("position", (1,), unit="m"),
        action=axes("x", unit="m/s", mode="joint_velocity", control_period=0.1),
    )

    def __init__(self, render_mode: str | None = "rgb_array") -> None:
        self.render_mode, self.seeds = render_mode, list[int]()
        self.observation_space, self.action_space = self.environment_spec.observation.space, self.environment_spec.action.space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        assert seed is not None
        self.seeds.append(seed)
        self._step = 0
        return {"position": np.zeros(1, np.float32)}, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._step += 1
        return {"position": np.zeros(1, np.float32)}, 0.5, self._step == 5, False, {"success": self._step == 5}

    def render(self) -> Any:
        return np.full((64, 64, 3), 10 * self._step, np.uint8)


class Blind(gymnasium.Env[Any, Any]):
    """An environment without render()."""

    environment_spec, render_mode = Line.environment_spec, None


class Listed:
    """A screen that remembers, and sends commands at chosen pictures."""

    def __init__(self, commands: dict[int, Callable[[], None]] | None = None, most: int = 1000) -> None:
        self.shown: list[Moment] = []
        self.times: list[float] = []
        self._commands, self._most = commands or {}, most

    @property
    def is_open(self) -> bool:
        return len(self.shown) < self._most

    def show(self, picture: Any, moment: Moment) -> None:
        self.shown.append(moment)
        self.times.append(time.monotonic())
        self._commands.get(len(self.shown), lambda: None)()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, robo_rl.Run]:
    folder = tmp_path_factory.mktemp("runs")
    return {name: robo_rl.train({"name": name, **recipe}, steps=20, out=folder) for name, recipe in RECIPES.items()}


@pytest.fixture
def line() -> tuple[Line, Any]:
    return Line(), RandomPolicy(Line.environment_spec, 0)


@pytest.fixture
def no_display(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server(line: tuple[Line, Any]) -> Iterator[PlayServer]:
    with playing(Player(*line)) as found:
        yield found


@contextmanager
def playing(player: Player) -> Iterator[PlayServer]:
    found = PlayServer("test", player, 0)
    thread = threading.Thread(target=player.run, args=(found, 7))
    thread.start()
    try:
        yield found
    finally:
        found.close()
        thread.join(20)
    assert not thread.is_alive()


def ask(server: PlayServer, path: str, headers: dict[str, str] | None = None, body: bytes | None = None) -> Any:
    request = urllib.request.Request(server.server.url + path.lstrip("/"), data=body, headers=headers or {})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return answer.read()


def command(server: PlayServer, word: object, **headers: str) -> Any:
    own = {"X-Robo-Token": server.server.token, "Origin": server.server.url.rstrip("/")} | headers
    return json.loads(ask(server, "/api/command", own, json.dumps({"command": word}).encode()))


def moment(server: PlayServer, after: object = "") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ask(server, f"/api/moment?after={after}"))
    return found


def until(server: PlayServer, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    found, end = moment(server), time.monotonic() + 20
    while not holds(found):
        assert time.monotonic() < end, found
        found = moment(server, found["number"])
    return found


def length(film: Path) -> tuple[int, float]:
    with av.open(str(film)) as container:
        return container.streams.video[0].frames, float(container.duration) / 1e6


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.slow
def test_film_shows_the_evaluated_episodes(
    name: str, runs: dict[str, robo_rl.Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    film, run = tmp_path / "made" / "film.mp4", runs[name]
    assert dispatch(["play", str(run.path), "--video", str(film), "--episodes", "2"]) == 0
    evaluation = run.evaluation
    assert evaluation is not None
    mean = f"{np.mean(evaluation.returns):.4g}"
    assert re.search(rf"2 episodes played.*mean return {re.escape(mean)}\n", capsys.readouterr().out)
    pictures = 2 if name == "sac" else 1  # the arm draws both control steps of an action
    decisions = sum(evaluation.lengths)
    frames, seconds = length(film)
    assert frames == decisions * pictures + len(evaluation) + 1, "each start once, and the last picture held"
    period = run.spec.action.control_period or 1 / 8
    assert seconds == pytest.approx((frames - 1) * period / pictures + 0.6, rel=0.1)
    assert read_frames(film, [0.5])[0].std() > 5, "there is something to see"


@pytest.mark.slow
def test_film_at_another_speed_of_another_seed_and_step(runs: dict[str, robo_rl.Run], tmp_path: Path) -> None:
    for name, options in {
        "usual": [],
        "fast": ["--speed", "4"],
        "early": ["--step", "20", "--stochastic"],
        "other": ["--seed", "3"],
    }.items():
        assert dispatch(["play", str(runs["sac"].path), "--video", str(tmp_path / f"{name}.mp4"), *options]) == 0
    usual, fast = length(tmp_path / "usual.mp4"), length(tmp_path / "fast.mp4")
    assert usual[0] == fast[0] and fast[1] < usual[1]
    last = {name: read_frames(tmp_path / f"{name}.mp4", [1.0])[0] for name in ("usual", "early", "other")}
    assert not np.array_equal(last["usual"], last["other"]) and not np.array_equal(last["usual"], last["early"])


@pytest.mark.slow
def test_film_elsewhere_ignores_unread_cameras(runs: dict[str, robo_rl.Run], tmp_path: Path) -> None:
    order = ["play", str(runs["sac"].path), "--video"]
    assert dispatch([*order, str(tmp_path / "own.mp4")]) == 0
    there = ["--environment.arguments.cameras", "[front]", "--environment.arguments.image_size", "16"]
    assert dispatch([*order, str(tmp_path / "there.mp4"), *there]) == 0
    own, other = (read_frames(tmp_path / f"{name}.mp4", [1.0])[0] for name in ("own", "there"))
    assert np.array_equal(own, other)
    with pytest.raises(SpecMismatch, match="control_period"):
        dispatch([*order, str(tmp_path / "no.mp4"), "--environment.arguments.action_repeat", "1"])


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.slow
def test_page_is_served_until_the_episodes_are_played(
    name: str, runs: dict[str, robo_rl.Run], no_display: None, capsys: pytest.CaptureFixture[str]
) -> None:
    order = ["play", str(runs[name].path), "--port", "0", "--episodes", "2", "--speed", "1000"]
    assert dispatch(order) == 0
    said = capsys.readouterr().out
    assert re.search(r"plays at http://127\.0\.0\.1:\d+/", said) and "2 episodes played" in said


@pytest.mark.slow
def test_interruption_ends_with_a_summary(
    runs: dict[str, robo_rl.Run], no_display: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(PlayServer, "show", interrupt)
    assert dispatch(["play", str(runs["grid"].path), "--port", "0"]) == 0
    assert capsys.readouterr().out.endswith("\n0 episodes played\n")


@pytest.mark.real_time
def test_player_keeps_the_environments_rate(line: tuple[Line, Any]) -> None:
    screen = Listed()
    Player(*line, speed=2.0).run(screen, 3, episodes=1)
    assert [each.step for each in screen.shown] == [0, 1, 2, 3, 4, 5]
    assert screen.times[-1] - screen.times[0] == pytest.approx(5 * 0.05, abs=0.04)
    assert screen.shown[-1] == Moment(3, 5, 0.5, 2.5, True, "goal")


@pytest.mark.slow
def test_player_plays_seeds_in_turn_again_and_on(line: tuple[Line, Any]) -> None:
    environment, policy = line
    player = Player(environment, policy, speed=1000.0)
    commands: dict[int, Command] = {3: "restart", 5: "next"}
    player.run(Listed({at: lambda word=word: player.command(word) for at, word in commands.items()}), 7, episodes=2)  # type: ignore[misc]
    assert environment.seeds == [7, 7, 8, 9]
    assert [each.seed for each in player.outcomes] == [8, 9], "what was left counts nowhere"


@pytest.mark.slow
def test_paused_player_waits_and_goes_on(line: tuple[Line, Any]) -> None:
    player = Player(*line, speed=1000.0)
    screen = Listed({3: lambda: player.command("pause")})
    thread = threading.Thread(target=player.run, args=(screen, 1, 1))
    thread.start()
    end = time.monotonic() + 10
    while len(screen.shown) < 3 and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.2)
    assert len(screen.shown) == 3 and player.is_paused
    player.command("go")
    thread.join(10)
    assert len(screen.shown) == 6 and len(player.outcomes) == 1


def test_player_ends_with_its_screen(line: tuple[Line, Any]) -> None:
    screen = Listed(most=2)
    Player(*line, speed=1000.0).run(screen, 1)
    assert len(screen.shown) == 2


@pytest.mark.slow
def test_moments_tell_pictures_and_numbers(server: PlayServer) -> None:
    assert b"robo-rl play" in ask(server, "/") and server.server.token.encode() in ask(server, "/")
    assert b"follow()" in ask(server, "/page.js") and ask(server, "/page.css") and ask(server, "/style.css")
    found = until(server, lambda each: each.get("step") == 2)
    assert (found["seed"], found["reward"], found["episode_return"], found["success"]) == (7, 0.5, 1.0, False)
    jpeg = np.frombuffer(base64.b64decode(found["picture"].partition(",")[2]), np.uint8)
    picture = cv2.imdecode(jpeg, cv2.IMREAD_COLOR)
    assert picture.shape == (64, 64, 3) and abs(int(picture.mean()) - 20) <= 2
    ended = until(server, lambda each: (each.get("stop_reason") is not None and each["played"] == 1) or each.get("seed") == 8)
    assert ended["successes"] <= ended["judged"] <= ended["played"]


def test_commands_steer_the_player(server: PlayServer) -> None:
    assert command(server, "pause") == {"paused": True}
    paused = until(server, lambda each: each["paused"])
    command(server, "next")
    assert until(server, lambda each: each["seed"] == paused["seed"] + 1)["paused"]
    command(server, "go")
    until(server, lambda each: not each["paused"] and each["step"] >= 1)
    seed = moment(server)["seed"]
    command(server, "restart")
    until(server, lambda each: each["seed"] == seed and each["step"] == 0)


@pytest.mark.parametrize(
    ("word", "headers", "status"),
    [
        ("explode", {}, 400),
        (["pause"], {}, 400),
        (None, {}, 400),
        ("pause", {"X-Robo-Token": "guess"}, 403),
        ("pause", {"Origin": "http://evil.example"}, 403),
        ("pause", {"Host": "evil.example"}, 403),
    ],
)
def test_foreign_and_wrong_commands_are_refused(word: object, headers: dict[str, str], status: int, server: PlayServer) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        command(server, word, **headers)
    with refused.value as answer:
        assert answer.code == status
    assert not until(server, lambda found: "paused" in found)["paused"]


def test_unknown_addresses_are_not_found(server: PlayServer) -> None:
    for path in ("/api/moments", "/../pyproject.toml", "/api/command"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            ask(server, path)
        with refused.value as answer:
            assert answer.code == 404


def stand_in(monkeypatch: pytest.MonkeyPatch, launch: Any) -> None:
    """Puts a function in the place of MuJoCo's, whose window needs a display."""
    viewer = type("Viewer", (), {"launch_passive": staticmethod(launch), "init": staticmethod(lambda: True)})
    monkeypatch.setattr(play_window, "import_module", lambda name: viewer)


@pytest.mark.parametrize(
    ("name", "camera"),
    [("gymnasium/HalfCheetah-v5", "track"), ("dm_control/cartpole-balance", None), ("robo/ArmReach-v0", "overview")],
)
def test_window_follows_the_simulation(name: str, camera: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []

    class Handle:
        def __init__(self, model: mujoco.MjModel, data: mujoco.MjData, key_callback: Callable[[int], None], **_: bool) -> None:
            self.cam = mujoco.MjvCamera()
            self.data, self.press, self.times, self.is_closed = data, key_callback, list[float](), False
            opened.append(self)

        def is_running(self) -> bool:
            return len(self.times) < 5

        def sync(self) -> None:
            self.times.append(float(self.data.time))

        def close(self) -> None:
            self.is_closed = True

    stand_in(monkeypatch, Handle)
    environment = robo_rl.make_environment(name)
    player = Player(environment, RandomPolicy(environment.environment_spec, 0), speed=1000.0)  # type: ignore[attr-defined]
    with closing(environment), closing(Window(environment, player)) as window:
        player.run(window, 0)
        (handle,) = opened
        model, seen_from = play_window.simulation_of(environment)[0], handle.cam.fixedcamid  # type: ignore[index]
        assert camera == (None if seen_from < 0 else model.camera(seen_from).name)
        assert len(handle.times) == 5 and handle.times == sorted(handle.times) and handle.times[-1] > 0
        handle.press(32)
        assert player.is_paused
        handle.press(32)
        assert not player.is_paused
    assert handle.is_closed


@pytest.mark.skipif(shutil.which("Xvfb") is None, reason="there is no virtual display")
def test_window_opens_and_closes_on_a_virtual_display(runs: dict[str, robo_rl.Run]) -> None:
    reading, writing = os.pipe()
    virtual = subprocess.Popen(
        ["Xvfb", "-displayfd", str(writing), "-screen", "0", "640x480x24"], pass_fds=[writing], stderr=subprocess.DEVNULL
    )
    os.close(writing)
    try:
        with os.fdopen(reading) as said:
            display = f":{said.readline().strip()}"
        command = [sys.executable, "-m", "robo_cli.main", "play", str(runs["ppo"].path), "--episodes", "1", "--speed", "50"]
        environment = os.environ | {"DISPLAY": display}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    finally:
        virtual.terminate()
        virtual.wait(20)
    assert done.returncode == 0, done.stderr
    assert "space pauses" in done.stdout and "1 episode played" in done.stdout


def test_window_without_a_display_is_one_error(runs: dict[str, robo_rl.Run], no_display: None) -> None:
    with pytest.raises(RenderingUnavailable, match=r"GLFW finds no display(.|\n)*--viewer browser"):
        dispatch(["play", str(runs["ppo"].path), "--viewer", "window"])


def test_window_that_does_not_open_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("`launch_passive` requires that the Python script be run under `mjpython`")

    stand_in(monkeypatch, refuse)
    environment = robo_rl.make_environment("gymnasium/InvertedPendulum-v5")
    player = Player(environment, RandomPolicy(environment.environment_spec, 0))  # type: ignore[attr-defined]
    with closing(environment), pytest.raises(RenderingUnavailable, match=r"mjpython(.|\n)*--viewer browser"):
        player.run(Window(environment, player), 0)


@pytest.mark.slow
def test_window_opens_where_there_is_a_display(
    runs: dict[str, robo_rl.Run], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown: list[str] = []
    monkeypatch.setattr(play, "play_in_window", lambda *_: shown.append("window") or 0)
    monkeypatch.setattr(play, "play_in_browser", lambda *_: shown.append("browser") or 0)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(play_window, "has_window", lambda: True)
    for name in RECIPES:
        dispatch(["play", str(runs[name].path)])
    dispatch(["play", str(runs["sac"].path), "--viewer", "browser"])
    assert shown == ["window", "window", "browser", "browser"], "no window of MuJoCo shows a grid"
    monkeypatch.setattr(play_window, "has_window", lambda: False)
    dispatch(["play", str(runs["sac"].path)])
    assert shown[-1] == "browser", "the display may be one that is gone"
    with pytest.raises(InvalidSetting, match=r"not simulated by MuJoCo(.|\n)*--viewer browser"):
        dispatch(["play", str(runs["grid"].path), "--viewer", "window"])


def test_simulation_is_none_without_mujoco() -> None:
    with closing(robo_rl.make_environment("minigrid/MiniGrid-Empty-5x5-v0")) as grid:
        assert simulation_of(grid) is None


@pytest.mark.parametrize("environment", [Blind, lambda: Line(render_mode=None)], ids=["no render()", "no render_mode"])
def test_environment_that_draws_nothing_is_one_error(
    environment: Callable[[], Any], runs: dict[str, robo_rl.Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(recipe: Any, render_mode: str | None = None) -> Any:
        if environment is not Blind and render_mode is not None:
            raise TypeError("Line() got an unexpected keyword argument 'render_mode'")
        return environment()

    monkeypatch.setattr(play, "judged_environment_of", make)
    monkeypatch.setattr(drawing, "judged_environment_of", make)
    for options in (["--video", str(tmp_path / "film.mp4")], ["--viewer", "browser", "--port", "0"]):
        with pytest.raises(RenderingUnavailable, match="draws no pictures"):
            dispatch(["play", str(runs["ppo"].path), *options])
    assert not (tmp_path / "film.mp4").exists()


def test_episodes_without_a_render_mode_have_no_pictures() -> None:
    played = [*episode_of(Line(render_mode=None), RandomPolicy(Line.environment_spec, 0), 0, deterministic=True)]
    assert [pictures for pictures, _ in played] == [[]] * 6


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--video", "film.gif"], "A film is an mp4 file"),
        (["--speed", "0"], "'speed' is out of range"),
        (["--speed", "nan"], "'speed' is out of range"),
        (["--episodes", "0"], "'episodes' is out of range"),
        (["--step", "7"], "kept no policy of that step"),
        (["--port", "99999999"], "Port 99999999"),
    ],
)
def test_wrong_options_are_one_error(options: list[str], words: str, runs: dict[str, robo_rl.Run], no_display: None) -> None:
    with pytest.raises(InvalidSetting, match=words):
        dispatch(["play", str(runs["grid"].path), *options])


def test_robots_are_not_moved(runs: dict[str, robo_rl.Run], tmp_path: Path) -> None:
    shutil.copytree(runs["sac"].path, tmp_path / "run")
    recipe = (tmp_path / "run" / "recipe.yaml").read_text().replace("robo/ArmReach-v0", "robot:http://127.0.0.1:1")
    (tmp_path / "run" / "recipe.yaml").write_text(recipe)
    with pytest.raises(InvalidSetting, match="A robot is not moved to show a policy"):
        dispatch(["play", str(tmp_path / "run")])


def test_page_in_a_browser(line: tuple[Line, Any]) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    with playing(Player(*line)) as server, playwright.sync_playwright() as found:
        file = os.environ.get("ROBO_RL_CHROMIUM") or shutil.which("chromium") or found.chromium.executable_path
        if not Path(file).exists():
            pytest.skip("there is no Chromium")
        browser = found.chromium.launch(executable_path=file, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 390, "height": 844})
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.goto(server.server.url)
        expect = playwright.expect
        expect(page.locator("#said")).to_have_text("The policy acts", timeout=20_000)
        expect(page.locator("#said")).to_contain_text("Ended: goal", timeout=20_000)
        expect(page.locator("#success")).to_have_text("yes")
        page.click("#pause")
        expect(page.locator("#pause")).to_have_text("Go on")
        seed = int(page.inner_text("#seed"))
        page.keyboard.press("n")
        expect(page.locator("#seed")).to_have_text(str(seed + 1))
        expect(page.locator("#said")).to_have_text("Paused")
        page.click("#pause")
        expect(page.locator("#said")).to_have_text("The policy acts")
        assert page.evaluate("document.querySelector('#picture').naturalWidth") == 64
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "a phone scrolls in one direction"
        assert errors == []
        browser.close()


def test_policy_of_a_step_is_evaluated(runs: dict[str, robo_rl.Run], capsys: pytest.CaptureFixture[str]) -> None:
    run = str(runs["sac"].path)
    assert dispatch(["evaluate", run, "--step", "20", "--episodes", "1", "--videos", "0"]) == 0
    assert "robo/ArmReach-v0: 1 episode, seeds" in capsys.readouterr().out
    assert (runs["sac"].path / "evaluations" / "step-20.json").exists()
    with pytest.raises(InvalidSetting, match=r"has kept no policy of that step(.|\n)*got:     7"):
        dispatch(["evaluate", run, "--step", "7"])
    with pytest.raises(InvalidSetting, match=r"step(.|\n)*allowed"):
        dispatch(["evaluate", run, "--step", "20", "--perturb", "physics"])
