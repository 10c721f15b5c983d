"""Tare of a force sensor: what it removes, and when it is refused."""

import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from robo_cli.main import dispatch
from robo_real.clock import ManualClock
from robo_real.drivers.fake import FakeArm
from robo_real.drivers.franka_http import FrankaHttp, FrankaHttpOptions
from robo_real.guarded_arm import GuardedArm
from robo_real.limits import TWIN
from robo_real.remote_robot import RemoteRobot
from robo_real.server.robo_routes import RoboRoutes
from robo_real.twin import Twin
from robo_rl.errors import RobotBusy, RobotError, RobotUnavailable

sys.path.insert(0, str(Path(__file__).parent))
from faulty_twin import Faults, FaultyTwin

STILL = [0, 0, 0, 0, 1]


class Sensor(FakeArm):
    """Arm that stands, whose force follows a function of the time."""

    def __init__(self, force):
        super().__init__(clock=ManualClock())
        self.of_time = force

    def read(self):
        self.force = np.array(self.of_time(self.clock.now()), np.float64)
        return super().read()


@pytest.fixture
def arm():
    made = []

    def make(driver):
        made.append(GuardedArm(driver, TWIN))
        made[-1].connect()
        return made[-1]

    yield make
    for robot in made:
        robot.close()


def test_tare_of_twin_removes_offset_and_keeps_contacts(arm):
    twin = FaultyTwin(Twin(clock=ManualClock()))
    robot = arm(twin)
    twin.clock.sleep(0.2)
    twin.inject(Faults(push=12.0))
    found = robot.tare()
    assert found.force[2] == pytest.approx(12.0, abs=0.5) and found.payload == pytest.approx(-12 / 9.81, abs=0.06)
    assert np.abs(twin.read().force).max() < 0.5 and found.left < 0.5
    assert robot.log.recent[-1]["event"] == "tare" and robot.log.recent[-1]["force"] == found.force
    twin.inject(Faults(push=180.0))  # 168 N more than at the tare
    assert robot.driver.read().force[2] == pytest.approx(168.0, abs=0.5)
    robot.arm()
    robot.measure()
    with pytest.raises(RobotError, match="hard_force"):
        robot.apply(STILL)


@pytest.mark.parametrize(
    ("force", "said"),
    [
        (lambda now: [0, 0, 45.0], "in contact, or its payload"),
        (lambda now: [0, 0, 10 * now], "pushed, or its force sensor drifts"),
        (lambda now: [8.0 * (round(now / 0.02) % 2), 0, 0], "shakes"),
        (lambda now: [np.nan, 0, 0], "not finite"),
    ],
)
def test_contact_drift_and_vibration_are_refused(arm, force, said):
    robot = arm(Sensor(force))
    with pytest.raises(RobotError, match=said):
        robot.tare()
    assert (robot.driver._zero == 0).all()


def test_tares_cannot_hide_a_press_bit_by_bit(arm):
    driver = Sensor(lambda now: [0, 0, 30.0])
    robot = arm(driver)
    assert robot.tare().total == (0.0, 0.0, 30.0)
    driver.of_time = lambda now: [0, 0, 60.0]  # 30 N as measured now
    with pytest.raises(RobotError, match=r"60.0 N along an axis with earlier tares"):
        robot.tare()


def test_an_arm_in_motion_is_refused(arm):
    robot = arm(FakeArm(clock=ManualClock()))
    robot.arm()
    robot.measure()
    robot.apply([1, 0, 0, 0, 1])
    with pytest.raises(RobotError, match="under way"):
        robot.tare()
    robot.pause()
    robot.driver._velocity[:] = 0.1
    robot.driver._pass = lambda duration: setattr(robot.driver, "_moved_at", robot.driver._moved_at + duration)
    with pytest.raises(RobotError, match="The arm moves"):
        robot.tare()
    assert "tare" not in [event["event"] for event in robot.log.recent]


def test_faults_and_frozen_measurements_are_refused(arm):
    robot = arm(FakeArm(clock=ManualClock()))
    robot.driver.fault = "protective stop"
    with pytest.raises(RobotError, match="protective stop"):
        robot.tare()
    twin = FaultyTwin(Twin(clock=ManualClock()))
    robot = arm(twin)
    twin.inject(Faults(freeze=True))
    with pytest.raises(RobotUnavailable, match="frozen"):
        robot.tare()


def test_driver_that_cannot_tare_is_reported(arm, serve):
    server = serve()
    with pytest.raises(RobotUnavailable, match="no tare"):
        arm(FrankaHttp(FrankaHttpOptions(url=server.url, timeout=20.0))).tare()
    robot = arm(Sensor(lambda now: [0, 0, 5.0]))
    robot.driver.tare = lambda: None
    with pytest.raises(RobotUnavailable, match="not zero after the tare"):
        robot.tare()


def test_command_tares_a_served_twin_that_is_free(serve, capsys):
    server = serve()
    server.application.robot.driver.inject(Faults(push=7.0))
    assert dispatch(["robot", "tare", server.url]) == 0
    said = capsys.readouterr().out
    assert "before   force" in said and "payload" in said and "left" in said
    assert abs(server.application.robot.driver.read().force[2]) < 1.0
    other = RemoteRobot(server.url, owner="a training")
    other.connect()
    with pytest.raises(RobotBusy, match="a training"):
        dispatch(["robot", "tare", server.url])
    other.close()


def test_a_stop_does_not_wait_for_a_tare(serve):
    server = serve()
    robot = RemoteRobot(server.url)
    robot.connect()
    thread = threading.Thread(target=robot.tare)
    thread.start()
    time.sleep(0.2)
    began = time.monotonic()
    robot.stop("red")
    took = time.monotonic() - began
    thread.join()
    robot.close()
    assert took < 0.4 and server.application.robot.guard.reason == "stop: red"


def test_tare_needs_the_lease(arm):
    routes = RoboRoutes(arm(FakeArm(clock=ManualClock())), {})
    with pytest.raises(RobotBusy):
        routes.writes["/robo/tare"]({})


@pytest.mark.slow
def test_tare_of_a_universal_robot_is_its_own(arm):
    pytest.importorskip("rtde_receive", reason="pip install ur_rtde")
    sys.path.insert(0, str(Path(__file__).parent))
    from rtde_peer import Peer
    from test_ur import LIMITS

    from robo_real.drivers.ur import UR, UROptions

    peer = Peer()
    robot = GuardedArm(UR(UROptions(address=peer.address, timeout=20.0)), LIMITS)
    try:
        robot.connect()
        found = robot.tare()
        assert found.force == (1.0, 2.0, 3.0) and found.left == 0.0
        assert peer.get("actual_TCP_force") == [0.0] * 6
    finally:
        robot.close()
        peer.close()
