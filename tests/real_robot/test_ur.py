"""The driver for Universal Robots, through the unmodified ur_rtde wheel, against a peer that speaks its protocols."""

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from robo_real.arm import ArmTarget
from robo_real.drivers.ur import UR, UROptions
from robo_real.guarded_arm import GuardedArm
from robo_real.limits import TWIN
from robo_real.rotations import DOWN
from robo_rl.errors import InvalidSetting, MissingExtra, RobotStopped, RobotUnavailable

LIMITS = replace(
    TWIN,
    joint_low=(-6.0,) * 6,
    joint_high=(6.0,) * 6,
    joint_speed=(2.0,) * 6,
    soft_force=20.0,
    command_age=2.0,
    state_age=2.0,
    stop_after=30.0,
)
sys.path.insert(0, str(Path(__file__).parent))
from rtde_peer import Peer  # noqa: E402

ALONG = [0.3, 0, 0, 0, 1]


def wait_until(holds, seconds=30.0):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came to hold"
        time.sleep(0.01)


pytest.importorskip("rtde_receive", reason="pip install ur_rtde")


@pytest.fixture
def peer():
    found = Peer()
    yield found
    found.close()


@pytest.fixture
def arm(peer):
    found = UR(UROptions(address=peer.address, timeout=20.0))
    found.connect()
    yield found
    found.close()


@pytest.fixture
def robot(arm):
    found = GuardedArm(arm, LIMITS)
    found.connect()
    yield found
    found.close()


def numbers(peer, command):
    return [doubles for number, doubles in peer.get("commands") if number == command]


@pytest.mark.slow
def test_what_is_measured_has_the_units_and_frames_of_an_arm(peer, arm):
    turn = Rotation.from_rotvec([0, np.pi, 0]) * Rotation.from_rotvec([0, 0, 0.5])
    peer.set(actual_TCP_pose=[0.4, 0.1, 0.3, *turn.as_rotvec()], actual_TCP_speed=[0.1, 0, 0, 0, 0, 0.2])
    wait_until(lambda: arm.read().velocity[5] == 0.2)
    state = arm.read()
    np.testing.assert_allclose(state.position, [0.4, 0.1, 0.3])
    x, y, z, w = turn.as_quat()
    assert abs(np.dot(state.quaternion, (w, x, y, z))) == pytest.approx(1)
    np.testing.assert_allclose(state.velocity, [0.1, 0, 0, 0, 0, 0.2])
    np.testing.assert_allclose(state.force, [1, 2, 3])
    np.testing.assert_allclose(state.torque, [0.1, 0.2, 0.3])
    np.testing.assert_allclose(state.joint_position, [0.1, -1.5, 1.4, -1.5, -1.57, 0.2])
    assert state.fault is None and state.is_finite


@pytest.mark.slow
def test_a_target_is_sent_as_a_pose_with_the_settings_of_servol(peer, arm):
    arm.move(ArmTarget(np.array([0.41, 0.1, 0.3]), DOWN, 0.05))
    wait_until(lambda: numbers(peer, 24))
    np.testing.assert_allclose(numbers(peer, 24)[0], [0.41, 0.1, 0.3, np.pi, 0, 0, 0.1, 0.1, 0.008, 0.1, 300], atol=1e-6)
    wait_until(lambda: arm.read().position[0] > 0.409)
    assert arm.read().opening == 0.0  # there is no gripper, whatever it is sent
    arm.hold()
    assert numbers(peer, 16) == [[10.0]]


@pytest.mark.slow
def test_controller_watchdog_is_fed_only_by_motion_commands(peer, arm):
    assert numbers(peer, 35) == [[5.0]]
    words = peer.get("words")
    wait_until(lambda: peer.get("words") > words)  # at rest the program is kept alive
    arm.move(ArmTarget(np.array([0.41, 0.1, 0.3]), DOWN, 0.05))
    time.sleep(0.2)
    words = peer.get("words")
    time.sleep(0.3)
    assert peer.get("words") == words
    arm.hold()
    wait_until(lambda: peer.get("words") > words + 2)


@pytest.mark.slow
def test_controller_ends_program_of_silent_driver(peer, arm):
    """Nothing of ours holds the arm here: its control program ends by the controller's own watchdog, and that is told."""
    arm.move(ArmTarget(np.array([0.6, 0.1, 0.3]), DOWN, 0.0))
    wait_until(lambda: arm.read().position[0] > 0.401)
    peer.set(watches=True)
    wait_until(lambda: arm.read().fault is not None)
    assert arm.read().fault == "the control program has ended"
    here = peer.get("actual_TCP_pose")
    time.sleep(0.1)
    assert peer.get("actual_TCP_pose") == here and here[0] < 0.55


@pytest.mark.slow
def test_set_points_reach_the_pose_and_end_with_the_commands(peer, robot):
    robot.arm()
    start = robot.measure()
    robot.move(ArmTarget(start.position + np.array([0.015, 0, 0]), start.quaternion, 0.0))
    wait_until(lambda: robot.driver.read().position[0] > start.position[0] + 0.0145)
    assert len(numbers(peer, 24)) > 3  # a stream of set points, not one
    steps = np.diff([target[0] for target in numbers(peer, 24)], prepend=start.position[0])
    assert steps.max() < 0.01
    robot.pause()
    time.sleep(0.2)  # the last set point may still be on its way
    sent = len(numbers(peer, 24))
    time.sleep(0.2)
    assert len(numbers(peer, 24)) == sent


