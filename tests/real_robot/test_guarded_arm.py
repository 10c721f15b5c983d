"""A driver behind its guard: stopping, watching, logging, whatever goes wrong around them."""

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from robo_real.arm import ArmTarget
from robo_real.audit_log import AuditLog
from robo_real.clock import ManualClock
from robo_real.drivers.fake import FakeArm
from robo_real.guard import Mode
from robo_real.guarded_arm import GuardedArm
from robo_real.limits import TWIN
from robo_rl.errors import InvalidAction, RobotStopped, RobotUnavailable

ALONG = np.array([0.5, 0, 0, 0, 1], np.float32)


class Watched(FakeArm):
    """Remembers the order of what it is told."""

    def __init__(self):
        super().__init__(clock=ManualClock())
        self.told = []

    def hold(self):
        super().hold()
        self.told.append("hold")


@pytest.fixture
def robot():
    found = GuardedArm(Watched(), TWIN)
    found.connect()
    found.arm()
    yield found
    found.close()


def test_stop_during_send_wins(robot):
    robot.observe()
    move_to = robot.motion_generator.move_to

    def stopped_before(*arguments):  # as another thread might, between judging and sending
        robot.stop()
        move_to(*arguments)

    robot.motion_generator.move_to = stopped_before
    robot.apply(ALONG)
    assert robot.driver.told[-1] == "hold" and not robot.motion_generator.is_moving
    before = robot.driver.read().position
    robot.driver.clock.sleep(0.5)
    np.testing.assert_array_equal(robot.driver.read().position, before)
    with pytest.raises(RobotStopped):
        robot.apply(ALONG)


def test_a_stop_while_the_robot_recovers_is_not_taken_back(robot):
    robot.guard.fault("robot: reflex")
    robot.driver.recover = lambda: robot.stop("red button")  # as another thread might, in the seconds that this takes
    with pytest.raises(RobotStopped, match="red button"):
        robot.rearm()
    assert robot.guard.mode is Mode.STOPPED
    robot.driver.recover = lambda: None
    robot.rearm()
    robot.arm()


def test_stopping_and_watching_outlive_a_driver_that_fails(robot):
    robot.observe()
    robot.apply(ALONG)

    def broken():
        raise RuntimeError("cable")

    robot.driver.hold = broken
    robot.driver.clock.sleep(TWIN.hold_after + 0.1)
    end = time.monotonic() + 60
    while not any(event["event"] == "hold_failed" for event in robot.log.recent) and time.monotonic() < end:
        time.sleep(0.01)
    robot.stop()
    assert robot.guard.mode is Mode.STOPPED
    assert robot.watchdog.is_alive


def test_an_action_that_is_not_finite_stops_the_arm(robot):
    robot.observe()
    with pytest.raises(InvalidAction):
        robot.apply([np.nan, 0, 0, 0, 1])
    assert robot.guard.reason == "not_finite"


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ([0.1, 0, 0, 1], "wrong_shape"),
        ([[0.1, 0, 0, 0, 1]], "wrong_shape"),
        (None, "wrong_shape"),
        ([0.1, 0, 0, 0, np.inf], "not_finite"),
        ([None] * 5, "not_finite"),
        (["a"] * 5, "wrong_type"),
        ([0.1, 0, 0, 0, "1"], "wrong_type"),
        ([0.1, 0, 0, 0, True], "wrong_type"),
        (["٣", 0, 0, 0, "1_0"], "wrong_type"),
        ([[0.1], 0, 0, 0, 1], "wrong_type"),
        (["0.1", "0", "0", "0", "1"], "wrong_type"),
        (["\u0660.\u0665", 0, 0, 0, 1], "wrong_type"),  # Arabic digits
        (["1_0", 0, 0, 0, 1], "wrong_type"),
        ([True, 0.0, 0.0, 0.0, 1.0], "wrong_type"),
        (np.ones(5, bool), "wrong_type"),
    ],
)
def test_guarded_arm_says_why_an_action_is_none(robot, action, reason):
    robot.observe()
    with pytest.raises(InvalidAction):
        robot.apply(action)
    assert robot.guard.reason == reason


def test_guarded_arm_says_that_an_action_was_clipped(robot):
    robot.observe()
    found = robot.apply([50.0, 0, 0, 0, -5.0])
    assert "action" in found.reasons and np.abs(found.action).max() <= 1.0
    robot.driver.clock.sleep(0.05)
    robot.observe()
    assert robot.apply([0.3, 0, 0, 0, 1.0]).reasons == ()


def test_measurements_that_are_not_finite_are_given_to_nobody(robot):
    robot.driver.force[:] = np.nan
    with pytest.raises(RobotUnavailable, match="not finite"):
        robot.observe()


def test_silence_is_held_then_stopped_and_a_pause_is_not(robot):
    robot.observe()
    robot.apply(ALONG)
    robot.pause()
    robot.driver.clock.sleep(60)
    assert robot.guard.mode is Mode.ARMED
    robot.observe()
    robot.apply(ALONG)
    robot.driver.clock.sleep(TWIN.stop_after + 1)
    robot.watchdog.check()
    assert robot.guard.reason == "watchdog"


def test_who_commands_poses_may_pause_and_gets_there(robot):
    state = robot.measure()
    there = ArmTarget(np.add(state.position, [0.06, 0, 0]), state.quaternion, 0.0)
    robot.move(there)
    robot.driver.clock.sleep(TWIN.stop_after + 1)
    robot.watchdog.check()
    assert robot.guard.mode is Mode.ARMED
    assert robot.driver.read().position == pytest.approx(there.position, abs=0.002)
    robot.move(there)
    assert robot.guard.mode is Mode.RUNNING
    robot.observe()
    robot.apply(ALONG)  # who commands actions is to go on
    robot.driver.clock.sleep(TWIN.stop_after + 1)
    robot.watchdog.check()
    assert robot.guard.reason == "watchdog"


def test_grippers_leave_the_hand_on_its_way(robot):
    state = robot.measure()
    there = np.add(state.position, [0.06, 0, 0])
    robot.move(ArmTarget(there, state.quaternion, 0.0))
    robot.driver.clock.sleep(0.03)
    robot.grip(0.0)
    robot.driver.clock.sleep(1.0)
    end = robot.driver.read()
    assert end.position == pytest.approx(there, abs=0.002) and end.opening == pytest.approx(0.0, abs=0.002)


def test_the_log_is_appended_to(tmp_path):
    for _ in range(2):
        log = AuditLog(tmp_path / "audit.jsonl")
        log.add("mode", mode="armed")
        log.close()
    lines = (tmp_path / "audit.jsonl").read_text().splitlines()
    assert [json.loads(line)["mode"] for line in lines] == ["armed", "armed"]


@pytest.mark.slow
def test_an_interrupt_leaves_the_arm_still_and_nothing_to_re_arm(serve, unhurried):
    server = serve(unhurried)
    guard = server.application.robot.guard
    command = [sys.executable, "-m", "robo_cli.main", "record", f"robot:{server.url}", "--out", "data", "--episodes", "500"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        end = time.monotonic() + 200
        while guard.mode is not Mode.RUNNING and time.monotonic() < end:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(60) == 130
        finally:
            process.kill()
    assert guard.mode is Mode.ARMED
    assert np.abs(server.application.robot.driver.read().velocity).max() < 0.05
