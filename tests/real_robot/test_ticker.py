"""An arm without a control loop of its own gets its set points from a thread, which outlives whatever its driver does."""

import time
from dataclasses import replace

import numpy as np
import pytest

from factories import rest_slow
from robo_real.arm import HOLD, ArmState, ArmTarget
from robo_real.audit_log import AuditLog
from robo_real.clock import ManualClock, MonotonicClock
from robo_real.guard import Guard
from robo_real.guarded_arm import GuardedArm
from robo_real.limits import TWIN
from robo_real.motion_generator import MotionGenerator
from robo_real.rotations import DOWN
from robo_rl.errors import RobotUnavailable

pytestmark = pytest.mark.real_time

START = np.array([0.46, 0.0, 0.24])
LIMITS = replace(TWIN, stop_after=2.0, command_age=5.0, state_age=2.0, speed=0.2, acceleration=2.0)


class Vendor:
    """Six methods and a clock; the hand is where it was told to be at once."""

    name = "test/Vendor"

    def __init__(self):
        self.clock = MonotonicClock()
        self.told, self.failure, self.force = [], None, 0.0
        self.during_move = lambda: None
        self.position = START

    def read(self):
        if self.failure is not None:
            raise self.failure
        return ArmState(
            stamp=self.clock.now(),
            position=self.position,
            quaternion=DOWN,
            velocity=np.zeros(6),
            force=np.array([0.0, 0.0, self.force]),
            torque=np.zeros(3),
            joint_position=np.full(7, self.position[0] - 1.0) * [1, 1, 1, 4, 1, -1, 1],
            joint_velocity=np.zeros(7),
            jacobian=np.zeros((6, 7)),
            opening=0.0,
        )

    def move(self, target):
        self.during_move()
        self.position = target.position
        self.told.append(target)

    def hold(self):
        self.told.append("hold")

    def connect(self): ...

    def recover(self): ...

    def close(self): ...


@pytest.fixture
def robot():
    found = GuardedArm(Vendor(), LIMITS)
    found.connect()
    found.arm()
    yield found
    found.close()


def wait_until(holds, seconds=30.0):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came to hold"
        time.sleep(0.005)


def send(robot, offset=0.06):
    robot.move(ArmTarget(np.add(START, [offset, 0, 0]), DOWN, 0.0))


def test_ticker_streams_set_points_to_the_pose(robot):
    send(robot)
    wait_until(lambda: robot.driver.position[0] > START[0] + 0.0595)
    way = [target.position[0] for target in robot.driver.told if isinstance(target, ArmTarget)]
    steps = np.diff(way, prepend=START[0])
    assert len(way) > 5 and steps.max() <= LIMITS.speed * 3 * robot.motion_generator.period + 1e-9


def test_ticker_stops_an_arm_that_goes_the_other_way(robot):
    """As one with a wrong sign; it reports neither velocities nor forces."""
    move, here = robot.driver.move, robot.driver

    def mirrored(target):
        move(replace(target, position=2 * here.position - target.position))

    robot.driver.move = mirrored
    send(robot)
    wait_until(lambda: robot.guard.reason in ("moves_away", "moves_too_fast"))
    assert START[0] - robot.driver.position[0] < 5 * LIMITS.reach
    wait_until(lambda: robot.driver.told[-1] == "hold")


def test_ticker_lets_a_stop_have_the_last_word(robot):
    robot.driver.during_move = robot.stop  # as another thread might, between asking for a set point and telling it
    send(robot)
    wait_until(lambda: len(robot.driver.told) > 1)
    time.sleep(0.1)
    assert robot.driver.told[-1] == "hold"
    assert sum(isinstance(target, ArmTarget) for target in robot.driver.told) == 1


def test_ticker_watches_an_arm_that_nobody_commands(robot):
    robot.driver.force = 400.0
    wait_until(lambda: robot.guard.reason == "hard_force")


@pytest.mark.parametrize("failure", rest_slow([RobotUnavailable("cable"), RuntimeError("cable")]))
def test_ticker_holds_then_stops_an_arm_that_is_lost(robot, failure):
    send(robot)
    wait_until(lambda: robot.driver.told)
    robot.driver.failure = failure
    wait_until(lambda: robot.driver.told[-1] == "hold")
    robot.driver.failure = None
    wait_until(lambda: robot._ticker.failure is None)
    assert robot.guard.reason == ""  # a short loss stops nothing
    robot.driver.failure = failure
    wait_until(lambda: robot.guard.reason == "robot_lost")
    robot.driver.failure = None
    assert robot._ticker._thread.is_alive()


def test_ticker_tries_a_hold_that_failed_again(robot):
    send(robot)
    wait_until(lambda: robot.driver.told)
    hold, failures = robot.driver.hold, []

    def failing():
        failures.append(1)
        if len(failures) < 4:
            raise RobotUnavailable("cable")
        hold()

    robot.driver.hold = failing
    robot.stop()
    assert len(failures) >= 1 and robot.driver.told[-1] != "hold"  # the arm goes on to its last set point
    wait_until(lambda: robot.driver.told[-1] == "hold")
    assert len([event for event in robot.log.recent if event["event"] == "hold_failed"]) == 1
    count = len(failures)
    time.sleep(0.2)
    assert len(failures) == count  # once it holds, it is left alone


def test_ticker_reports_refused_target_to_next_command(robot):
    def broken():
        raise RobotUnavailable("The gripper does not answer.")

    robot.driver.during_move = broken
    send(robot)
    wait_until(lambda: robot._ticker.failure is not None or not robot.guard.is_ready)
    if robot.guard.is_ready:
        with pytest.raises(RobotUnavailable, match="gripper"):
            send(robot)


def test_course_stops_the_arm_if_its_own_reckoning_fails(robot):
    robot.motion_generator._poses.next = None  # whatever may be wrong there
    send(robot)
    wait_until(lambda: robot.guard.reason.startswith("set points: TypeError"))
    assert robot.driver.told == [] or robot.driver.told[-1] == "hold"


def test_motion_ends_if_the_machine_slept_meanwhile():
    """A pose of a client that may pause goes on by itself for seconds, but not after a sleep that nobody knows of."""
    arm, clock = Vendor(), ManualClock()
    arm.clock = clock
    guard = Guard(LIMITS, 0.05, AuditLog())
    motion = MotionGenerator(guard, arm)
    guard.connected()
    guard.arm()

    def tick(after):
        clock.sleep(after)
        found = motion.tick(arm.read(), clock.now())
        if isinstance(found, ArmTarget):
            arm.move(found)
        return found

    for slept, goes_on in ((0.4, True), (3.0, False)):
        motion.move_to(ArmTarget(np.add(START, [0.06, 0, 0]), DOWN, 0.0), clock.now() + 60)
        assert isinstance(tick(0.02), ArmTarget) and isinstance(tick(0.02), ArmTarget)
        found = tick(slept)
        assert isinstance(found, ArmTarget) is goes_on and motion.is_moving is goes_on
    assert found is HOLD and guard.is_ready, "the next pose moves it again"