@pytest.mark.slow
def test_gripper_that_is_none_is_told_closed_and_refused(robot):
    robot.arm()
    robot.observe()
    assert robot.apply(ALONG).action[4] == -1.0 and robot.driver.read().opening == 0.0
    with pytest.raises(RobotUnavailable, match="no gripper"):
        robot.grip(0.05)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"safety_status_bits": 1 << 2}, "robot: protective stop"),
        pytest.param({"safety_status_bits": 1 << 7 | 1 << 6 | 1 << 2}, "robot: emergency stop", marks=pytest.mark.slow),
        pytest.param({"robot_mode": 3}, "robot: robot mode 3", marks=pytest.mark.slow),
        pytest.param({"runs": False}, "robot: the control program has ended", marks=pytest.mark.slow),
    ],
)
def test_self_stopped_robot_stays_latched(peer, robot, facts, reason):
    robot.arm()
    robot.observe()
    robot.apply(ALONG)
    peer.set(**facts)
    wait_until(lambda: robot.driver.read().fault is not None)
    with pytest.raises(RobotStopped):
        robot.apply(ALONG)
    assert robot.guard.reason == reason
    assert "unlock protective stop" not in peer.get("dashboard")
    time.sleep(0.2)  # a set point sent before the fault was read may still be on its way
    sent = len(numbers(peer, 24))
    time.sleep(0.2)
    assert len(numbers(peer, 24)) == sent


@pytest.mark.slow
def test_person_unlocks_protective_stop_and_restarts_program(peer, robot):
    robot.arm()
    peer.set(safety_status_bits=1 << 2, runs=False)
    wait_until(lambda: robot.driver.read().fault == "protective stop")
    with pytest.raises(RobotStopped):
        robot.apply(ALONG)
    robot.rearm()
    assert "unlock protective stop" in peer.get("dashboard")
    wait_until(lambda: robot.driver.read().fault is None)
    robot.arm()
    robot.observe()
    robot.apply(ALONG)
    wait_until(lambda: numbers(peer, 24))
    assert len(numbers(peer, 35)) == 2  # the watchdog is on again


@pytest.mark.slow
def test_measurements_that_stand_still_grow_old(peer, arm):
    peer.set(frozen=True)
    time.sleep(0.05)
    first = arm.read()
    time.sleep(0.1)
    assert arm.read().stamp == first.stamp
    assert arm.clock.now() - arm.read().stamp >= 0.1
    peer.set(frozen=False)


LOSES = """
import os, sys
from robo_real.drivers.ur import UR, UROptions
from robo_rl.errors import RobotUnavailable
arm = UR(UROptions(address=sys.argv[1]))
arm.connect()
print("connected", flush=True)
sys.stdin.readline()
try:
    while True:
        arm.read()
except RobotUnavailable as error:
    print(f"read: {str(error).splitlines()[0]}")  # in one piece: ur_rtde prints, too
try:
    arm.hold()
except RobotUnavailable as error:
    print(f"hold: {str(error).splitlines()[0]}", flush=True)
os._exit(0)  # ur_rtde is busy reconnecting, and would abort an ordinary end
"""


@pytest.mark.slow
def test_a_lost_link_is_told_in_time(peer):
    with subprocess.Popen([sys.executable, "-c", LOSES, peer.address], text=True, stdin=-1, stdout=-1) as process:
        try:
            while process.stdout.readline() != "connected\n":  # ur_rtde prints, too
                assert process.poll() is None
            peer.call("cut")
            told, _ = process.communicate("\n", timeout=60)
        finally:
            process.kill()
    assert "read: The link to the arm is lost." in told and "hold: The arm does not stop." in told


def test_where_there_is_no_robot_and_no_wheel_it_says_so(monkeypatch):
    with pytest.raises(RobotUnavailable, match="does not answer"):
        UR(UROptions(address="127.0.0.1")).connect()
    monkeypatch.setitem(sys.modules, "rtde_control", None)
    with pytest.raises(MissingExtra, match=r"robo-rl\[ur\]"):
        UR().connect()


def test_settings_that_servol_does_not_take_are_refused():
    with pytest.raises(InvalidSetting, match="lookahead"):
        UROptions(lookahead=0.5)
    with pytest.raises(InvalidSetting, match="gain"):
        UROptions(gain=50.0)


@pytest.mark.slow
def test_freedrive_ends_with_the_process_that_wanted_it(peer, arm):
    peer.set(watches=True)
    arm.freedrive(True)
    time.sleep(1.0)
    assert peer.get("teaches") and peer.get("runs")  # the driver feeds the controller's watchdog meanwhile
    arm._program._calls.put(None)  # as if the process were gone
    wait_until(lambda: not peer.get("teaches"))
    assert not peer.get("runs")
