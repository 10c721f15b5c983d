"""No driver's gripper moves before a client has commanded it: it may hold a part when its server is started again."""

import numpy as np
import pytest

from robo_real.arm import ArmTarget
from robo_real.clock import ManualClock
from robo_real.drivers.fake import FakeArm
from robo_real.drivers.franka_http import GRIPPER_PAUSE, FrankaHttp, FrankaHttpOptions
from robo_real.guarded_arm import GuardedArm
from robo_real.limits import TWIN
from robo_real.twin import Twin, TwinOptions
from robo_rl.errors import RobotStopped

UP = np.array([0.0, 0.0, 0.005])
OPEN = TWIN.opening


@pytest.fixture
def guarded():
    """Returns a function that puts a driver behind a guard and arms it; it is closed after the test."""
    found = []

    def made(driver, **arguments):
        robot = GuardedArm(driver, TWIN, **arguments)
        found.append(robot)
        robot.connect()
        robot.arm()
        return robot

    yield made
    for robot in found:
        robot.close()


def up(robot):
    """A pose 5 mm up, as the first of HIL-SERL's client."""
    state = robot.measure()
    robot.move(ArmTarget(state.position + UP, state.quaternion, 0.0))
    robot.driver.clock.sleep(0.5)


def test_first_pose_leaves_the_peg_in_the_hand(guarded):
    twin = Twin(TwinOptions(task="robo/ArmPegInsert-v0"), ManualClock())
    robot = guarded(twin, spec=twin.spec, scene=twin)
    held = robot.measure().opening
    assert 0.01 < held < 0.03  # a peg
    for _ in range(3):
        up(robot)
        assert robot.measure().opening == pytest.approx(held, abs=0.002)
    robot.grip(OPEN)
    twin.clock.sleep(1.0)
    assert robot.measure().opening > 0.07
    robot.reset_scene(1)  # another peg is in the hand now: the last command was of another one
    robot.arm()
    held = robot.measure().opening
    up(robot)
    assert robot.measure().opening == pytest.approx(held, abs=0.002)


@pytest.mark.parametrize("again", ["start", "re-arming"])
def test_first_pose_keeps_the_fingers_closed(guarded, again):
    arm = FakeArm(clock=ManualClock())
    arm._opening = 0.02  # around a part
    robot = guarded(arm)
    if again == "re-arming":
        robot.grip(0.03)
        arm.clock.sleep(0.02)
        robot.stop()
        arm._opening = 0.02  # a person puts a part in the hand
        robot.rearm()
        robot.arm()
    up(robot)
    assert robot.measure().opening == 0.02
    robot.grip(0.04)
    up(robot)  # the pose repeats what was commanded
    assert robot.measure().opening == pytest.approx(0.04, abs=0.001)


class Answers:
    """A client of a Franka server that answers at once, and whose gripper hears what it wants to."""

    def __init__(self):
        self.opening, self.deaf, self.grips = 0.0, 0, []

    def post(self, path, body=None):
        if path == "/move_gripper":
            self.grips.append(body["gripper_pos"])
            self.deaf -= 1
            if self.deaf < 0:
                self.opening = body["gripper_pos"] / 255
        pose = b"[0.46, 0, 0.24, 1, 0, 0, 0]"
        zeros = b", ".join(b'"%s": [0, 0, 0]' % name for name in (b"force", b"torque"))
        joints = b'"q": [0, -0.3, 0, -2.3, 0, 2, 0.8], "dq": [0, 0, 0, 0, 0, 0, 0]'
        jacobian = b'"jacobian": [%s]' % b", ".join([b"[0, 0, 0, 0, 0, 0, 0]"] * 6)
        rest = b'"vel": [0, 0, 0, 0, 0, 0], "gripper_pos": %f' % self.opening
        return b"{" + b", ".join([b'"pose": ' + pose, zeros, joints, jacobian, rest]) + b"}"

    def close(self): ...


@pytest.fixture
def franka():
    """A driver of a Franka server that is a few lines of this file."""
    driver = FrankaHttp(FrankaHttpOptions(), ManualClock())
    driver._client.close()
    driver._client = Answers()
    return driver


def moved(driver, opening, times):
    for _ in range(times):
        here = driver.read()
        driver.move(ArmTarget(here.position, here.quaternion, opening))
        driver.clock.sleep(driver.period)


def test_franka_gripper_is_sent_nothing_before_the_first_command(franka):
    moved(franka, None, 40)
    assert franka._client.grips == []
    moved(franka, 0.0, 40)
    assert franka._client.grips == [0]


def test_franka_gripper_command_that_was_lost_is_sent_again(franka):
    franka._client.deaf = 1
    moved(franka, OPEN, 40)  # 0.8 s
    assert franka._client.grips == [204, 204] and franka.read().opening == pytest.approx(0.064)


def test_franka_gripper_that_cannot_follow_is_not_flooded(franka):
    franka._client.deaf = 1000
    moved(franka, OPEN, 100)
    assert 2 < len(franka._client.grips) <= 100 * franka.period / GRIPPER_PAUSE + 1
    franka._client.opening = 0.1  # it moves, and stops at what it holds
    moved(franka, OPEN, 1)
    before = len(franka._client.grips)
    moved(franka, OPEN, 100)
    assert len(franka._client.grips) == before


@pytest.mark.parametrize("reading", [255.0, -1.0, 1.3])
def test_franka_gripper_measured_beyond_its_width_is_a_fault(franka, reading):
    robot = GuardedArm(franka, TWIN)  # not connected: the test is the thread that drives it
    robot.guard.connected()
    robot.arm()
    franka._client.opening = reading
    with pytest.raises(RobotStopped, match="opening_out_of_range"):
        robot.move(ArmTarget(np.array([0.46, 0.0, 0.245]), (0.0, 1.0, 0.0, 0.0), 0.0))
