"""What may go wrong with robot, link, cameras and processes, injected; what is promised then, asserted."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from robo_real.cameras import MOST_AGE, Frame, FreshFrames
from robo_real.limits import TWIN
from robo_real.remote_robot import RemoteRobot
from robo_real.serving import ServerSettings, build_server
from robo_rl.errors import (
    CameraStale,
    RenderingUnavailable,
    RobotBusy,
    RobotStopped,
    RobotUnavailable,
)
from robo_rl.rollout.episode import Rollout
from robo_rl.types import ActionSource

sys.path.insert(0, str(Path(__file__).parent))
from faulty_twin import Faults, FaultyLink

STILL = np.array([0, 0, 0, 0, 1], np.float32)
ALONG = np.array([0.3, 0, 0, 0, 1], np.float32)


def wait_until(holds, seconds=60.0):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came to hold"
        time.sleep(0.01)


@pytest.fixture
def link(monkeypatch):
    """Returns the state of all connections that this process opens to robots."""
    found = FaultyLink()
    monkeypatch.setattr("robo_real.http_client.TimedClient", found.client)
    return found


@pytest.fixture
def under_way(serve_in_step, beside):
    """Returns a function that serves a twin and begins an episode on it."""
    environments = []

    def begun(**options):
        server = serve_in_step(**options)
        environment = beside(server)
        environments.append(environment)
        environment.reset(seed=0)
        for _ in range(3):
            environment.step(ALONG)
        return server, environment

    yield begun
    for environment in environments:
        environment.close()


def inject(server, **faults):
    server.application.robot.driver.inject(Faults(**faults))


def ended(environment, steps=40, action=ALONG):
    """Returns the info of the step that ends the episode; raises where none of `steps` does."""
    for _ in range(steps):
        _, _, terminated, truncated, info = environment.step(action)
        if terminated or truncated:
            assert truncated
            return info
    raise AssertionError("the episode goes on")


# robot and sensors


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("faults", "reason"),
    [
        ({"reflex": True}, "robot: reflex"),
        ({"corrupt": True}, "state_not_finite"),
        ({"jump": 0.3}, "outside_workspace"),
        ({"repeat": True}, "state_frozen|velocity_contradicts_position"),
        ({"push": 500.0}, "hard_force"),
        ({"freeze": True}, "state_frozen|state_late|late"),
    ],
)
def test_a_robot_at_fault_is_stopped_and_the_episode_says_why(under_way, faults, reason):
    server, environment = under_way()
    inject(server, **faults)
    info = ended(environment)
    guard = server.application.robot.guard
    assert info["stop_reason"] in ("safety", "robot_lost")
    server.application.robot.clock.sleep(server.application.robot.limits.stop_after + 0.1)
    wait_until(lambda: guard.reason != "")
    assert guard.reason in reason.split("|") or guard.reason == "watchdog"
    inject(server)
    with pytest.raises(RobotStopped, match="robot rearm"):  # nothing clears itself, not even at the next episode
        environment.reset(seed=1)


@pytest.mark.slow
def test_lost_robot_ends_episode_and_returns_stopped(under_way, link):
    server, environment = under_way()
    link.clock = server.application.robot.clock
    link.lose(1.5)
    assert ended(environment)["stop_reason"] == "robot_lost"
    server.application.robot.clock.sleep(1.6)
    wait_until(lambda: server.application.robot.guard.reason == "watchdog")
    again = RemoteRobot(server.url)
    again.connect()
    with pytest.raises(RobotStopped):
        again.arm()
    again.close()


@pytest.mark.slow
def test_an_answer_that_is_late_now_and_then_is_only_counted(under_way, link):
    server, environment = under_way()
    link.clock, link.jitter = server.application.robot.clock, 0.05
    for _ in range(15):
        *_, truncated, info = environment.step(STILL)
        assert not truncated, info
    assert server.application.robot.guard.reason == ""


@pytest.mark.slow
def test_commands_on_old_news_are_refused_and_held(under_way, link):
    server, environment = under_way()
    link.clock, link.latency = server.application.robot.clock, 0.25  # a command answers older news than is allowed
    environment.step(ALONG)
    info = environment.step(ALONG)[-1]
    assert info["guard"] == ["late"]
    np.testing.assert_allclose(info["executed_action"][:4], 0, atol=1e-6)


def test_only_one_owner_commands_a_robot(under_way):
    server, _ = under_way()
    other = RemoteRobot(server.url, owner="another lab")
    with pytest.raises(RobotBusy, match=f"{os.getpid()}"):
        other.connect()
    other.stop()  # which needs no lease
    assert server.application.robot.guard.mode == "stopped"


@pytest.mark.slow
def test_second_environment_ends_episode_of_first(under_way, beside):
    server, environment = under_way()
    second = beside(server)
    second.reset(seed=5)
    assert ended(environment)["stop_reason"] == "lease_lost"
    assert not second.step(STILL)[3]
    second.close()


# cameras


@pytest.mark.slow
def test_frozen_camera_stops_arm_within_one_period(under_way):
    server, environment = under_way(cameras=("wrist",), image_size=32)
    inject(server, camera_freeze=True)
    froze = environment.robot.clock.now()
    assert ended(environment, action=STILL)["stop_reason"] == "camera_stale"
    passed = environment.robot.clock.now() - froze
    assert MOST_AGE - 1e-6 < passed < MOST_AGE + environment.loop.period + 1e-6
    assert server.application.robot.guard.mode == "stopped"


@pytest.mark.slow
def test_resized_camera_stops_arm(under_way):
    server, environment = under_way(cameras=("wrist",), image_size=32)
    inject(server, camera_size=16)
    assert ended(environment, action=STILL)["stop_reason"] == "camera_changed"
    assert "has changed its pictures" in server.application.robot.guard.reason


@pytest.mark.slow
def test_swapped_camera_stops_arm(under_way):
    server, environment = under_way(cameras=("front", "wrist"), image_size=32)
    inject(server, camera_swap=True)
    assert ended(environment, action=STILL)["stop_reason"] == "camera_changed"
    assert "Another device" in server.application.robot.guard.reason


def test_pictures_from_the_past_are_dropped_and_counted():
    fresh = FreshFrames("wrist", (2, 2, 3), most_age=0.5)
    newer, older = (Frame(np.full((2, 2, 3), shade, np.uint8), stamp, 1) for shade, stamp in ((9, 1.0), (1, 0.9)))
    fresh.checked(newer, 0.98)  # taken after the measurement that it goes with
    assert fresh.checked(older, 1.1)[0, 0, 0] == 9
    assert fresh.backward == 1
    with pytest.raises(CameraStale, match=r"0\.600 s"):
        fresh.checked(newer, 1.6)


# processes


@contextmanager
def streamer(server, *arguments):
    """Gives a client in a process of its own, under way."""
    program = Path(__file__).with_name("stream_and_die.py")
    command = [sys.executable, str(program), server.url, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "under way\n"
            yield process
        finally:
            process.kill()


@contextmanager
def stumbles():
    """Gives a list of how much longer [s] sleeps of 10 ms take than that: what the machine does to any thread meanwhile."""
    found, done = [0.0], threading.Event()

    def sleep():
        while not done.is_set():
            start = time.monotonic()
            time.sleep(0.01)
            found.append(time.monotonic() - start - 0.01)

    thread = threading.Thread(target=sleep)
    thread.start()
    yield found
    done.set()
    thread.join()


def held(robot):
    return [event for event in robot.log.recent if event["event"] == "held"]


def test_arm_of_killed_client_holds_then_stops(serve):
    server = serve()
    robot = server.application.robot
    with streamer(server) as process, stumbles() as delays:
        process.kill()
        process.wait()
        wait_until(lambda: robot.guard.reason == "watchdog")
    silent = held(robot)[-1]["silent"]
    assert TWIN.hold_after < silent < TWIN.hold_after + 0.05 + 3 * max(delays)  # 10 ms where the machine is idle
    assert np.abs(robot.driver.read().velocity).max() < 0.01


def test_the_command_of_a_client_that_was_paused_is_discarded(serve):
    server = serve(replace(TWIN, stop_after=60.0))
    robot = server.application.robot
    with streamer(server, "pause") as process:  # it stands still between a measurement and the command that answers it
        wait_until(lambda: Path(f"/proc/{process.pid}/stat").read_text().rsplit(")")[-1].split()[0] == "T")
        wait_until(lambda: held(robot))
        time.sleep(0.5)
        assert robot.guard.counts["late"] == 0
        before = robot.driver.read().position
        process.send_signal(signal.SIGCONT)
        assert process.stdout.readline() == "refused: late\n"
        np.testing.assert_allclose(robot.driver.read().position, before, atol=1e-3)
    assert robot.guard.reason == ""


@pytest.mark.slow
def test_watchdog_tolerates_short_loss_and_stops_at_300_ms(under_way, link):
    server, environment = under_way()
    remote, robot = environment.robot, server.application.robot
    remote.observe()
    link.is_cut = True
    for _ in range(2):
        with pytest.raises(RobotUnavailable):
            remote.apply(STILL)
        robot.clock.sleep(0.05)
    link.is_cut = False
    remote.apply(STILL)
    robot.watchdog.check()
    assert held(robot) == []
    robot.clock.sleep(0.3)
    robot.watchdog.check()
    assert held(robot)[0]["silent"] == pytest.approx(0.3, abs=0.01) and robot.guard.reason == ""


# what is stored


@pytest.mark.slow
def test_what_was_executed_is_recorded_with_the_reason(under_way):
    server, environment = under_way()

    class Pusher:
        environment_spec = environment.environment_spec

        def reset(self):
            pass

        def act(self, observation, *, deterministic=False):
            return np.array([1, 1, -1, 1, 1], np.float32)

    server.application.robot.guard._high[1] = 0.05  # a wall that the policy runs into
    rollout = Rollout(environment, Pusher(), seed=0)
    for _ in range(25):
        rollout.step()
    rollout.cut("operator")
    episode = rollout.episode()
    touched = [int(step) for step, reasons in episode.metadata["guard"].items() if "box" in reasons]
    assert touched
    for step in touched:
        assert episode.sources[step] == ActionSource.GUARD
        assert episode.actions[step][1] < episode.policy_actions[step][1]
    free = [step for step in range(len(episode)) if str(step) not in episode.metadata["guard"]]
    np.testing.assert_allclose(episode.actions[free], episode.policy_actions[free], atol=1e-5)


def test_a_server_that_is_not_there_is_told_in_words():
    with pytest.raises(RobotUnavailable, match="does `robo-rl robot serve` still run there"):
        RemoteRobot("http://127.0.0.1:9")


def test_twin_that_cannot_draw_is_not_served(monkeypatch):
    before = set(threading.enumerate())

    def undrawn(_):
        raise RenderingUnavailable("MuJoCo cannot open an OpenGL context.")

    with monkeypatch.context() as patched, pytest.raises(RenderingUnavailable, match="cannot open an OpenGL context"):
        patched.setattr("robo_sims.arm.realtime_arm.RealtimeArm.pictures", undrawn)
        build_server(ServerSettings(options={"cameras": ("front",)}, port=0))
    assert not set(threading.enumerate()) - before


def test_twin_whose_drawing_fails_later_says_why(serve, monkeypatch):
    server = serve(cameras=("front",), image_size=16)
    client = RemoteRobot(server.url)
    client.frame("camera_front")
    monkeypatch.setattr("robo_sims.arm.realtime_arm.RealtimeCameras.draw", lambda _: 1 / 0)
    end = time.monotonic() + 60
    with pytest.raises(RobotUnavailable, match=r"draws no pictures any more(.|\n)*division by zero"):
        while time.monotonic() < end:
            client.client.frame("camera_front", timeout=20)
    client.close()
