"""The joint reset of an arm is a motion like any other: armed, within the limits, watched, stopped, in the log."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from robo_real.clock import ManualClock
from robo_real.drivers.fake import FakeArm
from robo_real.drivers.franka_http import FrankaHttp, FrankaHttpOptions
from robo_real.guard import Mode
from robo_real.guarded_arm import GuardedArm
from robo_real.limits import TWIN
from robo_real.server.application import Application
from robo_real.server.messages import Request
from robo_real.twin import Twin
from robo_rl.errors import RobotStopped, RobotUnavailable

sys.path.insert(0, str(Path(__file__).parent))
from faulty_twin import Faults, FaultyTwin
from plant_truth import Recorder

RESET = Request("POST", "/jointreset", None)


@pytest.fixture
def robot():
    twin = FaultyTwin(Twin(clock=ManualClock()))
    found = GuardedArm(twin, TWIN, spec=twin.spec, scene=twin)
    found.connect()
    found.arm()
    for _ in range(30):  # far from the nominal posture
        found.measure()
        found.apply([0.6, 1, -0.6, 1, 1])
        twin.clock.sleep(0.05)
    found.measure()
    yield found
    found.close()


def events(robot, name):
    return [event for event in robot.log.recent if event["event"] == name]


def off(robot):
    return np.abs(robot.driver.read().joint_position - robot.driver.home).max()


def meanwhile(robot, after, work):
    """Do something once the reset has been under way for so many looks."""
    clock, looks = robot.driver.clock, []
    sleep = clock.sleep

    def sleeping(seconds):
        sleep(seconds)
        looks.append(1)
        if len(looks) == after:
            work()

    clock.sleep = sleeping


def test_joint_reset_reaches_the_posture_within_the_limits(robot):
    recorder = Recorder(robot.driver, TWIN)
    assert off(robot) > 0.3
    assert robot.reset_joints(30.0) == ""
    worst = recorder.worst
    assert off(robot) < 0.02 and robot.guard.mode is Mode.ARMED
    assert worst.speed < TWIN.speed and worst.turn_speed < TWIN.turn_speed and worst.joint_speed < 1.0
    assert worst.speeding_up < 1.1 * TWIN.acceleration and worst.box <= 0.0
    assert events(robot, "joint_reset")[0]["home"] == pytest.approx(robot.driver.home, abs=1e-5)
    assert events(robot, "joint_reset_ended")[0]["reason"] == ""


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        (lambda robot: robot.stop("red button"), "red button"),
        (lambda robot: robot.driver.inject(Faults(push=400.0)), "hard_force"),
        (lambda robot: robot.driver.inject(Faults(push=60.0)), "soft_force"),
        (lambda robot: robot.driver.inject(Faults(reflex=True)), "robot: reflex"),
        (lambda robot: robot.pause(), "another command"),
    ],
)
def test_joint_reset_ends_at_once(robot, work, reason):
    meanwhile(robot, 10, lambda: work(robot))
    assert robot.reset_joints(30.0) == reason
    assert off(robot) > 0.2
    robot.driver.inject(Faults())
    robot.driver.clock.sleep(0.3)
    here = robot.driver.read().position
    robot.driver.clock.sleep(1.0)
    np.testing.assert_allclose(robot.driver.read().position, here, atol=0.002)
    assert events(robot, "joint_reset_ended")[0]["reason"] == reason


@pytest.mark.parametrize("latch", ["stop", "fault"])
def test_joint_reset_of_a_stopped_arm_is_refused(robot, latch):
    getattr(robot.guard, latch)("red button")
    before = off(robot)
    with pytest.raises(RobotStopped, match="red button"):
        robot.reset_joints(30.0)
    answer = Application(robot, plain_clients=True).answer(RESET)
    assert (answer.status, answer.headers["X-Robo-Reason"]) == (500, "red button")
    robot.driver.clock.sleep(1.0)
    assert off(robot) == pytest.approx(before, abs=0.01)


def test_joint_reset_over_the_contract_moves_an_armed_arm(robot):
    assert Application(robot, plain_clients=True).answer(RESET).status == 200
    assert off(robot) < 0.02


def test_joint_reset_of_an_arm_without_joints_is_refused():
    robot = GuardedArm(FakeArm(clock=ManualClock()), TWIN)
    robot.connect()
    robot.arm()
    with pytest.raises(RobotUnavailable, match="resets no joints"):
        robot.reset_joints(30.0)
    assert "--allow-joint-reset" in Application(robot, plain_clients=True).answer(RESET).headers["X-Robo-Reason"]
    robot.close()


@pytest.mark.parametrize("pressed", [False, True])
def test_foreign_joint_reset_needs_the_dead_man_switch(pressed):
    arm, resets = FakeArm(clock=ManualClock()), []
    arm.joint_reset = resets.append
    robot = GuardedArm(arm, replace(TWIN, dead_man=0.3))
    robot.connect()
    robot.arm()
    if pressed:
        robot.guard.enable(arm.clock.now())
    answer = Application(robot, plain_clients=True, allow_joint_reset=True).answer(RESET)
    assert (answer.status == 200) == pressed == bool(resets)
    assert pressed or answer.headers["X-Robo-Reason"] == "dead_man"
    robot.close()


@pytest.mark.parametrize("allowed", [False, True])
def test_foreign_joint_reset_needs_permission_and_armed_arm(serve, allowed):
    """The driver of a Franka behind another server, here a twin in real time."""
    server = serve()
    inner = server.application.robot
    robot = GuardedArm(FrankaHttp(FrankaHttpOptions(url=server.url, timeout=20.0)), TWIN)
    robot.connect()
    application = Application(robot, plain_clients=True, allow_joint_reset=allowed)
    robot.stop("red button")
    assert application.answer(RESET).status == 500
    assert not events(inner, "joint_reset")
    robot.rearm()
    assert application.answer(RESET).status == (200 if allowed else 500)
    assert len(events(inner, "joint_reset")) == allowed == len(events(robot, "joint_reset"))
    robot.close()
