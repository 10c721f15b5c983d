"""Measurements are judged at each tick of the arm, also if nobody commands it; in the twin's own time."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from robo_real.arm import ArmTarget
from robo_real.clock import ManualClock
from robo_real.guard import Mode
from robo_real.guarded_arm import GuardedArm
from robo_real.limits import TWIN as FREE
from robo_real.twin import Twin

sys.path.insert(0, str(Path(__file__).parent))
from faulty_twin import Faults, FaultyTwin

TWIN = replace(FREE, stop_after=1.0)
SEEN = 0.02
"""[s] within which a fault of a measurement stops the arm"""


@pytest.fixture
def robot():
    twin = FaultyTwin(Twin(clock=ManualClock()))
    found = GuardedArm(twin, TWIN, spec=twin.spec, scene=twin)
    found.connect()
    found.arm()
    yield found
    found.close()


def running(robot):
    robot.measure()
    robot.apply([0.3, 0, 0, 0, 1])


def pausing(robot):
    state = robot.measure()
    robot.move(ArmTarget(np.add(state.position, [0.005, 0, 0]), state.quaternion, 0.0))
    wait(robot, TWIN.stop_after + 1)
    robot.watchdog.check()
    assert robot.guard.mode is Mode.ARMED


def held(robot):
    running(robot)
    wait(robot, TWIN.hold_after + 0.1)
    robot.watchdog.check()


def idle(robot):
    pass


def wait(robot, seconds):
    robot.driver.clock.sleep(seconds)
    robot.driver.read()


@pytest.mark.parametrize("before", [running, pausing, held, idle])
@pytest.mark.parametrize(
    ("faults", "reason"),
    [
        ({"push": 400.0}, "hard_force"),
        ({"corrupt": True}, "state_not_finite"),
        ({"jump": 0.1}, "state_jumped"),
        ({"jump": 0.5}, "outside_workspace"),
        ({"reflex": True}, "robot: reflex"),
    ],
)
def test_watch_stops_an_arm_that_nobody_commands(robot, before, faults, reason):
    before(robot)
    wait(robot, 0.05)
    robot.driver.inject(Faults(**faults))
    wait(robot, SEEN)
    assert (robot.guard.mode, robot.guard.reason) == (Mode.FAULT, reason)
    robot.driver.inject(Faults())
    here = robot.driver._plant._physics.gripper_position.copy()
    wait(robot, 1.0)
    np.testing.assert_allclose(robot.driver._plant._physics.gripper_position, here, atol=0.004)


def test_watch_faults_a_joint_beyond_its_limit(robot):
    robot.driver._plant._physics.joint_position[0] = TWIN.joint_high[0] + 0.01
    robot.driver._plant.hold()
    wait(robot, SEEN)
    assert robot.guard.reason in ("joint_beyond_limit", "outside_workspace")


@pytest.mark.parametrize("faults", [{"freeze": True}, {"repeat": True}])
def test_watch_stops_an_arm_whose_measurements_stand_still(robot, faults):
    state = robot.measure()
    robot.move(ArmTarget(np.add(state.position, [0.08, 0, 0]), state.quaternion, 0.0))
    wait(robot, 0.03)
    robot.driver.inject(Faults(**faults))
    for _ in range(12):
        wait(robot, 0.05)
    assert not robot.motion_generator.is_moving  # it holds at least
    wait(robot, TWIN.stop_after)
    assert robot.guard.reason in ("state_frozen", "state_late", "velocity_contradicts_position")


@pytest.mark.slow
@pytest.mark.parametrize("before", [pausing, held, idle])
def test_watch_raises_no_alarm_while_nothing_happens(robot, before):
    before(robot)
    for _ in range(10):
        wait(robot, 1.0)
    assert robot.guard.reason in ("", "watchdog" if before is held else "")


def test_watch_takes_the_reset_of_a_scene_for_no_jump(robot):
    running(robot)
    wait(robot, 0.05)
    for seed in range(5):
        robot.reset_scene(seed)
        wait(robot, 0.05)
    robot.driver.reset(7)  # as an environment beside it does
    wait(robot, 0.05)
    assert robot.guard.reason == "" and robot.guard.mode is Mode.ARMED


def test_watch_judges_nothing_before_the_arm_is_armed():
    twin = FaultyTwin(Twin(clock=ManualClock()))
    robot = GuardedArm(twin, TWIN, spec=twin.spec, scene=twin)
    robot.connect()
    twin.inject(Faults(push=400.0))
    wait(robot, 1.0)
    assert robot.guard.mode is Mode.IDLE
    robot.close()


def test_course_ends_without_the_watchdog(robot):
    """The second line: set points end by themselves if neither a command nor the watchdog comes."""
    running(robot)
    robot.watchdog.closing.set()  # the watchdog's thread ends
    wait(robot, TWIN.hold_after + 0.1)
    assert not robot.motion_generator.is_moving
    wait(robot, 0.2)
    assert np.abs(robot.driver.read().velocity).max() < 0.01
    robot.watchdog.closing.clear()
